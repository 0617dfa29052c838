"""What a script says around its program: where ranks run, and how NCCL reduces."""

from dataclasses import replace
from typing import Any

from charllm.errors import SpecError
from charllm.spec.readers.reading import Reading
from charllm.spec.readers.shell.script import Script, items_of
from charllm.spec.writers.launch import RANK_MAP

NO_SWITCH_REDUCTION = ("NCCL_NVLS_ENABLE", "0")


def with_surroundings(reading: Reading, script: Script) -> Reading:
    """Add what a script sets for its program to a reading of the program's settings."""
    request = dict(reading.request)
    if script.variables.get(NO_SWITCH_REDUCTION[0]) == NO_SWITCH_REDUCTION[1]:
        request["framework"] = {**_as_table(request.get("framework")), "in_switch_reduction": False}
    if RANK_MAP in script.variables:
        placed = _gpu_of_rank(items_of(script.variables[RANK_MAP]))
        request["conditions"] = {"placement": RANK_MAP, "gpu_of_rank": placed}
    return replace(reading, request=request)


def _as_table(framework: Any) -> dict[str, Any]:
    return {"base": framework} if isinstance(framework, str) else dict(framework or {})


def _gpu_of_rank(ranks: list[str]) -> list[int]:
    """Turn the rank of each GPU into the GPU of each rank."""
    gpus = {int(rank): gpu for gpu, rank in enumerate(ranks) if rank.isdecimal() and len(rank) < 8}
    if sorted(gpus) != list(range(len(ranks))):
        raise SpecError(RANK_MAP, " ".join(ranks[:16]), f"the ranks 0 to {len(ranks) - 1}, each once")
    return [gpus[rank] for rank in range(len(ranks))]
