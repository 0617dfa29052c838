"""Where two sides disagree, class by class and kernel by kernel: two traces, or a trace and a simulated step."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from charllm.trace.analyses.host import host_cost
from charllm.trace.analyses.kernels import in_steps
from charllm.trace.classes import Classes
from charllm.trace.events import NONE
from charllm.trace.links import operators_of
from charllm.trace.run import TracedRank
from charllm.trace.simulated import SimulatedKernel, compared_class

CLEAR = "memset"


class KernelCount(NamedTuple):
    """Kernels of one kind on one side, in a mean step."""

    work: str
    """Class under which sides are compared."""
    name: str
    """Operator that launched them, or op and kernel of the simulator."""
    launches: float
    seconds: float


class Side(NamedTuple):
    """What one side does in a mean step."""

    name: str
    step_time_s: float
    host_s: float | None
    """What the host takes to launch the step, had it never waited."""
    kernels: list[KernelCount]


class ClassRow(NamedTuple):
    """One class on both sides."""

    work: str
    launches: tuple[float, float]
    seconds: tuple[float, float]

    @property
    def difference_fraction(self) -> float | None:
        """How much longer the second side takes; None where the first has none of it."""
        return self.seconds[1] / self.seconds[0] - 1 if self.seconds[0] else None


def traced_side(rank: TracedRank, classes: Classes, name: str) -> Side:
    """Return what a traced rank does in a mean step: by class and by the operator that launched it.

    A memory clear counts to the operator that it prepares.
    """
    here, steps = in_steps(rank), max(1, len(rank.windows))
    operators = operators_of(rank.trace, here.call)
    totals: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for work, operator, seconds in zip(here.work.tolist(), operators.tolist(), here.seconds.tolist(), strict=True):
        known = rank.trace.names[rank.trace.events.name[operator]] if operator != NONE else "unknown operator"
        label = here.works[work].name
        if label == CLEAR:
            label = classes.op_class(known) or label
        total = totals[compared_class(label), known]
        total[0] += 1 / steps
        total[1] += seconds / steps
    kernels = [KernelCount(*key, *total) for key, total in totals.items()]
    return Side(name, sum(window.seconds for window in rank.windows) / steps, _host_s(rank), kernels)


def _host_s(rank: TracedRank) -> float | None:
    cost = host_cost(rank)
    return None if cost is None else cost.seconds


def simulated_side(
    kernels: Sequence[SimulatedKernel], step_time_s: float, name: str, update_host_s: float = 0.0
) -> Side:
    """Return what a simulated rank does in a step; updating takes the host something for each tensor, too."""
    totals: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for one in kernels:
        total = totals[one.work, f"{one.op} ({one.kind})"]
        total[0] += one.launches
        total[1] += one.seconds
    counted = [KernelCount(*key, *total) for key, total in totals.items()]
    return Side(name, step_time_s, sum(one.launch_s for one in kernels) + update_host_s, counted)


def compare_classes(first: Side, second: Side) -> list[ClassRow]:
    """Lay the classes of two sides beside each other, the largest first."""
    totals: dict[str, list[list[float]]] = defaultdict(lambda: [[0.0, 0.0], [0.0, 0.0]])
    for place, side in enumerate((first, second)):
        for one in side.kernels:
            totals[one.work][0][place] += one.launches
            totals[one.work][1][place] += one.seconds
    rows = [ClassRow(work, (n[0], n[1]), (s[0], s[1])) for work, (n, s) in totals.items()]
    return sorted(rows, key=lambda row: -max(row.seconds))
