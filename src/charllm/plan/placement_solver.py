"""The model of plan/placement_model.py as a problem for OR-tools' CP-SAT: the best decision, with a bound.

Seconds and slowness become whole numbers (10 us, 1e-4), rounded down, so that the bound holds for the unrounded model
too; the answer is priced again without rounding. The search stops after a fixed amount of work, not of time: the same
request has the same answer on every machine.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import ceil, floor, inf
from typing import TYPE_CHECKING, Any, NamedTuple

from charllm.errors import MissingExtra
from charllm.plan.cap_shift import CAP_STEP_W, CapTable, best_rate, lower_hull, packages_of
from charllm.plan.placement_model import Decision, Model, model_seconds, present_decision
from charllm.plan.settings import MOST_WORK
from charllm.plan.uneven import LayerTable

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

TICKS_PER_S = 10**5
SLOWNESS_TICKS = 10**4
LINE_TICKS = 10**8
"""Ticks of the lines that bound a slowness from below."""
RATE_TICKS = 10**7
"""Ticks of the reciprocal of a slowness."""
MOST_SLOWNESS = 100 * SLOWNESS_TICKS
LONGEST = 4
"""Decisions that make the step longer than so many times the present one are not looked at."""


class Solution(NamedTuple):
    """What was decided, and how good it can be."""

    decision: Decision
    seconds: float
    """Step time in the model."""
    present_s: float
    """The same for the run as it is."""
    bound_s: float
    """No decision of the space is faster, in the model."""

    @property
    def gap_fraction(self) -> float:
        """How far the decision may be from the best one; infinite where the search ended before it had a bound."""
        return max(0.0, self.seconds / self.bound_s - 1) if self.bound_s > 0 else inf


def solve(model: Model, most_work: float = MOST_WORK) -> Solution:
    """Decide; where nothing is gained in the model, the run stays as it is."""
    present = present_decision(model)
    present_s = model_seconds(model, present)
    tried, bound_s = _Problem(model, present_s).solve(most_work)
    each = [*([tried] if tried else []), *(_apart(model, most_work) if _is_joint(model) else [])]
    timed = [(model_seconds(model, one), one) for one in each]
    seconds, found = min(timed, key=lambda pair: pair[0], default=(present_s, present))
    if seconds >= present_s * (1 - 1e-6):
        found, seconds = present, present_s
    return Solution(found, seconds, present_s, min(bound_s, seconds))


def _is_joint(model: Model) -> bool:
    """Tell whether limits are decided together with slot groups or layers."""
    return model.caps is not None and (model.movable or any(len(table.layers) > 1 for table in model.layers))


def _apart(model: Model, most_work: float) -> list[Decision]:
    """Decide slot groups and layers first, then limits under them: the search over all at once may not come as far."""
    first = solve(model._replace(caps=None), most_work).decision
    tables = [_only(table, layers) for table, layers in zip(model.layers, first.layers, strict=True)]
    degrees = replace(model.run.parallelism, layers_per_stage=first.layers)
    settled = model._replace(
        run=replace(model.run, parallelism=degrees), slot_groups=first.slot_groups, movable=False, layers=tables
    )
    second = _Problem(settled, model_seconds(settled, first)).solve(most_work)[0]
    return [first, second] if second else [first]


def _only(table: LayerTable, layers: int) -> LayerTable:
    """Return one entry of a table."""
    place = table.layers.index(layers)
    return LayerTable((layers,), table.pass_s[place : place + 1], table.tail_s[place : place + 1])


class _Problem:
    """CP-SAT's variables and constraints for one model; an expression is a whole number where nothing is decided."""

    def __init__(self, model: Model, present_s: float) -> None:
        self.model, self.cp = model, _cp_model().CpModel()
        self.run, self.pp = model.run, model.run.parallelism.pp
        self.layer_places: list[Any] = []
        self.cap_steps: list[Any] = []
        self.taken: list[list[Any]] = []
        self.longest = ceil(LONGEST * present_s * TICKS_PER_S * SLOWNESS_TICKS)
        self.longest_unit = self.longest // max(1, model.run.microbatches - 1)
        self.step = self.cp.NewIntVar(0, self.longest, "step")
        self.slowest: list[Any] = []
        self.gpu_slowness: list[Any] = []
        self.group_times: dict[int, tuple[Any, Any]] = {}
        loads, tail = self._loads()
        slot_groups = self._group_slowness()
        if model.movable:
            self._take_slot_groups()
        units = [self._unit_time(loads[unit // model.lines], slot_groups, unit) for unit in range(len(slot_groups))]
        self.cp.Minimize(self._step(units, tail))
        if not all(isinstance(load, int) for load in loads) or (model.movable and model.caps is not None):
            self._bound(loads, tail)

    def solve(self, most_work: float) -> tuple[Decision | None, float]:
        """Return the best decision that was found, and the bound; of equally fast ones, that with the fastest GPUs."""
        solver = self._search(most_work)
        if solver is None:
            return None, 0.0
        found, bound_s = self._read(solver), solver.BestObjectiveBound() / (TICKS_PER_S * SLOWNESS_TICKS)
        if self.cap_steps:
            self._settle(solver)
            solver = self._search(most_work / 2)
            found = self._read(solver) if solver is not None else found
        return found, bound_s

    def _search(self, most_work: float) -> "cp_model.CpSolver | None":
        solver = _cp_model().CpSolver()
        solver.parameters.max_deterministic_time = most_work
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 0
        status = solver.Solve(self.cp)
        return solver if status in (_cp_model().OPTIMAL, _cp_model().FEASIBLE) else None

    def _settle(self, solver: "cp_model.CpSolver") -> None:
        """Keep the step as short as it is, and spend what is left of the budgets on the speed of every GPU."""
        self.cp.ClearHints()
        for place in (*self.layer_places, *self.cap_steps, *(var for row in self.taken for var in row)):
            self.cp.AddHint(place, solver.Value(place))
        self.cp.Add(self.step <= solver.Value(self.step))
        self.cp.Minimize(sum(self.gpu_slowness))

    def _loads(self) -> tuple[list[Any], Any]:
        """Return the load of each stage, and the longest end of one; layers add up to those of the model."""
        chosen, loads, tails, ticks = [], [], [], []
        split = self.run.parallelism.layers_per_stage
        for chunk, (table, own) in enumerate(zip(self.model.layers, split, strict=True)):
            place = self.cp.NewIntVar(0, len(table.layers) - 1, f"layers {chunk}")
            self.cp.AddHint(place, table.layers.index(own))
            self.layer_places.append(place)
            chosen.append(place + table.layers[0])
            role = float(self.model.role[chunk % self.pp])
            ticks.append([floor(role * one * TICKS_PER_S) for one in table.pass_s])
            loads.append(self._element(place, ticks[-1]))
            tails.append(self._element(place, [floor(one * TICKS_PER_S) for one in table.tail_s]))
        self.cp.Add(sum(chosen) == self.run.model.layers)
        if not all(isinstance(load, int) for load in loads):
            self.cp.Add(sum(loads) >= least_load(self.model.layers, ticks, self.run.model.layers))
        return [sum(loads[stage :: self.pp]) for stage in range(self.pp)], self._maximum(tails, self.longest)

    def _group_slowness(self) -> list[Any]:
        """Return the slowness of each slot group: that of its slowest GPU, at the limits of its packages."""
        self.gpu_slowness = self._gpu_slowness()
        return [
            self._maximum([self.gpu_slowness[gpu] for gpu in group.gpus], MOST_SLOWNESS)
            for group in self.model.slot_groups
        ]

    def _gpu_slowness(self) -> list[Any]:
        caps, size = self.model.caps, self.run.cluster.gpu.package_gpus
        if caps is None:
            return [floor(one * SLOWNESS_TICKS) for one in self.model.slowness.tolist()]
        self._share_budget(caps)
        highest = ceil(SLOWNESS_TICKS * float(caps.slowness.max()))
        found = [self.cp.NewIntVar(0, highest, f"slowness {gpu}") for gpu in range(self.run.cluster.gpus)]
        for gpu, own in enumerate(found):
            for slope, intercept in lower_hull(caps.caps_w, caps.slowness[:, gpu]):
                line = floor(LINE_TICKS * slope * CAP_STEP_W) * self.cap_steps[gpu // size]
                self.cp.Add(LINE_TICKS // SLOWNESS_TICKS * own >= line + floor(LINE_TICKS * intercept))
        return found

    def _share_budget(self, caps: CapTable) -> None:
        """Give every package a limit, in steps; those of a node stay within its budget."""
        packages = packages_of(self.run)
        low, high = (round(float(caps.caps_w[end]) / CAP_STEP_W) for end in (0, -1))
        steps = floor(caps.budget_w / CAP_STEP_W)
        for node in range(self.run.cluster.nodes):
            own = [self.cp.NewIntVar(low, high, f"node {node} limit {one}") for one in range(packages)]
            for one in own:
                self.cp.AddHint(one, min(high, max(low, steps // packages)))
            self.cp.Add(sum(own) <= steps)
            self.cap_steps += own

    def _take_slot_groups(self) -> None:
        """Let every unit take one slot group; units of a stage that share a node stay on one, with its fast links."""
        slot_groups, count = self.model.slot_groups, len(self.model.slot_groups)
        self.taken = [[self.cp.NewBoolVar(f"unit {unit} group {one}") for one in range(count)] for unit in range(count)]
        for one in range(count):
            self.cp.AddExactlyOne(self.taken[one])
            self.cp.AddExactlyOne(row[one] for row in self.taken)
        free = {node: [place for place, group in enumerate(slot_groups) if group.node == node] for node in range(count)}
        for stage, row in enumerate(self.model.units.node.tolist()):
            first: dict[int, int] = {}
            for line, node in enumerate(row):
                unit = stage * self.model.lines + line
                hint = free[node].pop(0)
                for place, var in enumerate(self.taken[unit]):
                    self.cp.AddHint(var, int(place == hint))
                if first.setdefault(node, unit) != unit:
                    self.cp.Add(self._node(unit) == self._node(first[node]))

    def _node(self, unit: int) -> Any:
        return sum(group.node * var for group, var in zip(self.model.slot_groups, self.taken[unit], strict=True))

    def _unit_time(self, load: Any, slot_groups: list[Any], unit: int) -> Any:
        """Return the ticks of a unit's passes: its load times the slowness of the slot group it takes."""
        if not self.taken:
            return self._product(load, slot_groups[unit])
        if isinstance(load, int) and isinstance(slot_groups[0], int):
            return load * sum(slow * var for slow, var in zip(slot_groups, self.taken[unit], strict=True))
        found = self.cp.NewIntVar(0, self.longest_unit, "")
        for place, var in enumerate(self.taken[unit]):
            self.cp.Add(found >= self._group_time(load, slot_groups, place, var)).OnlyEnforceIf(var)
        return found

    def _group_time(self, load: Any, slot_groups: list[Any], place: int, taken: Any) -> Any:
        """Return the ticks of a load on a slot group that a unit takes; of two unknowns, one product for each group."""
        if isinstance(load, int) or isinstance(slot_groups[place], int):
            return load * slot_groups[place]
        if place not in self.group_times:
            own = self.cp.NewIntVar(0, self.longest_unit, f"load of slot group {place}")
            self.group_times[place] = own, self._product(own, slot_groups[place])
        self.cp.Add(self.group_times[place][0] == load).OnlyEnforceIf(taken)
        return self.group_times[place][1]

    def _product(self, load: Any, slow: Any) -> Any:
        """Return a product; only that of two unknowns needs a variable."""
        if isinstance(load, int) or isinstance(slow, int):
            return load * slow
        found = self.cp.NewIntVar(0, self.longest_unit, "")
        self.cp.AddMultiplicationEquality(found, [load, slow])
        return found

    def _bound(self, loads: list[Any], tail: Any) -> None:
        """Say what follows from the rest, but helps where layers move: all slot groups together work only so fast.

        Equation: sum over units of t / slowness = lines x sum of loads, so that the slowest unit of all takes at least
        that over sum 1 / slowness and its sends, and the step at least a fill of the fastest slot groups and the rest
        at this pace. Where limits move, that sum is at most what the budgets of nodes allow.
        """
        slowest = self.cp.NewIntVar(0, self.longest_unit, "slowest")
        self.cp.AddMaxEquality(slowest, self.slowest)
        own = self.model.slowness if self.model.caps is None else self.model.caps.slowness[-1]
        fastest = [max(1, floor(SLOWNESS_TICKS * max(own[list(group.gpus)]))) for group in self.model.slot_groups]
        rate = ceil(min(sum(RATE_TICKS / one for one in fastest), RATE_TICKS / SLOWNESS_TICKS * self._budget_rate()))
        lines, vpp, hop = self.model.lines, self.run.parallelism.vpp, self._shortest_hop()
        # Every unit waits for the hops of its stage: two, or one at the ends, which the fastest slot groups may hold.
        held, ends = (2, sorted(fastest)[: 2 * lines]) if self.pp > 2 else (min(1, self.pp - 1), [])
        held *= self.model.blocking
        at_ends = ceil(sum(RATE_TICKS / one for one in ends)) * hop * self.model.blocking
        self.cp.Add(rate * (slowest - held * hop) + at_ends >= lines * RATE_TICKS * sum(loads))
        filled = min(fastest) * sum(loads) + vpp * SLOWNESS_TICKS * tail
        filled += 2 * (self.pp - 1) * hop * (1 if self.model.blocking else vpp)
        self.cp.Add(vpp * self.step >= filled + vpp * (self.run.microbatches - 1) * slowest)

    def _shortest_hop(self) -> int:
        """Return the ticks of the shortest send; all leave their node where the units of a stage fill whole nodes."""
        sharing = min(Counter(row).most_common()[-1][1] for row in self.model.units.node.tolist())
        fills = sharing == max(Counter(group.node for group in self.model.slot_groups).values())
        seconds = self.model.outside_s if fills else min(self.model.inside_s, self.model.outside_s)
        return floor(seconds * TICKS_PER_S * SLOWNESS_TICKS)

    def _budget_rate(self) -> float:
        """Return the highest sum of 1 / slowness of all slot groups that the budgets of nodes allow."""
        if self.model.caps is None:
            return inf
        caps, size = self.model.caps, self.run.cluster.gpu.package_gpus
        groups: dict[int, list[tuple[int, ...]]] = {}
        for group in self.model.slot_groups:
            groups.setdefault(group.node, []).append(group.gpus)
        return sum(best_rate(caps, own, size) for own in groups.values())

    def _step(self, units: list[Any], tail: Any) -> Any:
        """Return the step's ticks: the longest line, and the longest end of a stage."""
        lines, vpp, hops = self.model.lines, self.run.parallelism.vpp, self._hops()
        for line in range(lines):
            times = [units[stage * lines + line] for stage in range(self.pp)]
            fill = [2 * row[line] for row in hops]
            if self.model.blocking:
                for stage, row in enumerate(hops):
                    times[stage] += row[line]
                    times[stage + 1] += row[line]
                fill = []
            slowest = self.cp.NewIntVar(0, self.longest_unit, "")
            self.slowest.append(slowest)
            for one in times:
                self.cp.Add(slowest >= one)
            more = vpp * (self.run.microbatches - 1)
            self.cp.Add(vpp * self.step >= vpp * sum(fill) + sum(times) + more * slowest + vpp * SLOWNESS_TICKS * tail)
        return self.step

    def _hops(self) -> list[list[Any]]:
        """Return the ticks of the send from each stage to the next, on each line."""
        sends = (self.model.inside_s, self.model.outside_s)
        inside, outside = (floor(one * TICKS_PER_S * SLOWNESS_TICKS) for one in sends)
        lines = range(self.model.lines)
        return [
            [inside + (outside - inside) * self._crosses(stage * self.model.lines + line) for line in lines]
            for stage in range(self.pp - 1)
        ]

    def _crosses(self, unit: int) -> Any:
        """Tell whether a unit and that of the next stage are on different nodes."""
        slot_groups, after = self.model.slot_groups, unit + self.model.lines
        if not self.taken:
            return int(slot_groups[unit].node != slot_groups[after].node)
        found = self.cp.NewBoolVar("")
        for node in range(self.run.cluster.nodes):
            here, there = (
                sum(var for group, var in zip(slot_groups, self.taken[one], strict=True) if group.node == node)
                for one in (unit, after)
            )
            self.cp.Add(found >= here - there)
        return found

    def _element(self, place: Any, values: list[int]) -> Any:
        if len(set(values)) == 1:
            return values[0]
        found = self.cp.NewIntVar(min(values), max(values), "")
        self.cp.AddElement(place, values, found)
        return found

    def _maximum(self, values: list[Any], highest: int) -> Any:
        """Return what is at least as large as all values; the step is minimised, so that it is no larger."""
        if all(isinstance(one, int) for one in values):
            return max(values)
        found = self.cp.NewIntVar(0, highest, "")
        for one in values:
            self.cp.Add(found >= one)
        return found

    def _read(self, solver: "cp_model.CpSolver") -> Decision:
        model, slot_groups = self.model, self.model.slot_groups
        if self.taken:
            rows = [[solver.Value(var) for var in row] for row in self.taken]
            slot_groups = tuple(model.slot_groups[row.index(1)] for row in rows)
        layers = tuple(
            table.layers[solver.Value(place)] for table, place in zip(model.layers, self.layer_places, strict=True)
        )
        if model.caps is None:
            return Decision(slot_groups, layers)
        size = self.run.cluster.gpu.package_gpus
        caps_w = [float(CAP_STEP_W * solver.Value(one)) for one in self.cap_steps for _ in range(size)]
        return Decision(slot_groups, layers, tuple(caps_w))


def least_load(tables: Sequence[LayerTable], ticks: Sequence[Sequence[int]], layers: int) -> int:
    """Return the least sum of the loads of chunks that hold some layers together: a shortest path, chunk by chunk."""
    least = {0: 0}
    for table, own in zip(tables, ticks, strict=True):
        found: dict[int, int] = {}
        for held, load in least.items():
            for more, tick in zip(table.layers, own, strict=True):
                if held + more <= layers:
                    found[held + more] = min(load + tick, found.get(held + more, load + tick))
        least = found
    return least[layers]


def _cp_model() -> Any:
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        raise MissingExtra("placement needs OR-tools", "plan") from None
    return cp_model
