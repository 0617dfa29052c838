"""What each mechanism of the time model is worth: published rows predicted with it off and on.

    python -m benchmarks.ablate_time PUBLISHED.csv [VTRAIN.csv] [--refit]

Scored are the rows that a mechanism moves by more than 2 %; docs/concepts/ablations.md states what came out. Constants
are kept, or with --refit fitted again on other groups of rows than those scored (linearised), with and without it.
"""

import argparse
import copy
import csv
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

import benchmarks.fit_time as fit_time
import charllm.network.algorithms as algorithms
import charllm.timeline.step_time as step_time
from benchmarks.fit_priors import PRIORS
from benchmarks.fit_time import Floats
from charllm.catalog.resolve import resolve_run
from charllm.cost.calibration import CALIBRATION, Calibration
from charllm.errors import CharllmError
from charllm.evaluate.scores import describe_errors
from charllm.evaluate.time import measured_step_s, resolve_row
from charllm.spec.run import RunSpec
from charllm.timeline.passes import chunk_passes
from charllm.workload.step import Step, build_step

FOLDS = 3
MOVED = 0.02
"""A row counts where a mechanism changes its step time by more than this."""


class Ablation(NamedTuple):
    """A mechanism and how to switch it off."""

    name: str
    change: Callable[[RunSpec], RunSpec] = lambda run: run
    calibration: Calibration = CALIBRATION
    patched: tuple[tuple[Any, str, Any], ...] = ()
    timed: Callable[[RunSpec, Calibration], float] | None = None


def seconds(run: RunSpec, calibration: Calibration = CALIBRATION) -> float:
    return step_time.time_step(build_step(run), calibration).step_time_s


def software(**changes: Any) -> Callable[[RunSpec], RunSpec]:
    return lambda run: replace(run, framework=replace(run.framework, **changes))


def without_overlap(axis: str) -> Callable[[RunSpec], RunSpec]:
    def change(run: RunSpec) -> RunSpec:
        kept = tuple(found for found in run.parallelism.overlap if found != axis)
        return replace(run, parallelism=replace(run.parallelism, overlap=kept))

    return change


def routed(**changes: Any) -> Callable[[RunSpec], RunSpec]:
    """Route tokens of sparse models another way."""

    def change(run: RunSpec) -> RunSpec:
        sparse = run.model.experts and run.training.capacity_factor is None
        return replace(run, training=replace(run.training, **changes)) if sparse else run

    return change


def ungrouped(run: RunSpec) -> RunSpec:
    """Let tokens visit experts anywhere, whatever groups the model limits them to."""
    return replace(run, model=replace(run.model, expert_groups=1, groups_per_token=1))


def host_or_gpu(run: RunSpec, calibration: Calibration) -> float:
    """The closed form: a step is bound by its host or by its GPU as a whole, not by one and the other in turns."""
    if run.parallelism.pp > 1:
        return seconds(run, calibration)
    step = build_step(run)
    launched_s = sum(part.race.hh for one in chunk_passes(step, calibration) for part in one)
    host_s = run.microbatches * launched_s + step_time.step_host_seconds(step, calibration)
    return max(seconds(software(launch_s=0.0, sparse_sync=False)(run), NO_HOST), host_s)


def even_pipeline(run: RunSpec, calibration: Calibration) -> float:
    """The closed form: stages alike, a bubble of (p - 1) / v of their mean, sends and exchange added at the end."""
    if run.parallelism.pp == 1:
        return seconds(run, calibration)
    step = build_step(run)
    degrees = run.parallelism
    stage_s = sum(part.race.gh for one in chunk_passes(step, calibration) for part in one[:2]) / degrees.pp
    send_s = 2 * degrees.vpp * float(np.mean(step_time.hop_seconds(step, calibration)))
    rounds = run.microbatches + (degrees.pp - 1) / degrees.vpp
    ending = step_time._ending(step, 0, calibration)
    exchange_s = ending.gradients_s + ending.weights_s + ending.optimizer_s
    return rounds * (stage_s + send_s) + exchange_s + step_time.step_host_seconds(step, calibration)


NO_HOST = replace(CALIBRATION, sparse_host_s=1e-12, expert_host_s=1e-12)
ALONE = (step_time, "nic_seconds", lambda _step, _one: 0.0)
NEVER_MET = (step_time, "hops_beside_gradients", lambda run: np.zeros(run.parallelism.pp))
ABLATIONS = (
    Ablation("sparse layers: the host's race with the GPU", software(sparse_sync=False), NO_HOST),
    Ablation("sparse layers: captured graphs", software(graphs="none")),
    Ablation("sparse layers: dispatcher (one copy for each rank)", software(dispatcher="alltoall")),
    Ablation("sparse layers: overlap of their exchange", without_overlap("ep")),
    Ablation("sparse layers: the busiest rank by chance", routed(routing_skew=1.0)),
    Ablation("sparse layers: forced balance (off: a router's own)", routed(routing="natural")),
    Ablation("sparse layers: experts in turn where the framework does so", software(forced_routing="random")),
    Ablation("sparse layers: groups of experts", ungrouped),
    Ablation("sparse layers: experts fused with their activation", software(fused_experts=False)),
    Ablation("latent attention: chain of kernels for positions", software(fused_latent_rope=True)),
    Ablation("launches", software(launch_s=0.0)),
    Ablation("host and GPU in turns, one stage", timed=host_or_gpu),
    Ablation("pipeline: unequal chunks, sends and exchange in the bubble", timed=even_pipeline),
    Ablation("overlap of gradients and weights", without_overlap("dp")),
    Ablation("NICs shared in time", patched=(ALONE, NEVER_MET)),
    Ablation("NICs shared by sends and gradients", patched=(NEVER_MET,)),
    Ablation("trees between nodes", patched=((algorithms, "_possible", lambda _op, _path: ("ring",)),)),
    Ablation("attention by kernel generation", software(attention_kernel="best")),
    Ablation("attention: exponentials", calibration=replace(CALIBRATION, exponential_fraction=1e-12)),
    Ablation("recomputation that ends before a layer's last product", software(full_recompute="all")),
    Ablation("host time for each tensor", calibration=replace(CALIBRATION, tensor_host_s=1e-12)),
    Ablation(
        "misaligned rows", calibration=replace(CALIBRATION, misaligned_fraction=1.0, misaligned_batch_fraction=1.0)
    ),
)


@contextmanager
def switched_off(ablation: Ablation) -> Iterator[None]:
    patches = [patch.object(holder, name, value) for holder, name, value in ablation.patched]
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in patches:
            one.stop()


def without(ablation: Ablation, run: RunSpec) -> float:
    with switched_off(ablation):
        changed = ablation.change(copy.copy(run))
        return (ablation.timed or seconds)(changed, ablation.calibration)


def read_runs(path: Path) -> list[tuple[RunSpec, float]]:
    """Read the rows that have a time and can be described."""
    found = []
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            measured_s = measured_step_s(row)
            try:
                if measured_s is not None:
                    found.append((resolve_row(row), measured_s))
            except CharllmError:
                continue
    return found


def describe(predicted: list[float], measured: list[float]) -> str:
    errors = describe_errors([one / other - 1 for one, other in zip(predicted, measured, strict=True)])
    parts = (errors["median_abs_error_fraction"], errors["p90_abs_error_fraction"], errors["mean_error_fraction"])
    return "{:5.1f} /{:5.1f} /{:+6.1f}".format(*(100 * part for part in parts))


def describe_logs(errors: Floats, places: Iterable[int]) -> str:
    chosen = np.exp(errors[list(places)])
    return describe(chosen.tolist(), [1.0] * len(chosen))


def report(title: str, runs: list[tuple[RunSpec, float]]) -> None:
    """Print median, 90th percentile and mean of the error in per cent, with each mechanism and without it."""
    whole = [seconds(run) for run, _measured in runs]
    print(f"{title}: {len(runs)} rows, {describe(whole, [measured for _run, measured in runs])}")
    for ablation in ABLATIONS:
        off = [without(ablation, run) for run, _measured in runs]
        moved = [
            place for place, (one, other) in enumerate(zip(whole, off, strict=True)) if abs(other / one - 1) > MOVED
        ]
        if not moved:
            print(f"  {ablation.name:60s} moves no row")
            continue
        measured = [runs[place][1] for place in moved]
        on_text = describe([whole[place] for place in moved], measured)
        print(
            f"  {ablation.name:60s} n {len(moved):4d}  on {on_text}  off {describe([off[p] for p in moved], measured)}"
        )


def without_at(ablation: Ablation, step: Step, calibration: Calibration) -> float:
    """Return the seconds of a step without a mechanism, other constants as given."""
    gone = {
        name: getattr(ablation.calibration, name)
        for name in Calibration.__dataclass_fields__
        if getattr(ablation.calibration, name) != getattr(CALIBRATION, name)
    }
    with switched_off(ablation):
        return (ablation.timed or seconds)(ablation.change(step.run), replace(calibration, **gone))


def hold_out(
    cases: list[fit_time.Case], constants: list[fit_time.Constant], values: Floats, errors: Floats, slope: Floats
) -> Floats:
    """Return the error of each case with constants fitted on other groups."""
    fold_of, held = fit_time.folds_of(cases, FOLDS, 0), np.zeros(len(cases))
    for fold in range(FOLDS):
        keep = np.array([fold_of[case.group] != fold for case in cases])
        held[~keep] = fit_time.refit(cases, constants, values, errors, slope, keep)[1][~keep]
    return held


def refit_without(published: Path) -> None:
    """Print errors of rows held out by group, constants fitted with each mechanism and without it."""
    cases = fit_time.read_cases(published)
    constants = fit_time.constants_of(cases, PRIORS)
    timer = fit_time.Timer(constants)
    values = fit_time.fit(timer, cases, np.array([constant.prior for constant in constants]), 2)
    errors = fit_time.errors_of(timer, cases, values)
    slope = fit_time.jacobian(timer, cases, values, errors)
    whole = hold_out(cases, constants, values, errors, slope)
    print(f"refitted, held out by group: {describe_logs(whole, range(len(cases)))}")
    for ablation in ABLATIONS:
        bare = fit_time.Timer(constants, partial(without_at, ablation))
        changed = fit_time.errors_of(bare, cases, values)
        moved = np.flatnonzero(np.abs(changed - errors) > MOVED)
        if not len(moved):
            continue
        touched = [cases[place] for place in moved]
        off_slope = slope.copy()
        off_slope[moved] = fit_time.jacobian(bare, touched, values, changed[moved])
        off = hold_out(cases, constants, values, changed, off_slope)
        print(f"  {ablation.name:60s} n {len(moved):4d}  on {describe_logs(whole, moved)}"
              f"  off {describe_logs(off, moved)}", flush=True)  # fmt: skip


SLOW_FABRIC: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("mixtral-8x7b", 4, {"ep": 8, "order": "tp-cp-dp-ep-pp"}),
    ("mixtral-8x7b", 4, {"ep": 8, "pp": 4, "order": "tp-cp-dp-ep-pp"}),
    ("llama3-70b", 16, {"tp": 8, "pp": 4}),
    ("llama3-70b", 16, {"tp": 8, "pp": 4, "vpp": 5}),
)
"""Model, nodes and degrees of runs on nodes with one NIC of 100 Gb/s each."""


def report_slow_fabric() -> None:
    """Print what sharing NICs costs where experts, or stages and replicas, are spread over nodes with a slow NIC."""
    sharing = [ablation for ablation in ABLATIONS if ablation.name.startswith("NICs shared")]
    print(f"slow fabric: step seconds; without: {', '.join(ablation.name for ablation in sharing)}")
    for model, nodes, degrees in SLOW_FABRIC:
        for overlap in (["dp"], ["dp", "pp"]) if degrees.get("pp", 1) > 1 else (["dp"],):
            run = resolve_run({
                "model": model,
                "cluster": {"base": "h200x32", "nodes": nodes},
                "parallelism": {**degrees, "overlap": overlap},
                "training": {"global_batch_size": 64, "recompute": "full"},
            })  # fmt: skip
            off = "  ".join(f"{without(ablation, run):.2f}" for ablation in sharing)
            print(f"  {model} on {nodes} nodes, {degrees}, overlap {overlap}: {seconds(run):.2f}; without {off}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("published", type=Path)
    parser.add_argument("vtrain", type=Path, nargs="?")
    parser.add_argument("--refit", action="store_true", help="fit constants again with and without each mechanism")
    arguments = parser.parse_args()
    if arguments.refit:
        refit_without(arguments.published)
        return
    report_slow_fabric()
    report("published", read_runs(arguments.published))
    if arguments.vtrain:
        report("one node of A100", read_runs(arguments.vtrain))


if __name__ == "__main__":
    main()
