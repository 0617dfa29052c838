"""Rate of building and checking specs with their workload and memory, one core, warm.

A spec is a case of the built-in studies, from plain request to the memory of every stage.
"""

import time

from charllm.catalog.resolve import resolve_run
from charllm.catalog.tables import entries
from charllm.errors import SpecError
from charllm.sweep.study import load_study
from charllm.workload.memory import rank_memories
from charllm.workload.step import build_step

SECONDS = 3.0


def main() -> None:
    requests = [case.request for name in entries("studies") for case in load_study(name).cases]
    spec_rate = _rate(requests, with_memory=False)
    full_rate = _rate(requests, with_memory=True)
    print(f"specs: {len(requests)} requests of {len(entries('studies'))} studies")
    print(f"  build, check, workload          {spec_rate:8,.0f} a second (target 2,000)")
    print(f"  and memory of every stage       {full_rate:8,.0f} a second")


def _rate(requests: list[dict[str, object]], *, with_memory: bool) -> float:
    for request in requests:
        _build(request, with_memory=with_memory)
    start, built = time.perf_counter(), 0
    while time.perf_counter() - start < SECONDS:
        for request in requests:
            _build(request, with_memory=with_memory)
        built += len(requests)
    return built / (time.perf_counter() - start)


def _build(request: dict[str, object], *, with_memory: bool) -> None:
    try:
        step = build_step(resolve_run(request))
    except SpecError:
        return
    if with_memory:
        rank_memories(step)


if __name__ == "__main__":
    main()
