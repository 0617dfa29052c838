"""The kind of a collective, from the names that backends record."""

import re

KINDS = {
    "barrier": "barrier",
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "recv": "recv",
    "send": "send",
}
"""Letters that a name holds, tried in order: the kind."""


def collective_kind(name: str) -> str:
    """Return the kind of a collective: `_allgather_base` and `nccl:_all_gather_base` are an all_gather."""
    plain = name.partition(":")[2] or name
    letters = re.sub(r"[^a-z]", "", plain.lower())
    return next((kind for key, kind in KINDS.items() if key in letters), plain)
