"""The runs of CharLLM-PPT (MICRO'25), by the names of their cases in the catalog's studies."""

from functools import cache
from typing import Any

from charllm.reproduce.settings import NAME
from charllm.spec.request import merge
from charllm.sweep.study import load_study

Request = dict[str, Any]

H200, H100, MICROBATCH, LORA, INFERENCE, MI250, NETWORK, DATACENTER = (
    f"{NAME}-{part}"
    for part in (
        "optimization-h200",
        "optimization-h100",
        "microbatch-h200",
        "lora-h200",
        "inference",
        "mi250",
        "network",
        "datacenter",
    )
)
PARALLELISM, SCALE = f"{NAME}-parallelism", f"{NAME}-scale"
STUDIES = (PARALLELISM, H200, H100, MICROBATCH, LORA, INFERENCE, MI250, SCALE, NETWORK, DATACENTER)
"""All that the paper ran (188 training and 84 LoRA configurations, 70 of inference, and MI250), and what it projected.
The 44 Mixtral files among those of inference start LoRA training and are cases of LORA."""
MODELS = ("gpt3-175b", "llama3-70b", "mixtral-8x22b", "mixtral-8x7b")
DENSE = MODELS[:2]
ON_H100 = "the same on 64 H100"
"""Reading of a finding on the other cluster."""


@cache
def _cases(study: str) -> dict[str, Request]:
    return {case.name: case.request for case in load_study(study).cases}


def runs_of(study: str, *, starts: str = "", ends: str = "") -> dict[str, Request]:
    """Return the requests of a study by case name, of those whose names begin and end like this."""
    return {name: run for name, run in _cases(study).items() if name.startswith(starts) and name.endswith(ends)}


def run_of(study: str, case: str) -> Request:
    """Return the request of one case."""
    return _cases(study)[case]


def dense_runs(flags: str) -> dict[str, Request]:
    """Return the dense, model-parallel H200 runs with some flags (base, cc, act, cc+act), by strategy."""
    found = {name: run for model in DENSE for name, run in runs_of(H200, starts=model, ends=f" / {flags}").items()}
    return {name.removesuffix(f" / {flags}"): run for name, run in found.items() if "fsdp" not in name}


def with_change(run: Request, change: Request) -> Request:
    """Return a run with something changed."""
    merged: Request = merge(run, change)
    return merged


def degrees(run: Request) -> tuple[int, int, int]:
    """Return tensor, pipeline and expert degree of a request."""
    table = run.get("parallelism", {})
    return table.get("tp", 1), table.get("pp", 1), table.get("ep", 1)
