"""Traced kernels as a table of ops that `charllm calibrate` reads: shapes from the simulator, seconds from the trace.

Kernels of a profiler trace have no shapes; the ops of a simulated forward pass have, and come in the same order. Where
a trace has as many products (or attentions, or norms) in forward as the simulator, the n-th of one is the n-th of the
other.
"""

from collections import defaultdict
from typing import Any

import numpy as np

from charllm.gpu.shape import KernelShape
from charllm.timeline.step_time import StepTime
from charllm.trace.analyses.kernels import in_steps
from charllm.trace.chakra_nodes import rank_nodes
from charllm.trace.events import NONE
from charllm.trace.links import operators_of
from charllm.trace.phases import FORWARD, find_phases
from charllm.trace.run import TracedRank
from charllm.trace.simulated import CLASS_OF_KERNEL
from charllm.units import MEGA
from charllm.workload.launches import launched
from charllm.workload.step import Step

CLASSES = ("gemm", "attention", "norm")
SHORTEST_S = 1e-3
"""Ops that took less in all the traced steps are left out: tables of ops hold none shorter."""
COLUMNS = ("kind", "name", "dims", "dtype", "calls", "s_per_call", "mean_w", "sm_mhz", "window_s")


def tabulate_ops(
    rank: TracedRank, step: Step, timed: StepTime, clock_hz: dict[str, float] | None = None
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return a row for each op of the forward pass, and which classes could not be matched and why."""
    rows, notes = [], []
    for work in CLASSES:
        said, seen = _simulated(step, timed, rank.rank, work), _traced(rank, work)
        if not seen or len(said) * max(1, len(rank.windows)) != len(seen):
            each = len(seen) / max(1, len(rank.windows))
            notes.append(f"{work}: {each:g} in a traced forward pass, {len(said)} in a simulated one: left out")
            continue
        hertz = (clock_hz or {}).get(work)
        rows += _rows(said, seen, hertz)
    return rows, notes


def _simulated(step: Step, timed: StepTime, rank: int, work: str) -> list[tuple[str, KernelShape]]:
    """Return name and shape of each op of a class in the forward passes of a step, in order."""
    found = []
    for node in rank_nodes(step, timed, rank):
        if node.message is None and node.name.startswith("forward "):
            shapes = [one.shape for one in launched(node.op, step.run)]
            if len(shapes) == 1 and CLASS_OF_KERNEL.get(shapes[0].kind) == work:
                found.append((node.op.name, shapes[0]))
    return found


def _traced(rank: TracedRank, work: str) -> list[float]:
    """Return the seconds of each operator of a class in forward, in the order of its launch."""
    here = in_steps(rank)
    operators = operators_of(rank.trace, here.call)
    wanted = here.where(lambda known: known.name == work) & (find_phases(rank.trace, here) == FORWARD)
    wanted &= operators != NONE
    rows, place = np.unique(operators[wanted], return_inverse=True)
    seconds = np.bincount(place.ravel(), here.seconds[wanted], len(rows))
    return [float(seconds[at]) for at in np.argsort(rank.trace.events.start_s[rows], kind="stable")]


def _rows(said: list[tuple[str, KernelShape]], seen: list[float], hertz: float | None) -> list[dict[str, Any]]:
    spent: dict[tuple[str, KernelShape], list[float]] = defaultdict(list)
    for at, seconds in enumerate(seen):
        spent[said[at % len(said)]].append(seconds)
    return [
        {
            "kind": shape.kind,
            "name": f"traced {name}",
            "dims": "x".join(map(str, shape.dims)),
            "dtype": shape.precision,
            "calls": len(each),
            "s_per_call": float(np.median(each)),
            "mean_w": "",
            "sm_mhz": "" if hertz is None else hertz / MEGA,
            "window_s": sum(each),
        }
        for (name, shape), each in spent.items()
        if sum(each) >= SHORTEST_S
    ]
