"""Time, energy and money of a whole run: warm-up from cold, checkpoints, failures and restarts.

Equations: W = tokens / tokens a second is useful time, cut into n = W / t pieces that each end in a checkpoint of c
seconds. Failures are a Poisson process of rate l = gpus x failures per GPU and second; a failure costs the work since
the last checkpoint (half an interval on average) and a restart of r seconds, which may fail too. Then

    working time      n (e^(l (t + c)) - 1) / l          useful, checkpoints, and work that is lost
    restarting time   n (e^(l (t + c)) - 1) (e^(l r) - 1) / l
    best interval     t = sqrt(2 c m) (1 + sqrt(c / 2m) / 3 + c / 18m) - c, m = 1 / l (m where c >= 2 m)

Energy: power of the step while working, of idle GPUs in checkpoints and restarts; each start from cold GPUs adds the
warm-up's difference in time and energy (`warm_up`).
Source: J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", 2006 (the first
term: J. W. Young, 1974). Failures: 419 unexpected interruptions in 54 days on 16,384 H100 (Llama 3, arXiv:2407.21783,
section 3.3.4). Bandwidth: its storage sustains 2 TB/s for 2,048 nodes (section 3.3.1).
Ignores: spare nodes, failures that come together, evaluation, checkpoints that overlap with training unless
`checkpoint_stall_fraction` says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import expm1, inf, sqrt
from typing import Any, NamedTuple

from charllm.plan.facility import gpus_and_node_w, mean_node_power_w, wall_power_w
from charllm.plan.money import Tariff, energy_money
from charllm.simulate.predict import predict
from charllm.spec.fields import check_fields, number
from charllm.spec.run import RunSpec
from charllm.units import DAY_S, GIGA, HOUR_S
from charllm.workload.parameters import count_parameters

LLAMA3_FAILURES_PER_GPU_DAY = 419 / (54 * 16_384)
STATE_BYTES = 14
"""Derived: 2 of a 16-bit weight, 4 of its fp32 copy and 8 of two moments, for each parameter."""
WARM_UP_S = 600.0
"""Simulated from a cold start; sinks settle within it, for their time constants are 20 to 35 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeRun:
    """A run of many steps, and what interrupts it."""

    tokens: float = number("Tokens of the whole run.", 1, 1e18)
    checkpoint_interval_s: float | None = number(
        "Useful time between checkpoints (default: Daly's optimum).", 1, 1e8, None
    )
    checkpoint_write_s: float | None = number("Time to write a checkpoint (default: from its size).", 0, 1e6, None)
    checkpoint_bytes_per_s: float = number("Bandwidth of storage for each node (Llama 3: 1 GB/s).", 1e6, 1e12, GIGA)
    checkpoint_stall_fraction: float = number(
        "Share of the write time during which training waits (1: assumed).", 0, 1, 1.0
    )
    failures_per_gpu_day: float = number(
        "Interruptions of the job for each GPU and day (Llama 3: 419 / 54 / 16,384).",
        0,
        10,
        LLAMA3_FAILURES_PER_GPU_DAY,
    )
    restart_s: float = number("Time from a failure to the next step (600: assumed).", 0, 1e6, 600.0)

    def __post_init__(self) -> None:
        check_fields(self)


class WarmUp(NamedTuple):
    """What a start with cold GPUs adds to a run in the steady state."""

    time_s: float = 0.0
    energy_j: float = 0.0
    """Of all GPUs."""


ALWAYS_WARM = WarmUp()


class Interruptions(NamedTuple):
    """Where the time of a whole run goes."""

    useful_s: float
    checkpoint_s: float
    lost_s: float
    restart_s: float
    failures: float

    @property
    def total_s(self) -> float:
        """Return the expected time of the run."""
        return self.useful_s + self.checkpoint_s + self.lost_s + self.restart_s


def whole_run_metrics(
    run: RunSpec, metrics: Mapping[str, Any], whole: WholeRun, tariff: Tariff, warm: WarmUp = ALWAYS_WARM
) -> dict[str, Any]:
    """Return the metrics of a whole run; None where step time or power are not known."""
    tokens_per_s, gpu_w = metrics.get("tokens_per_s"), metrics.get("power_mean_w")
    if tokens_per_s is None or gpu_w is None:
        return {}
    stall_s, rate_per_s = _stall_s(run, metrics, whole), run.cluster.gpus * whole.failures_per_gpu_day / DAY_S
    best_s = best_interval_s(stall_s, rate_per_s)
    useful_s = whole.tokens / tokens_per_s
    interval_s = min(useful_s, whole.checkpoint_interval_s or best_s)
    spent = interrupted(useful_s, interval_s, stall_s, rate_per_s, whole.restart_s)
    nodes, node_w = run.cluster.nodes, mean_node_power_w(run.cluster, metrics)
    idle_w = gpus_and_node_w(run.cluster, run.cluster.gpu.idle_draw_w / run.cluster.gpu.package_gpus)
    idle_s = spent.checkpoint_s + spent.restart_s
    starts = 1 + spent.failures
    drawn_j = nodes * (node_w * (spent.useful_s + spent.lost_s) + idle_w * idle_s) + starts * warm.energy_j
    energy_j, total_s = tariff.pue * wall_power_w(run.cluster, drawn_j), spent.total_s + starts * warm.time_s
    return {
        "run_time_s": total_s,
        "run_energy_j": energy_j,
        "run_money": energy_money(energy_j, tariff) + run.cluster.gpus * tariff.gpu_per_hour * total_s / HOUR_S,
        "run_useful_fraction": useful_s / total_s,
        "run_failures": spent.failures,
        "run_checkpoints": useful_s / interval_s,
        "run_checkpoint_s": spent.checkpoint_s,
        "run_lost_s": spent.lost_s,
        "run_restart_s": spent.restart_s,
        "checkpoint_interval_s": interval_s,
        "checkpoint_interval_best_s": None if best_s == inf else best_s,
        "power_dip_w": nodes * (node_w - idle_w),
    }


def interrupted(
    useful_s: float, interval_s: float, stall_s: float, rate_per_s: float, restart_s: float
) -> Interruptions:
    """Return where the time of a run goes that needs some useful time."""
    pieces = useful_s / interval_s
    if rate_per_s == 0:
        return Interruptions(useful_s, pieces * stall_s, 0.0, 0.0, 0.0)
    exponent = rate_per_s * (interval_s + stall_s)
    if exponent > LARGEST_EXPONENT:
        return Interruptions(useful_s, pieces * stall_s, inf, inf, inf)
    tries = pieces * expm1(exponent)
    working_s, restarting_s = tries / rate_per_s, tries * expm1(rate_per_s * restart_s) / rate_per_s
    checkpoint_s = pieces * stall_s
    lost_s = max(0.0, working_s - useful_s - checkpoint_s)
    failures = rate_per_s * (working_s + restarting_s)
    return Interruptions(useful_s, checkpoint_s, lost_s, restarting_s, failures)


LARGEST_EXPONENT = 500.0
"""Failures in an interval beyond which a run never ends."""


def best_interval_s(stall_s: float, rate_per_s: float) -> float:
    """Return Daly's best interval between checkpoints; infinite where nothing fails, 1 s where checkpoints are free."""
    if rate_per_s == 0:
        return inf
    mean_s = 1 / rate_per_s
    if stall_s >= 2 * mean_s:
        return mean_s
    ratio = stall_s / (2 * mean_s)
    return max(1.0, sqrt(2 * stall_s * mean_s) * (1 + sqrt(ratio) / 3 + ratio / 9) - stall_s)


def _stall_s(run: RunSpec, metrics: Mapping[str, Any], whole: WholeRun) -> float:
    """Return how long training waits for a checkpoint."""
    written_s = whole.checkpoint_write_s
    if written_s is None:
        size_bytes = STATE_BYTES * (metrics.get("parameters") or count_parameters(run.model))
        written_s = size_bytes / (whole.checkpoint_bytes_per_s * run.cluster.nodes)
    return whole.checkpoint_stall_fraction * written_s


def warm_up(run: RunSpec, metrics: Mapping[str, Any]) -> WarmUp:
    """Simulate a start with cold GPUs, and return how its time and energy differ from as many steady steps."""
    cold = replace(run, conditions=replace(run.conditions, steps=None, seconds_s=WARM_UP_S))
    found = predict(cold, ignore_memory=True).result.metrics
    steps = WARM_UP_S / found["step_time_s"]
    return WarmUp(
        steps * (found["step_time_s"] - metrics["step_time_s"]),
        steps * (found["energy_per_step_j"] - metrics["energy_per_step_j"]),
    )
