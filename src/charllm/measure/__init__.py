"""Real GPUs: telemetry, the sampler beside a job, the op bench, the reference trainer and rank emulation."""
