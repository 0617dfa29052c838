"""How a command reaches its machines: on this one as it is, as ranks of torchrun, or on nodes of a Slurm cluster."""
