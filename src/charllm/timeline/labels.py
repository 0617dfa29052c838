"""The labels of a step's time: each instant of each GPU has one."""

LABEL_WORDS = {
    "compute": "compute",
    "recompute": "recomputation",
    "optimizer": "optimizer",
    "tp_exposed": "exposed tp communication",
    "pp_exposed": "exposed pp transfers",
    "dp_exposed": "exposed dp communication",
    "ep_exposed": "exposed ep communication",
    "cp_exposed": "exposed cp communication",
    "straggler_wait": "waiting for slower GPUs",
    "bubble": "pipeline bubble",
    "overhead": "host overhead",
}
"""Label: what it is called in a sentence and in a legend."""
LABELS = tuple(LABEL_WORDS)
