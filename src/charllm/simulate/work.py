"""How long a run takes to simulate, told before it is: work that would take too long is refused with the estimate."""

import math
from typing import NamedTuple

import numpy as np

from charllm.errors import SpecError, Words
from charllm.simulate.slices import SLICE_S
from charllm.simulate.steady import Machine, repeats_of
from charllm.spec.run import RunSpec
from charllm.spec.schedules import SCHEDULES
from charllm.timeline.costs import cost_step, read_step
from charllm.timeline.passes import chunk_passes
from charllm.units import format_bytes
from charllm.workload.step import Step

LONGEST_S = 18.0
"""Estimated seconds beyond which a run is refused; `--allow-long` lifts it."""
GPU_S, GPU_BYTES = 60e-6, 6000.0
"""Measured on one core of 2.5 GHz: to place, describe and print one GPU."""
PASS_S, PASS_BYTES = 20e-6, 1200.0
"""The same to order one pass of a step and to record it."""
CUT_S = 15e-6
"""The same to cut one slice of work off a pass."""
SIMULATED_SLICE_S = 0.09e-6
"""The same to simulate one slice of work on one GPU, or to close one box of its power: 0.065 to 0.082 us, from 16,384
GPUs to 32 (benchmarks/loop_speed.py prints the estimates)."""
ROUNDS = 3
"""How often a step is simulated until it repeats: 3 times in 149 of 180 runs that were counted, 5 at most."""


class TooLong(SpecError):
    """The run is a valid one that takes too long to simulate."""


class Work(NamedTuple):
    """What a run takes to simulate."""

    seconds: float
    memory_bytes: float
    field: str
    """The setting it grows with."""
    size: str
    """How much of it was asked for, in words."""


def passes_of(run: RunSpec) -> int:
    """Count the passes of a step over all stages."""
    schedule = SCHEDULES[run.parallelism.schedule]
    kinds = 3 if schedule.puts_off_weights else 2 if schedule.trains else 1
    return kinds * run.parallelism.pp * run.parallelism.vpp * run.microbatches


def slices_of(machine: Machine) -> float:
    """Count what a round computes one by one: slices of work and boxes of power, on every simulated GPU."""
    slices, gpus = machine.slices, len(machine.gpus)
    spans = slices.spans
    of_span = np.append(0, np.cumsum((spans[:, 1] - spans[:, 0]) * spans[:, 2]))
    of_pass = of_span[slices.first[1:]] - of_span[slices.first[:-1]]
    on_a_gpu = of_pass[machine.turns[:, 1]].sum() / machine.run.parallelism.pp
    boxes = machine.open_s / machine.board.tick_s
    return float(repeats_of(machine) * gpus * (on_a_gpu + boxes + len(machine.turns) / machine.run.parallelism.pp))


def check_size(run: RunSpec, longest_s: float) -> None:
    """Refuse a cluster with more GPUs than can be described."""
    gpus = run.cluster.gpus
    _check(Work(GPU_S * gpus, GPU_BYTES * gpus, "cluster.nodes", f"{gpus:,} GPUs"), longest_s)


def check_passes(run: RunSpec, longest_s: float) -> None:
    """Refuse a step with more passes than can be ordered."""
    count = passes_of(run)
    field = (
        "parallelism.pp"
        if run.parallelism.pp * run.parallelism.vpp > run.microbatches
        else "training.global_batch_size"
    )
    _check(Work(PASS_S * count, PASS_BYTES * count, field, f"{count:,} passes in a step"), longest_s)


def check_length(step: Step, longest_s: float) -> None:
    """Refuse passes that are too long to be cut into slices, which is half of the work at most."""
    costs = cost_step(step, read_step(step), step.run.cluster.gpu.clock_max_hz)
    seconds = sum(part.seconds for one in chunk_passes(step, costs) for part in one)
    size = f"{seconds:,.3g} s of passes"
    _check(Work(CUT_S * seconds / SLICE_S, 0.0, "step time", size), longest_s / 2)


def estimate_rounds_s(machine: Machine, rounds: int = ROUNDS) -> float:
    """Return about how many seconds it takes to simulate a step so many times."""
    return rounds * SIMULATED_SLICE_S * slices_of(machine)


def check_rounds(machine: Machine, longest_s: float) -> None:
    """Refuse a step that takes too long to simulate at its length and on its GPUs."""
    size = f"{machine.open_s:,.3g} s, simulated on {len(machine.gpus):,} GPUs"
    _check(Work(estimate_rounds_s(machine), 0.0, "step time", size), longest_s)


def _check(work: Work, longest_s: float) -> None:
    if work.seconds > longest_s:
        needs = f"about {_duration(work.seconds)}"
        if work.memory_bytes > 2**30:
            needs += f" and {format_bytes(work.memory_bytes)}"
        possible = f"a run that takes at most {_duration(longest_s)} to simulate, not {needs} (or --allow-long)"
        raise TooLong(work.field, Words(work.size), possible)


def _duration(seconds: float) -> str:
    for unit, length_s in (("days", 86_400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:,.0f} {unit}" if math.isfinite(seconds) else "forever"
    return f"{seconds:.0f} s"
