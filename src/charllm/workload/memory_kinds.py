"""The kinds of memory of a rank."""

KINDS = ("weights", "gradients", "optimizer", "activations", "scratch", "reserve", "communication", "context")
