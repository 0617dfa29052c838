"""Laws that every prediction obeys: a run is simulated, changed in one way, and simulated again.

A law that is broken says by how much, and prints both runs as command lines.
"""

import json
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from random import Random
from typing import Any, NamedTuple

import numpy as np

from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.gpu.formats import matrix_flop_per_cycle
from charllm.gpu.heat import check_cooling
from charllm.gpu.kernels import time_kernels
from charllm.gpu.shape import KernelShape
from charllm.result.result import RunResult, to_json
from charllm.simulate.predict import simulate
from charllm.simulate.work import TooLong
from charllm.spec.hardware import Gpu
from charllm.spec.request import merge
from charllm.spec.run import RunSpec
from charllm.timeline.costs import read_step
from charllm.workload.memory import rank_memories
from charllm.workload.step import build_step
from tests.random_specs.inputs import as_settings, draw_valid_request

TOLERANCE = 1e-3
HELD_TIMES, HELD = 0.01, 0.05
"""From which share of time on a clock counts as held. Where heat holds one, a change for the worse may make a run
faster: GPUs that are slowed give less heat to those that they wait for (the other die of a package, slots behind in the
air), by 11 % in a hall at 80 C. Where power holds one, a lower clock may, by a twentieth at most: it leaves more of the
mean over a second, which the governor holds, to the phases that follow."""
GOVERNED_K = 0.5
"""How far apart peaks may lie that the governor keeps at the limit: which of its ticks come first differs."""
HOTTEST_INLET_C = 80.0
SHORTEST_S = 10.0
"""A shorter run from cold is some ticks of the governor, each of which meets the step elsewhere."""
MOST_DOUBLED = 2.05
LEAST_MICROBATCHES = 21
"""Time of a step with twice the batch over that with the batch, and from how many microbatches on that holds: the first
one finds no gradients to add to, and (2 x 21 - 1) / (21 - 1) = 2.05 where the others do nothing else."""
RECOMPUTED = ("none", "selective", "full")
Table = dict[str, Any]


class Break(NamedTuple):
    """A law that is broken."""

    law: str
    excess_fraction: float
    """By how much it is."""
    commands: str
    """The run, and the run after the change."""

    def __str__(self) -> str:
        return f"{self.law}, by {100 * self.excess_fraction:.3f} %:\n{self.commands}"


@dataclass(frozen=True)
class Case:
    """A run, drawn from a number."""

    request: Table

    @cached_property
    def run(self) -> RunSpec:
        """The run as it was drawn."""
        return resolve_run(self.request)

    @cached_property
    def result(self) -> RunResult:
        """What is predicted of it."""
        return simulate(self.run, ignore_memory=True)

    def changed(self, *changes: tuple[str, Any]) -> "Case":
        """Return the same run with other fields."""
        request = self.request
        for path, value in changes:
            request = merge(request, _nest(path, value))
        return Case(request)

    def __getitem__(self, metric: str) -> float:
        return float(self.result.metrics[metric])

    def is_held(self, cause: str) -> bool:
        """Whether a clock is held at times by power or thermal limits."""
        shares: dict[str, float] = self.result.metrics["throttled_time_fraction"] or {}
        return shares.get(cause, 0.0) > HELD_TIMES

    @property
    def command(self) -> str:
        """What predicts it on the command line."""
        return shlex.join(("charllm", "simulate", "--ignore-memory", *as_settings(self.request)))


def _nest(path: str, value: Any) -> Table:
    for key in reversed(path.split(".")):
        value = {key: value}
    return dict(value)


def draw_case(seed: int, number: int) -> Case:
    """Draw a run that can be simulated; the same for the same numbers."""
    random = Random(f"{seed}/law/{number}")
    while True:
        case = Case(draw_valid_request(random))
        if (case.run.conditions.seconds_s or SHORTEST_S) < SHORTEST_S:
            continue
        try:
            _ = case.result
        except SpecError:
            continue
        return case


def check_case(case: Case, random: Random) -> Iterator[Break]:
    """Try every law on a run."""
    for law in LAWS:
        for name, excess, other in law(case, random):
            if excess > TOLERANCE:
                yield Break(name, excess, f"  {case.command}\n  {other.command}")


Found = Iterator[tuple[str, float, Case]]
"""What is said of a run and a changed one, by how much it is not so, and the changed run."""


def _never_more(
    said: str, metric: str, small: Case, large: Case, other: Case, aside: float = 0.0
) -> tuple[str, float, Case]:
    excess = small[metric] / large[metric] - 1 - aside if large[metric] > 0 else 0.0
    by_heat = metric == "step_time_s" and (small.is_held("thermal") or large.is_held("thermal"))
    return said, 0.0 if by_heat else excess, other


def lower_cap(case: Case, random: Random) -> Found:
    """A lower power cap is never faster and never draws more."""
    run, gpu = case.run, case.run.cluster.gpu
    now_w = run.conditions.power_cap_w or gpu.power_cap_w
    least_w = max(gpu.power_cap_min_w, 1.05 * gpu.idle_draw_w, 10.0)
    own_w = run.conditions.capped_power_w
    if now_w > least_w:
        lower_w = least_w + random.random() * (now_w - least_w)
        # GPUs with a cap of their own would be cooled by neighbours that draw less, and be faster.
        capped_w = [
            max(least_w, each * lower_w / now_w) for each in (own_w if isinstance(own_w, tuple) else (own_w,)) if each
        ]
        lower = case.changed(
            ("conditions.power_cap_w", lower_w), *([("conditions.capped_power_w", capped_w[0])] if capped_w else [])
        )
        yield _never_more("a lower power cap makes a run faster", "step_time_s", case, lower, lower)
        yield _never_more("a lower power cap raises mean power", "power_mean_w", lower, case, lower)


def lower_clock(case: Case, random: Random) -> Found:
    """A lower clock cap is never faster and never draws more."""
    run, gpu = case.run, case.run.cluster.gpu
    now_hz = run.conditions.clock_cap_hz or gpu.clock_max_hz
    least_hz = max(gpu.clock_idle_hz, 0.3 * gpu.clock_max_hz, run.conditions.brake_clock_hz or 0.0)
    if now_hz > least_hz:
        hertz = least_hz + random.random() * (now_hz - least_hz)
        lower = case.changed(("conditions.clock_cap_hz", hertz))
        aside = HELD if case.is_held("power") else 0.0
        yield _never_more("a lower clock cap makes a run faster", "step_time_s", case, lower, lower, aside)
        yield _never_more("a lower clock cap raises mean power", "power_mean_w", lower, case, lower)


def hotter_inlet(case: Case, random: Random) -> Found:
    """Hotter air or coolant never makes GPUs cooler nor a run faster."""
    inlet_c = case.run.cluster.cooling.warmest_c
    if inlet_c >= HOTTEST_INLET_C:
        return
    hotter = case.changed(("cluster.cooling.inlet_c", min(HOTTEST_INLET_C, inlet_c + random.uniform(1, 15))))
    try:
        check_cooling(hotter.run.cluster)
    except SpecError:
        return
    yield _never_more("a hotter inlet makes a run faster", "step_time_s", case, hotter, hotter)
    for metric in ("temperature_mean_c", "temperature_peak_c"):
        colder_k = case[metric] - hotter[metric] - (GOVERNED_K if hotter.is_held("thermal") else 0.0)
        yield f"a hotter inlet lowers {metric}", colder_k / max(50.0, abs(case[metric])), hotter


LINKS = ("cluster.node.link_bandwidth_bytes_per_s", "cluster.node.package_bandwidth_bytes_per_s",
         "cluster.node.pcie_bandwidth_bytes_per_s", "cluster.fabric.nic_bandwidth_bytes_per_s")  # fmt: skip


def faster_links(case: Case, random: Random) -> Found:
    """More bandwidth of any link never makes a run slower."""
    cluster = case.run.cluster
    now = {path: getattr(getattr(cluster, path.split(".")[1]), path.split(".")[2]) for path in LINKS}
    path = random.choice([path for path in LINKS if now[path] and (cluster.nodes > 1 or "fabric" not in path)])
    faster = case.changed((path, random.choice((1.1, 2.0, 4.0)) * now[path]))
    yield _never_more(f"a higher {path.split('.')[2]} makes a run slower", "step_time_s", faster, case, faster)


def twice_the_batch(case: Case, _random: Random) -> Found:
    """Twice the batch takes between once and 2.05 times as long, from as many microbatches as add up gradients."""
    batch, microbatches = case.run.training.global_batch_size, case.run.microbatches
    batch *= ceil(LEAST_MICROBATCHES / microbatches)
    once, double = (case.changed(("training.global_batch_size", size)) for size in (batch, 2 * batch))
    once = case if once.request == case.request else once
    try:
        yield _never_more("twice the batch takes less time", "step_time_s", once, double, double)
    except TooLong:
        return
    ratio = double["step_time_s"] / once["step_time_s"]
    yield f"twice the batch of {batch} takes more than {MOST_DOUBLED} times", ratio / MOST_DOUBLED - 1, double


def more_recomputation(case: Case, _random: Random) -> Found:
    """More recomputation never needs more memory, one layer's inputs aside.

    Of every layer where a policy keeps the output of its last product, which no gradient needs (torchtitan's).
    """
    cases = [case.changed(("training.recompute", kind)) for kind in RECOMPUTED]
    needs = [rank_memories(build_step(one.run)) for one in cases]
    for place, less in enumerate(needs):
        for more, other in zip(needs[place + 1 :], cases[place + 1 :], strict=True):
            for before, after in zip(less, more, strict=True):
                aside = layer_input_bytes(other.run) * (other.run.model.layers if keeps_outputs(other.run) else 1)
                excess = (after.allocated_bytes - aside) / before.allocated_bytes - 1
                name = f"recompute {other.run.training.recompute} needs more memory than {RECOMPUTED[place]}"
                yield name, excess, other


def keeps_outputs(run: RunSpec) -> bool:
    """Tell whether a run keeps outputs of products rather than what gradients need."""
    return run.training.recompute == "selective" and run.framework.selective == "alternate_matmuls"


def layer_input_bytes(run: RunSpec) -> float:
    """Return the bytes of the inputs of one layer for one microbatch."""
    training, degrees = run.training, run.parallelism
    tokens = training.micro_batch_size * training.seq_length / degrees.cp / (degrees.tp if degrees.sp else 1)
    wide = training.precision == "fp32" or run.framework.autocast
    return tokens * run.model.hidden * (4 if wide else 2)


def energy_and_breakdown(case: Case, _random: Random) -> Found:
    """Energy is power x time, and the parts of a step add up to it."""
    metrics, world = case.result.metrics, case.run.parallelism.world
    energy_j = case["power_mean_w"] * case["step_time_s"] * world
    yield "energy is not power x time", abs(case["energy_per_step_j"] / energy_j - 1), case
    yield "the breakdown does not add up", abs(sum(metrics["breakdown_s"].values()) / case["step_time_s"] - 1), case
    yield "a part of the breakdown is negative", -min(metrics["breakdown_s"].values()) / case["step_time_s"], case


def repeated(case: Case, _random: Random) -> Found:
    """A run that is stored and repeated from its table gives the same bits."""
    stored = json.loads(to_json(case.result))
    again = Case(stored["spec"])
    same = json.loads(to_json(again.result))
    for part in ("spec", "metrics", "gpus", "nodes"):
        yield f"a repeated run has other {part}", float(stored[part] != same[part]), again


def permuted_nodes(case: Case, random: Random) -> Found:
    """Nodes that are equal may change places."""
    run = case.run
    cluster, conditions = run.cluster, run.conditions
    alone = conditions.has_faults or conditions.silicon_spread_fraction or conditions.weak_gpus
    if cluster.nodes == 1 or alone or conditions.braked_nodes or conditions.gpu_of_rank:
        return
    if 0 < cluster.fabric.nodes_per_pod < cluster.nodes:
        return
    gpus = np.arange(cluster.gpus).reshape(cluster.nodes, -1)
    order = random.sample(range(cluster.nodes), cluster.nodes)
    other = case.changed(("conditions.gpu_of_rank", gpus[order].ravel().tolist()))
    for metric in ("step_time_s", "power_mean_w", "temperature_peak_c"):
        change = abs(other[metric] - case[metric]) / max(1e-9, abs(case[metric]))
        yield f"{metric} changes when equal nodes change places", change, other


IDEAL: Table = {
    "gap_s": 0.0, "queued_gap_s": 0.0, "stream_gap_s": 0.0, "split_s": 0.0, "grouped_s": 0.0, "launch_s": 0.0,
    "ramp": 0.0, "grouped_ramp": 0.0, "attention_ramp": 0.0, "attention_backward_ramp": 0.0, "tile_ramp": 0.0,
    "wave_fraction": 0.0, "matrix_fraction": 1.0, "fp8_fraction": 1.0, "fp4_fraction": 1.0, "grouped_fraction": 1.0,
    "memory_fraction": 1.0, "grouped_memory_fraction": 1.0, "attention_fraction": 1.0,
    "attention_backward_fraction": 1.0, "flash2_fraction": 1.0, "flash2_backward_fraction": 1.0,
}  # fmt: skip
"""Constants of kernels that lose nothing."""


def below_the_peak(case: Case, random: Random) -> Found:
    """No kernel runs faster than the GPU's peak, whatever latencies and shares it is given."""
    names = random.sample(sorted(IDEAL), random.randint(1, len(IDEAL)))
    ideal = case.changed(*((f"cluster.node.gpu.kernels.{name}", IDEAL[name]) for name in names))
    for one in (case, ideal):
        gpu = one.run.cluster.gpu
        shapes = read_step(build_step(one.run)).shapes
        times = time_kernels(shapes, gpu, np.full(len(shapes.flop), gpu.clock_max_hz))
        for shape, flop, seconds in zip(shapes.kinds, shapes.flop, times.running_s, strict=True):
            yield f"{shape.label} runs faster than the peak", flop / seconds / peak_flop_per_s(gpu, shape) - 1, one


def peak_flop_per_s(gpu: Gpu, shape: KernelShape) -> float:
    """Return what a GPU's units can do in a format at its highest clock; a datasheet may name a lower clock."""
    units = matrix_flop_per_cycle(gpu) * gpu.multiprocessors * gpu.clock_max_hz / gpu.peak_16bit_flop_per_s
    if shape.precision == "fp32":
        return gpu.peak_fp32_flop_per_s
    named = gpu.peak_16bit_flop_per_s / 2 if shape.precision == "tf32" else gpu.peak_flop_per_s(shape.precision)
    return max(1.0, units) * (named or gpu.peak_16bit_flop_per_s)


LAWS: tuple[Callable[[Case, Random], Found], ...] = (
    lower_cap,
    lower_clock,
    hotter_inlet,
    faster_links,
    twice_the_batch,
    more_recomputation,
    energy_and_breakdown,
    repeated,
    permuted_nodes,
    below_the_peak,
)
