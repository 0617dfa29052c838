"""What a replay is asked for, as far as `--help` names it."""

GPUS_PER_NODE = 8
