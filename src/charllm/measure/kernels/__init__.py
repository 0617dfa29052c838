"""Real kernels for ops: what the op bench times and what an emulated rank runs."""
