"""What to do about a finding: repair, drain, move its rank, cap the others; with what each gains where it is known."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from charllm.analysis.doctor.cost import Cost, show_run, step_time
from charllm.analysis.doctor.diagnose import Finding
from charllm.analysis.doctor.observation import Observation
from charllm.layout.grid import Grid
from charllm.layout.placement import place_ranks
from charllm.spec.run import Conditions, RunSpec
from charllm.units import MEGA

LEAST_GAIN_FRACTION = 0.005
MOST_MOVES = 4
"""Stages that a rank is tried on."""
NEAR_FRACTION = 0.005
"""A cap that costs less time than this is free."""
CAP_FACTORS = (1.0, 1.03, 1.06, 1.1)
"""Caps to try, over the mean clock of the slow GPU: it works below that, and waits above."""


class Remedy(NamedTuple):
    """One thing to do."""

    action: str
    gain_fraction: float
    """Tokens a second over those of the run as it is, less one."""
    saves_w: float | None = None
    """Mean power of a GPU that it saves; None where it saves none."""


CHECKS = {
    ("gpu", "silicon"): "replace {it}, or use it for a job that does not wait for it",
    (
        "gpu",
        "cooling",
    ): "check the heat sink, paste and airflow of {it}, which is hot at the power of the others; if it "
    "stays as slow in a cool slot, or at their temperature, it is the silicon",
    ("node", "cooling"): "check the inlet temperature, fans and blanking panels of {it}; if its GPUs stay as slow when "
    "they are as cool as others, it is the silicon",
    ("gpu", "power limit"): "raise the power limit of {it} to that of the others (nvidia-smi -i {slot} -pl WATTS)",
    ("gpu", "clock limit"): "check the clock settings and board limits of {it} (nvidia-smi -q -d CLOCK,PERFORMANCE)",
    ("gpu", "power brake"): "check the power supply and the brake signal of {it}",
    ("gpu", "thermal"): "check the heat sink, fan and airflow of {it}",
    ("node", "silicon"): "drain {it}",
    ("node", "power limit"): "raise the power limits of {it} to those of the other nodes",
    ("node", "clock limit"): "check the clock settings of {it}",
    ("node", "power brake"): "check the power supplies of {it}",
    ("node", "thermal"): "check the inlet temperature, fans and blanking panels of {it}",
    ("host", "host"): "check CPU frequency governor, core binding and other processes on {it}",
    ("link", "network"): "check cable, transceiver, port rate and PCIe width of the network adapters of {it}",
}
"""What is weak, and why: the first thing to look at."""


def propose(seen: Observation, finding: Finding, cost: Cost) -> list[Remedy]:
    """List what to do about a finding, what removes its cause first."""
    it = seen.name(finding.gpus[0]) if finding.kind == "gpu" else seen.node_name(finding.node)
    check = CHECKS.get((finding.kind, finding.cause), "look at {it}")
    repaired = cost.fraction / (1 - cost.fraction)
    found = [Remedy(check.format(it=it, slot=int(seen.slot[finding.gpus[0]])), repaired)]
    nodes = len(seen.node_names)
    if nodes > 1:
        found.append(
            Remedy(
                f"drain {seen.node_name(finding.node)} and run on {nodes - 1} nodes",
                (1 + repaired) * (nodes - 1) / nodes - 1,
            )
        )
    if seen.run is not None and cost.conditions is not None and finding.kind == "gpu":
        found += [*_move(seen.run, finding, cost.conditions), *_cap(seen, seen.run, finding, cost.conditions)]
    return found


def _move(run: RunSpec, finding: Finding, conditions: Conditions) -> list[Remedy]:
    """Try the rank of a slow GPU on other stages: one that waits anyway may not notice."""
    now_s = step_time(run, conditions)
    if run.parallelism.pp == 1 or now_s is None:
        return []
    gpu, placed = finding.gpus[0], place_ranks(run)
    rank = int(np.flatnonzero(placed == gpu)[0])
    grid = Grid(run.parallelism)
    position, own = int(grid.position(rank)), int(grid.stage(rank))
    stages = [stage for stage in range(run.parallelism.pp) if stage != own]
    best: tuple[float, int] | None = None
    for stage in stages[:: max(1, len(stages) // MOST_MOVES)]:
        other = int(grid.rank(position, stage))
        swapped = placed.copy()
        swapped[[rank, other]] = placed[[other, rank]]
        then_s = step_time(run, replace(conditions, gpu_of_rank=tuple(swapped.tolist())))
        if then_s is not None and (best is None or now_s / then_s - 1 > best[0]):
            best = (now_s / then_s - 1, stage)
    if best is None or best[0] < LEAST_GAIN_FRACTION:
        return []
    return [Remedy(f"swap rank {rank} with one of stage {best[1]}", best[0])]


def _cap(seen: Observation, run: RunSpec, finding: Finding, conditions: Conditions) -> list[Remedy]:
    """Cap the clock of all GPUs near what the slow one reaches: the others only wait for it."""
    clock = seen.mean("clock_hz")
    before = show_run(run, conditions)
    if clock is None or before is None:
        return []
    highest_hz = run.cluster.gpu.clock_max_hz
    for factor in CAP_FACTORS:
        cap_hz = max(run.cluster.gpu.clock_idle_hz, factor * float(clock[finding.gpus[0]]))
        after = (
            show_run(run, replace(conditions, clock_cap_hz=min(cap_hz, highest_hz))) if cap_hz < highest_hz else None
        )
        if after is None:
            break
        gain = before.step_time_s / after.step_time_s - 1
        saves_w = float(np.mean(before.gpus["power_w"]) - np.mean(after.gpus["power_w"]))
        if gain >= -NEAR_FRACTION and saves_w > 0:
            told = f"until then cap all clocks at {cap_hz / MEGA:.0f} MHz: the others wait anyway"
            return [Remedy(told, gain, saves_w)]
    return []
