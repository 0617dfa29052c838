"""Fit the constants of the time model and score them on rows they were not fitted on.

    python -m benchmarks.fit_time PUBLISHED.csv [VTRAIN.csv] [--folds 3] [--sources] [--vtrain-alone] [--write FILE]

Constants belong to a GPU, a framework or no one (cost/calibration.py); none to a model or a publication. The fit
minimises a robust error of log step time, every constant held near its prior; rows are split by (source, model, GPU).
"""

import argparse
import copy
import csv
import json
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import charllm.network.collectives as collectives
import charllm.timeline.nic_sharing as nic_sharing
import charllm.timeline.step_time as step_time
from benchmarks.fit_priors import PRIORS
from charllm.cost.calibration import CALIBRATION, Calibration
from charllm.errors import CharllmError
from charllm.evaluate.time import measured_step_s, resolve_row, row_class
from charllm.layout.links import group_links
from charllm.spec.run import RunSpec
from charllm.workload.step import Step, build_step

Floats = NDArray[np.float64]
Seconds = Callable[[Step, Calibration], float]

FAMILIES = {
    "a100-80gb": "a100", "a100-40gb": "a100", "a800": "a100", "h100": "h100", "h800": "h100", "h200": "h200",
    "gh200": "h200",
    "h100-hbm2e-500w": "h100-hbm2e-500w", "v100-32gb": "v100", "v100-16gb": "v100", "v100-sxm3-32gb": "v100",
    "megatron-bridge-2509": "megatron-bridge", "megatron-bridge-2511": "megatron-bridge",
    "megatron-bridge-2602": "megatron-bridge", "megatron-bridge-2606": "megatron-bridge",
    "megatron-simumax": "megatron", "nemo-2407": "nemo", "nemo-mlperf": "nemo", "automodel": "fsdp", "maxtext": "jax",
}  # fmt: skip
"""GPU or framework: the one whose constants it shares."""


class Constant(NamedTuple):
    """One number to fit: whose it is, its prior, and how far (as a factor) it may reasonably be from it."""

    owner: str
    """gpu:NAME, framework:NAME or all."""
    field: str
    prior: float
    spread: float
    low: float
    high: float


class Case(NamedTuple):
    """One published row, ready to be timed."""

    id: str
    group: str
    kind: str
    source: str
    step: Step
    measured_s: float
    weight: float


def read_cases(path: Path, weight: float = 1.0) -> list[Case]:
    """Read the rows that have a time and can be described."""
    found = []
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            measured_s = measured_step_s(row)
            if measured_s is None:
                continue
            try:
                run = resolve_row(row)
            except CharllmError:
                continue
            source = row["id"].split("-")[0]
            group = f"{source}|{row['model']}|{row['gpu']}"
            if source == "VTS":
                group = f"{source}|{row['layers']}|{row['hidden']}|{row['tp']}"
            # Rows whose batch or depth had to be guessed are scored, not fitted on.
            trust = weight if row["gbs"].strip() and row["layers"].strip() else 0.0
            found.append(Case(row["id"], group, row_class(run), source, build_step(run), measured_s, trust))
    return found


def owners(case: Case) -> tuple[str, str, str]:
    gpu, framework = case.step.run.cluster.gpu.name, case.step.run.framework.name
    return f"gpu:{FAMILIES.get(gpu, gpu)}", f"framework:{FAMILIES.get(framework, framework)}", "all"


TRUST = {"gpu": 0.6, "framework": 1.0, "all": 0.6}
"""Spreads of priors in the fit over those stated: rows of a source err alike, and count for less than their number."""


def constants_of(
    cases: Iterable[Case], priors: dict[str, dict[str, tuple[float, float, float, float]]]
) -> list[Constant]:
    """List the constants that the cases touch."""
    seen = sorted({owner for case in cases for owner in owners(case)})
    found = []
    for owner in seen:
        kind = owner.partition(":")[0]
        for field, (prior, spread, low, high) in {**priors[kind], **priors.get(owner, {})}.items():
            found.append(Constant(owner, field, prior, spread * TRUST[kind], low, high))
    return found


class Timer:
    """Times cases under given constants, remembering where each one's links are."""

    def __init__(self, constants: Sequence[Constant], seconds: Seconds | None = None) -> None:
        self.constants = constants
        self.seconds = seconds or (lambda step, calibration: step_time.time_step(step, calibration).step_time_s)
        self.links: dict[tuple[Any, ...], Any] = {}
        vars(collectives)["group_links"] = vars(nic_sharing)["group_links"] = self._group_links

    def _group_links(self, run: RunSpec, group: str) -> Any:
        key = (run.parallelism, id(run.cluster.fabric), run.cluster.node.name, run.conditions, group)
        if key not in self.links:
            self.links[key] = group_links(run, group)
        return self.links[key]

    def time(self, case: Case, values: Floats) -> float:
        mine = owners(case)
        changes: dict[str, dict[str, float]] = {owner: {} for owner in mine}
        for constant, value in zip(self.constants, values, strict=True):
            if constant.owner in changes:
                changes[constant.owner][constant.field] = float(value)
        step = with_constants(case.step, changes[mine[0]], changes[mine[1]])
        shared: dict[str, Any] = dict(changes["all"])
        return self.seconds(step, replace(CALIBRATION, **shared))


def with_constants(step: Step, gpu: dict[str, float], framework: dict[str, float]) -> Step:
    """Return the step on a GPU and a framework with other constants; checks are skipped, for speed."""
    run = step.run
    node = _changed(run.cluster.node, {"gpu": _changed(run.cluster.node.gpu, gpu)})
    cluster = _changed(run.cluster, {"node": node})
    return Step(
        _changed(run, {"cluster": cluster, "framework": _changed(run.framework, framework)}), step.cut, step.chunks
    )


def _changed(settings: Any, changes: dict[str, Any]) -> Any:
    other = copy.copy(settings)
    for name, value in changes.items():
        object.__setattr__(other, name, value)
    return other


def errors_of(timer: Timer, cases: Sequence[Case], values: Floats) -> Floats:
    return np.array([np.log(timer.time(case, values) / case.measured_s) for case in cases])


def jacobian(timer: Timer, cases: Sequence[Case], values: Floats, at: Floats) -> Floats:
    """Differentiate each case's log time by each log constant it depends on."""
    found = np.zeros((len(cases), len(values)))
    for index, constant in enumerate(timer.constants):
        moved = values.copy()
        moved[index] *= 1.05
        for row, case in enumerate(cases):
            if constant.owner in owners(case):
                found[row, index] = (np.log(timer.time(case, moved) / case.measured_s) - at[row]) / np.log(1.05)
    return found


VTRAIN_WEIGHT = 0.04
"""One table of many small, alike runs on one machine counts as some thirty rows."""
SIBLING_SPREAD = 0.25
SCALE = 0.06
"""Errors much larger than this count linearly, not squared."""


def pooled_priors(values: Floats, constants: Sequence[Constant], owned: set[str]) -> Floats:
    """Centre the priors of siblings (frameworks, GPUs without figures of their own) on what those with rows show."""
    log_values, log_priors = np.log(values), np.log([constant.prior for constant in constants])
    kinds = [(constant.owner.partition(":")[0], constant.field, constant.prior) for constant in constants]
    pooled = log_priors.copy()
    for kind in set(kinds):
        members = [place for place, found in enumerate(kinds) if found == kind]
        shown = [place for place in members if constants[place].owner in owned]
        if kind[0] == "all" or len(members) < 3:
            continue
        spread = constants[members[0]].spread
        weight = 1 / spread**2 + len(shown) / SIBLING_SPREAD**2
        pooled[members] = (log_priors[members[0]] / spread**2 + np.sum(log_values[shown]) / SIBLING_SPREAD**2) / weight
    return np.asarray(pooled)


def solve(
    errors: Floats,
    slope: Floats,
    values: Floats,
    constants: Sequence[Constant],
    weights: Floats,
    owned: set[str],
) -> Floats:
    """Take one robust Gauss-Newton step, pulled towards the priors, inside the bounds."""
    robust = weights / np.sqrt(1 + (errors / SCALE) ** 2)
    prior = pooled_priors(values, constants, owned)
    spread = np.array([constant.spread for constant in constants])
    now = np.log(values)
    left = (slope * robust[:, None]).T @ slope / SCALE**2 + np.diag(1 / spread**2)
    right = -(slope * robust[:, None]).T @ errors / SCALE**2 - (now - prior) / spread**2
    step = np.clip(np.linalg.solve(left, right), -0.4, 0.4)
    low, high = np.log([c.low for c in constants]), np.log([c.high for c in constants])
    return np.asarray(np.exp(np.clip(now + step, low, high)))


def fit(timer: Timer, cases: Sequence[Case], start: Floats, rounds: int = 4) -> Floats:
    values = start
    weights = np.array([case.weight for case in cases])
    owned = {owner for case in cases for owner in owners(case)}
    for _ in range(rounds):
        errors = errors_of(timer, cases, values)
        values = solve(errors, jacobian(timer, cases, values, errors), values, timer.constants, weights, owned)
    return values


def refit(
    cases: Sequence[Case], constants: Sequence[Constant], values: Floats, errors: Floats, slope: Floats, keep: Any
) -> tuple[Floats, Floats]:
    """Fit on the cases kept, errors taken to be linear in the logarithms; return constants and errors of all cases."""
    weights = np.array([case.weight for case in cases])
    owned = {owner for case, kept in zip(cases, keep, strict=True) if kept for owner in owners(case)}
    now, now_errors = values, errors
    for _ in range(6):
        now = solve(now_errors[keep], slope[keep], now, constants, weights[keep], owned)
        now_errors = errors + slope @ (np.log(now) - np.log(values))
    return now, now_errors


def summary(errors: Sequence[float]) -> str:
    plain = [float(np.exp(error) - 1) for error in errors]
    size = sorted(abs(error) for error in plain)
    if not size:
        return "-"
    high = size[min(len(size) - 1, int(0.9 * len(size)))]
    return (f"n {len(size):4d}  median {100 * statistics.median(size):5.1f}  p90 {100 * high:5.1f}"
            f"  mean {100 * statistics.fmean(plain):+5.1f}  bias {100 * statistics.median(plain):+5.1f}")  # fmt: skip


def print_scores(title: str, cases: Sequence[Case], errors: Sequence[float], *, by: Sequence[str] = ("kind",)) -> None:
    print(f"{title:42s} {summary(errors)}")
    for what in by:
        parts: dict[str, list[float]] = defaultdict(list)
        for case, error in zip(cases, errors, strict=True):
            key = {"kind": case.kind, "source": case.source, "gpu": case.step.run.cluster.gpu.name,
                   "framework": case.step.run.framework.name}[what]  # fmt: skip
            parts[key].append(error)
        for name, found in sorted(parts.items()):
            print(f"    {what} {name:28s} {summary(found)}")


def folds_of(cases: Sequence[Case], folds: int, seed: int) -> dict[str, int]:
    """Deal groups of rows out to folds."""
    groups = sorted({case.group for case in cases})
    dealt = np.random.default_rng(seed).permutation(len(groups)) % folds
    return {group: int(fold) for group, fold in zip(groups, dealt, strict=True)}


def pairs_in_order(cases: Sequence[Case], errors: Floats) -> float:
    """Return which share of pairs of a group that differ by more than a tenth is ordered as measured."""
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for case, error in zip(cases, errors, strict=True):
        groups[case.group].append((case.measured_s, case.measured_s * float(np.exp(error))))
    found = [
        fast[1] < slow[1]
        for members in groups.values()
        for fast, slow in (sorted(pair) for pair in combinations(members, 2))
        if slow[0] / fast[0] > 1.1
    ]
    return statistics.fmean(found)


def score_vtrain(
    timer: Timer, published: Sequence[Case], vtrain: Sequence[Case], values: Floats, arguments: argparse.Namespace
) -> None:
    """Score the rows of one node from published rows alone, and fitted on themselves with groups held out."""
    apart = fit(timer, published, values, arguments.rounds)
    print_scores("vTrain from published rows alone", vtrain, list(errors_of(timer, vtrain, apart)), by=())
    alone = [case._replace(weight=1.0) for case in vtrain]
    fold_of = folds_of(alone, arguments.folds, arguments.seed)
    held = np.zeros(len(alone))
    for fold in range(arguments.folds):
        own = fit(timer, [case for case in alone if fold_of[case.group] != fold], values, arguments.rounds)
        for index, case in enumerate(alone):
            if fold_of[case.group] == fold:
                held[index] = np.log(timer.time(case, own) / case.measured_s)
    print_scores("vTrain on itself, held out by group", vtrain, list(held), by=())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("published", type=Path)
    parser.add_argument("vtrain", type=Path, nargs="?")
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--sources", action="store_true", help="leave each source out in turn")
    parser.add_argument("--vtrain-alone", action="store_true", help="score vTrain on itself and from published rows")
    parser.add_argument("--only-fit", action="store_true")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--start", type=Path)
    arguments = parser.parse_args()
    published = read_cases(arguments.published)
    vtrain = read_cases(arguments.vtrain, VTRAIN_WEIGHT) if arguments.vtrain else []
    cases = published + vtrain
    constants = constants_of(cases, PRIORS)
    timer = Timer(constants)
    prior = np.array([constant.prior for constant in constants])
    count = len(published)
    at_prior = errors_of(timer, cases, prior)
    print_scores("priors", published, list(at_prior[:count]))
    print_scores("priors, vTrain", vtrain, list(at_prior[count:]), by=())
    start = prior
    if arguments.start:
        known = json.loads(arguments.start.read_text())
        start = np.array([known.get(f"{c.owner} {c.field}", c.prior) for c in constants])
    values = fit(timer, cases, start, arguments.rounds)
    at_fit = errors_of(timer, cases, values)
    print_scores("fitted on all", published, list(at_fit[:count]), by=("kind", "source", "gpu", "framework"))
    print_scores("fitted on all, vTrain", vtrain, list(at_fit[count:]), by=())
    if arguments.write:
        table = {f"{c.owner} {c.field}": float(f"{v:.4g}") for c, v in zip(constants, values, strict=True)}
        arguments.write.write_text(json.dumps(table, indent=1) + "\n")
        worst = sorted(zip(at_fit[:count], published, strict=True), key=lambda pair: -abs(pair[0]))
        for error, case in worst[:60]:
            print(f"  {case.id:12s} {100 * (np.exp(error) - 1):+6.0f} %  {case.kind} {case.group}")
    if arguments.vtrain_alone:
        score_vtrain(timer, published, vtrain, values, arguments)
    if arguments.only_fit:
        return
    held = np.zeros(len(cases))
    fold_of = folds_of(cases, arguments.folds, arguments.seed)
    for fold in range(arguments.folds):
        train = [case for case in cases if fold_of[case.group] != fold]
        fold_values = fit(timer, train, values, arguments.rounds)
        for index, case in enumerate(cases):
            if fold_of[case.group] == fold:
                held[index] = np.log(timer.time(case, fold_values) / case.measured_s)
    print_scores(
        f"held out by group, {arguments.folds} folds", published, list(held[:count]), by=("kind", "source", "gpu")
    )
    print_scores("held out by group, vTrain", vtrain, list(held[count:]), by=())
    print(f"pairs in order, held out: {100 * pairs_in_order(published, held[:count]):.1f} %")
    if arguments.sources:
        slope = jacobian(timer, cases, values, at_fit)
        left_out = np.zeros(count)
        for source in sorted({case.source for case in published}):
            keep = np.array([case.source != source for case in cases])
            now, _errors = refit(cases, constants, values, at_fit, slope, keep)
            for index, case in enumerate(published):
                if case.source == source:
                    left_out[index] = np.log(timer.time(case, now) / case.measured_s)
        print_scores("one source left out", published, list(left_out), by=("kind", "source", "gpu"))


if __name__ == "__main__":
    main()
