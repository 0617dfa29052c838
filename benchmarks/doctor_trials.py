"""How often doctor names an injected culprit, and accuses nobody in healthy runs.

Runs are simulated and seen through the noise of sensors, as `charllm doctor` sees them.

Healthy machines differ as well: dies by 1.5 % in power, sinks by 5 %, inlets by 1 K from node to node; sensors add the
noise of analysis/doctor/simulated.py. Thresholds were chosen on the layouts of DEVELOPED; those of HELD_OUT are scored.

    python -m benchmarks.doctor_trials [runs of each kind] [--developed] [--without-spec]
"""

import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from charllm.analysis.doctor.diagnose import Finding, diagnose
from charllm.analysis.doctor.expectation import expect
from charllm.analysis.doctor.simulated import observe_simulation
from charllm.api.keywords import build_request
from charllm.catalog.resolve import resolve_run
from charllm.simulate.predict import Simulation, predict
from charllm.spec.run import Conditions, RunSpec

Layout = Mapping[str, Any]
DEVELOPED: tuple[Layout, ...] = (
    {"model": "llama3-70b", "cluster": "charllm-ppt-h200", "tp": 8, "pp": 4, "gbs": 16},
    {"model": "llama3-8b", "cluster": "charllm-ppt-h200", "tp": 2, "gbs": 64},
    {"model": "llama3-8b", "cluster": "charllm-ppt-h100", "tp": 4, "pp": 2, "gbs": 64},
    {"model": "mixtral-8x7b", "cluster": "charllm-ppt-h100", "tp": 2, "ep": 8, "gbs": 64},
    {"model": "llama3-70b", "cluster": "charllm-ppt-h100", "tp": 8, "pp": 2, "gbs": 16, "recompute": "full"},
)
HELD_OUT: tuple[Layout, ...] = (
    {"model": "gpt3-175b", "cluster": "charllm-ppt-h200", "tp": 8, "pp": 4, "gbs": 16, "recompute": "full"},
    {"model": "llama3-30b", "cluster": "charllm-ppt-mi250", "tp": 8, "pp": 4, "gbs": 8},
    {"model": "mixtral-8x22b", "cluster": "charllm-ppt-h200", "tp": 4, "pp": 4, "ep": 2, "gbs": 32},
    {"model": "gpt3-30b", "cluster": "charllm-ppt-h100", "tp": 4, "pp": 4, "gbs": 64},
    {"model": "llama3-70b", "cluster": "charllm-ppt-h200", "tp": 4, "pp": 4, "gbs": 32, "overlap": "dp,tp"},
    {"model": "llama3-8b", "cluster": "charllm-ppt-h200", "fsdp": True, "gbs": 64},
    {"model": "llama3-70b", "cluster": "charllm-ppt-h100", "tp": 8, "pp": 4, "vpp": 2, "gbs": 16, "cluster.nodes": 16},
)
LEAST_LOSS, MOST_LOSS = 0.03, 0.20
"""What an injected culprit costs the job: severity is drawn, and moved until the cost lies between both. A
link that has lost a lane or half of its PCIe width is not milder where it costs more."""
MOST_TRIES = 6
REPORT_EVERY = 50
SILICON_SPREAD, SINK_SPREAD, INLET_SPREAD_K = 0.015, 0.05, 1.0
KINDS = ("slow GPU", "hot GPU", "slow link", "slow host", "healthy")


class Trial(NamedTuple):
    """One simulated run with one culprit, or none."""

    kind: str
    found: Simulation
    gpu: int | None
    node: int | None
    causes: tuple[str, ...]
    loss_fraction: float
    seed: int


def main() -> None:
    """Run the trials and print how they were judged, as they are."""
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    count, layouts = int(words[0]) if words else 100, DEVELOPED if "--developed" in sys.argv else HELD_OUT
    began_s = time.perf_counter()
    table: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    losses: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for trial in run_trials(count, layouts):
        told = judge(trial, knows_run="--without-spec" not in sys.argv)
        table[trial.kind][told] += 1
        losses[trial.kind].append(trial.loss_fraction)
        if told != "right":
            print(f"  {trial.kind}, seed {trial.seed}: {told} ({describe(trial)})", flush=True)
        if sum(map(len, losses.values())) % REPORT_EVERY == 0:
            print(*render(table, losses), sep="\n", flush=True)
    print(f"doctor, {count} runs of each kind on {len(layouts)} layouts ({time.perf_counter() - began_s:.0f} s)")
    print(*render(table, losses), sep="\n")


def render(table: Mapping[str, Counter[str]], losses: Mapping[str, list[float]]) -> list[str]:
    """Write a line for each kind of run: how many were judged rightly, and what was said of the others."""
    lines = []
    for kind, counts in table.items():
        rest = ", ".join(f"{name} {times}" for name, times in counts.items() if name != "right")
        cost = f"; median cost {np.median(losses[kind]):.1%}" if any(losses[kind]) else ""
        lines.append(f"  {kind:10} {counts['right']:4} of {counts.total()} right{cost}{'; ' + rest if rest else ''}")
    return lines


def run_trials(count: int, layouts: tuple[Layout, ...]) -> Iterator[Trial]:
    """Yield so many runs of each kind, over all layouts in turn."""
    made, seed = Counter[str](), 0
    while min(made[kind] for kind in KINDS) < count:
        for kind in KINDS:
            trial = make_trial(kind, layouts[seed % len(layouts)], seed) if made[kind] < count else None
            if trial is not None:
                made[kind] += 1
                yield trial
        seed += 1


def make_trial(kind: str, layout: Layout, seed: int) -> Trial | None:
    """Make one run; None where nothing of this kind can cost this layout enough."""
    random = np.random.default_rng([seed, KINDS.index(kind)])
    run = _vary(resolve_layout(layout), random, seed)
    if kind == "healthy":
        return Trial(kind, predict(run, ignore_memory=True), None, None, (), 0.0, seed)
    gpu = int(random.integers(run.cluster.gpus))
    node = gpu // run.cluster.node.gpus
    usual_s = predict(run, ignore_memory=True).result.metrics["step_time_s"]
    choices = {"slow GPU": (_weak, _capped), "hot GPU": (_hot,), "slow link": (_slow_nic,), "slow host": (_slow_host,)}
    worsen = choices[kind][int(random.integers(len(choices[kind])))]
    mild, severe, best = 0.0, 1.0, None
    severity = random.uniform(0.1, 0.6)
    for _ in range(MOST_TRIES):
        conditions, causes = worsen(run, gpu, severity)
        found = predict(replace(run, conditions=conditions), ignore_memory=True)
        loss = found.result.metrics["step_time_s"] / usual_s - 1
        if loss < LEAST_LOSS:
            mild = severity
        else:
            severe = severity
            best = Trial(kind, found, gpu if kind.endswith("GPU") else None, node, causes, loss, seed)
            if loss < MOST_LOSS or kind == "slow link":
                break
        severity = (mild + severe) / 2
    return best


def resolve_layout(layout: Layout) -> RunSpec:
    """Return the run of a layout, in the words of `charllm.simulate`."""
    return resolve_run(build_request(None, dict(layout)))


def _vary(run: RunSpec, random: np.random.Generator, seed: int) -> RunSpec:
    """Give dies, sinks and inlets their ordinary differences."""
    sinks = tuple(np.clip(random.normal(1, SINK_SPREAD, run.cluster.gpus), 0.7, 1.3).tolist())
    inlet_c = random.uniform(20, 30)
    inlets = tuple((inlet_c + random.normal(0, INLET_SPREAD_K, run.cluster.nodes)).tolist())
    conditions = replace(
        run.conditions, silicon_spread_fraction=SILICON_SPREAD, seed=seed, hot_gpus=tuple(range(run.cluster.gpus)),
        hot_sink_fraction=sinks,
    )  # fmt: skip
    cluster = replace(run.cluster, cooling=replace(run.cluster.cooling, inlet_c=inlets))
    return replace(run, conditions=conditions, cluster=cluster)


def _weak(run: RunSpec, gpu: int, severity: float) -> tuple[Conditions, tuple[str, ...]]:
    return replace(run.conditions, weak_gpus=(gpu,), weak_power_fraction=1 + severity), ("silicon",)


def _capped(run: RunSpec, gpu: int, severity: float) -> tuple[Conditions, tuple[str, ...]]:
    limits = run.cluster.gpu
    cap_w = limits.power_cap_w - severity * (limits.power_cap_w - max(limits.power_cap_min_w, limits.idle_draw_w * 1.2))
    return replace(run.conditions, capped_gpus=(gpu,), capped_power_w=cap_w), ("power limit",)


def _hot(run: RunSpec, gpu: int, severity: float) -> tuple[Conditions, tuple[str, ...]]:
    sinks = list(run.sink_factors.values())
    sinks[gpu] *= 1 + 19 * severity
    return replace(run.conditions, hot_sink_fraction=tuple(min(20.0, sink) for sink in sinks)), ("thermal",)


def _slow_nic(run: RunSpec, gpu: int, severity: float) -> tuple[Conditions, tuple[str, ...]]:
    node = gpu // run.cluster.node.gpus
    return replace(run.conditions, slow_nic_nodes=(node,), slow_nic_fraction=0.75 - 0.7 * severity), ("network",)


def _slow_host(run: RunSpec, gpu: int, severity: float) -> tuple[Conditions, tuple[str, ...]]:
    node = gpu // run.cluster.node.gpus
    return replace(run.conditions, slow_host_nodes=(node,), slow_host_fraction=min(1.0, 0.02 / severity)), ("host",)


def judge(trial: Trial, *, knows_run: bool = True) -> str:
    """Say whether doctor was right, or what it said instead."""
    found = findings(trial, knows_run=knows_run)
    if trial.kind == "healthy":
        return "right" if not found else f"accuses a healthy {found[0].kind} ({found[0].cause})"
    if not found:
        return "finds nothing"
    first = found[0]
    place = first.gpus == (trial.gpu,) if trial.gpu is not None else first.node == trial.node
    if place and first.cause in trial.causes:
        return "right"
    return f"names the wrong cause ({first.cause})" if place else f"names another {first.kind} ({first.cause})"


def findings(trial: Trial, *, knows_run: bool = True) -> list[Finding]:
    """Return what doctor finds in a trial, with or without the spec of the run."""
    seen = observe_simulation(trial.found, seed=trial.seed, knows_run=knows_run)
    return diagnose(seen, expect(seen))


def describe(trial: Trial) -> str:
    """Name a trial's layout and culprit."""
    run = trial.found.step.run
    degrees = run.parallelism
    where = f"GPU {trial.gpu}" if trial.gpu is not None else f"node {trial.node}"
    layout = f"{run.model.name} on {run.cluster.name}, tp {degrees.tp} pp {degrees.pp} dp {degrees.dp}"
    said = [f"{one.kind} {one.node} {one.gpus[:2]} {one.cause} z {one.z:.1f}" for one in findings(trial)]
    return f"{layout}; {where}, {trial.loss_fraction:.1%}; said: {'; '.join(said) or 'nothing'}"


if __name__ == "__main__":
    main()
