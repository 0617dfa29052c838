"""Better strategies and placements for the paper's runs: `python -m benchmarks.placement [--write]` (ten minutes).

1. For every training configuration of CharLLM-PPT: a strategy or a placement that is better in both tokens a second and
   thermal stability, or what was searched without finding one. Better means at least 0.1 % more tokens a second, with
   swing, margin and spread of clocks each no worse and at least one of them better. Strategies are single changes of
   analysis/advice.py, then pairs of them, ranked by the fast path, then the fastest other runs of the same model and
   cluster in the studies, then the best of `charllm plan` over the whole space; each also at lower clock caps, all
   simulated in full.
2. What thermal-aware placement, uneven pipelines and shifted power limits gain against the paper's 4 to 7 %, by inlet,
   assumed preheat and spread between dies.

The marks stood before the first run. With --write, benchmarks/placement.csv holds a row per configuration.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import charllm
from charllm.analysis.advice import changes
from charllm.catalog.change import Change, both, changed_run
from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.plan.flag_diff import diff_flags
from charllm.plan.placement import PAIR, Effort, Judged, decide_kinds
from charllm.report.tables import render_table, to_csv
from charllm.simulate.fast import predict_fast
from charllm.simulate.predict import predict
from charllm.spec.request import merge
from charllm.spec.run import RunSpec
from charllm.sweep.study import load_study
from charllm.units import MEGA

STUDIES = ("charllm-ppt-optimization-h200", "charllm-ppt-optimization-h100", "charllm-ppt-microbatch-h200")
"""188 training configurations; those of the parallelism study are among them."""
LEAST_GAIN_FRACTION = 1e-3
STABILITY = {"temperature_swing_k": (-1, 0.05), "margin_to_slowdown_k": (1, 0.05), "clock_std_fraction": (-1, 5e-4)}
"""Metric: which direction is better, and what differs by less is equal."""
CLOCK_CAPS = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)
"""Highest clocks that a strategy is tried with, over the GPU's own."""
MOST_SINGLE, MOST_PAIRS, MOST_OTHERS, MOST_PLANNED = 6, 6, 6, 4
QUICK = Effort(most_work=0.2, rounds=2)
Metrics = Mapping[str, Any]


class Found(NamedTuple):
    """What was found for one run, and how much was tried."""

    kind: str
    """strategy, placement or none."""
    what: str
    gain_fraction: float
    after: Metrics
    tried: int
    """Runs simulated in full."""
    fastest_fraction: float
    """Gain of the fastest run that was simulated, whatever its stability."""


def list_runs() -> dict[RunSpec, list[tuple[str, str]]]:
    """Return every distinct run with the studies and cases that ask for it; what is refused is left out."""
    runs: dict[RunSpec, list[tuple[str, str]]] = {}
    for study in STUDIES:
        for case in load_study(study).cases:
            try:
                runs.setdefault(resolve_run(case.request), []).append((study, case.name))
            except SpecError as error:
                print(f"refused: {study}: {case.name}: {error}", file=sys.stderr)
    return runs


def is_better(before: Metrics, after: Metrics) -> bool:
    """Tell whether a run is faster and no less stable in any way, more in one."""
    if before["step_time_s"] / after["step_time_s"] - 1 < LEAST_GAIN_FRACTION:
        return False
    moved = [sign * (after[name] - before[name]) / equal for name, (sign, equal) in STABILITY.items()]
    return bool(min(moved) >= -1 and max(moved) > 1)


def list_strategies(run: RunSpec) -> Iterator[Change]:
    """Yield changes of how a job is run, the fastest on the fast path first: single ones, then pairs."""
    single = [change for change in changes(run) if "cluster" not in change.settings]
    ranked = _ranked(run, single)
    yield from ranked[:MOST_SINGLE]
    pairs = [both(*pair) for pair in combinations(ranked[:4], 2) if not _overlapping(*pair)]
    yield from _ranked(run, pairs)[:MOST_PAIRS]


def _overlapping(first: Change, second: Change) -> bool:
    """Tell whether two changes set the same field."""
    fields = [{(part, name) for part, table in one.settings.items() for name in table} for one in (first, second)]
    return bool(fields[0] & fields[1])


def _ranked(run: RunSpec, tried: list[Change]) -> list[Change]:
    timed: list[tuple[float, int, Change]] = []
    for change in tried:
        try:
            step_s = predict_fast(changed_run(run, change)).metrics["step_time_s"]
        except SpecError:
            continue
        if step_s is not None:
            timed.append((step_s, len(timed), change))
    return [change for _step_s, _place, change in sorted(timed)]


def with_clock_cap(run: RunSpec, fraction: float) -> RunSpec:
    """Return a run with a lower highest clock."""
    if fraction == 1:
        return run
    clock_hz = fraction * (run.conditions.clock_cap_hz or run.cluster.gpu.clock_max_hz)
    return replace(run, conditions=replace(run.conditions, clock_cap_hz=clock_hz))


class Known(NamedTuple):
    """A run of the studies as it is."""

    case: str
    run: RunSpec
    metrics: Metrics


def search(run: RunSpec, others: list[Known], placed: Judged | None) -> Found:
    """Look for a better strategy, also among other runs of the studies, then take the decided placement."""
    before = predict(run, ignore_memory=True)
    now, tried, fastest = before.result.metrics, 0, 0.0
    for kind, what, candidate in _candidates(run, others, placed):
        for fraction in CLOCK_CAPS:
            after = predict(with_clock_cap(candidate, fraction), ignore_memory=True).result.metrics
            tried += 1
            gain = now["step_time_s"] / after["step_time_s"] - 1
            fastest = max(fastest, gain)
            if is_better(now, after):
                clock = f" --clock-cap {fraction * run.cluster.gpu.clock_max_hz / MEGA:.0f}" if fraction < 1 else ""
                return Found(kind, what + clock, gain, after, tried, fastest)
            if gain < LEAST_GAIN_FRACTION:
                break
    return Found("none", "", 0.0, now, tried, fastest)


def _candidates(run: RunSpec, others: list[Known], placed: Judged | None) -> Iterator[tuple[str, str, RunSpec]]:
    for change in list_strategies(run):
        yield "strategy", change.asked, changed_run(run, change)
    same = [one for one in others if (one.run.model, one.run.cluster) == (run.model, run.cluster)]
    fitting = sorted((one for one in same if one.metrics["fits"]), key=lambda one: one.metrics["step_time_s"])
    for one in fitting[:MOST_OTHERS]:
        yield "strategy", f"as {one.case}", one.run
    for best in charllm.plan(run.as_table(), top=MOST_PLANNED).best:
        differs = [one for one in diff_flags(run, best.run) if one.program == "charllm"]
        flags = " ".join(f"{one.flag} {one.after}" for one in differs if one.after is not None)
        yield "strategy", f"charllm plan: {flags}", best.run
    if placed is not None and placed.gain_fraction > 0:
        yield "placement", "--placement FILE", placed.run


def decide_placement(run: RunSpec) -> Judged | None:
    """Decide ranks and layers of a run; None where it has no pipeline."""
    if run.parallelism.pp == 1:
        return None
    return decide_kinds("+".join(PAIR), PAIR, predict(run, ignore_memory=True), QUICK)


def paper_rows() -> list[dict[str, Any]]:
    """Search for every configuration; runs that are equal are searched once."""
    rows, runs = [], list_runs()
    known = [Known(cases[0][1], run, predict(run, ignore_memory=True).result.metrics) for run, cases in runs.items()]
    for count, one in enumerate(known):
        print(f"{count + 1}/{len(known)} {one.case}", file=sys.stderr, end="\r")
        placed = decide_placement(one.run)
        found = search(one.run, known, placed)
        rows += [_row(study, case, one, found, placed) for study, case in runs[one.run]]
    return rows


def _row(study: str, case: str, one: Known, found: Found, placed: Judged | None) -> dict[str, Any]:
    run, now = one.run, one.metrics
    moved = {f"{name}_change": round(found.after[name] - now[name], 5) for name in STABILITY}
    before = {name: round(now[name], 4) for name in STABILITY}
    return {
        "study": study, "case": case, "model": run.model.name, "cluster": run.cluster.name,
        "strategy": case.split(" / ")[0].split(" ", 1)[1], "fits": now["fits"],
        "tokens_per_s": round(now["tokens_per_s"], 1), **before, "found": found.kind, "what": found.what,
        "gain_fraction": round(found.gain_fraction, 5), **moved, "tried": found.tried,
        "fastest_fraction": round(found.fastest_fraction, 5),
        "placement_gain_fraction": None if placed is None else round(placed.gain_fraction, 5),
        "placement_is_better": None if placed is None else is_better(now, placed.metrics),
    }  # fmt: skip


def render_rows(rows: list[dict[str, Any]]) -> str:
    """Return a row per model, cluster and strategy."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["model"], row["cluster"], row["strategy"]), []).append(row)
    cells = []
    for key, own in groups.items():
        counts = {kind: sum(row["found"] == kind for row in own) for kind in ("strategy", "placement", "none")}
        gains = [100 * row["gain_fraction"] for row in own if row["found"] != "none"]
        spread = f"{min(gains):.1f} to {max(gains):.1f}" if gains else ""
        best = max(own, key=lambda row: row["gain_fraction"])
        cells.append([*key, str(len(own)), *map(str, counts.values()), spread, best["what"]])
    columns = (
        "model",
        "cluster",
        "strategy",
        "runs",
        "by strategy",
        "by placement",
        "none",
        "gain %",
        "largest gain by",
    )
    return render_table("Better in tokens/s and in thermal stability", columns, cells, width=180)


@lru_cache(maxsize=512)
def gain(model: str, tp: int, pp: int, kinds: tuple[str, ...], inlet_c: float, preheat: float, seed: int) -> Judged:
    """Decide for one of the paper's runs in some air; a seed draws dies, 0 are typical ones."""
    request = {
        **BASE, "model": model, "parallelism": {"tp": tp, "pp": pp},
        "cluster": {"base": "charllm-ppt-h200", "cooling": {"inlet_c": inlet_c},
                    "node": {"preheat_k_per_w": preheat * PREHEAT}},
        "conditions": {"silicon_spread_fraction": SPREAD if seed else 0.0, "seed": seed},
    }  # fmt: skip
    before = predict(resolve_run(request), ignore_memory=True)
    return decide_kinds("+".join(kinds), kinds, before, QUICK)


PREHEAT, SPREAD = 0.0083, 0.05
"""As the catalog assumes for HGX nodes; 5 % in power at equal work, as eight B200 of a node show (5.7 %)."""
BASE = merge(load_study("charllm-ppt-parallelism").table["request"], {})
RUNS = (("gpt3-175b", 4, 8), ("llama3-70b", 2, 8))
KINDS = (("ranks",), ("layers",), PAIR, ("caps",))
INLETS_C = (25.0, 30.0, 35.0, 40.0, 45.0, 48.0, 50.0)


def render_gains() -> str:
    """Return what each kind of decision gains by inlet, preheat and dies."""
    parts = []
    for model, tp, pp in RUNS:
        for title, cases in _conditions().items():
            rows = [
                ["+".join(kinds), *(f"{100 * best_gain(model, tp, pp, kinds, case):.2f}" for case in cases.values())]
                for kinds in KINDS
            ]
            heading = f"{model} tp{tp}-pp{pp}: % of tokens/s gained, {title}"
            parts.append(render_table(heading, ["decision", *cases], rows, width=140))
            print(parts[-1], file=sys.stderr)
    return "\n\n".join(parts)


def best_gain(model: str, tp: int, pp: int, kinds: tuple[str, ...], case: tuple[float, float, int]) -> float:
    """Return what some kinds of decisions gain: at least what each of them gains alone."""
    alone = [(kind,) for kind in kinds]
    return max(gain(model, tp, pp, some, *case).gain_fraction for some in {kinds, *alone})


def _conditions() -> dict[str, dict[str, tuple[float, float, int]]]:
    return {
        "typical dies, preheat as assumed, by inlet": {f"{inlet:.0f} C": (inlet, 1.0, 0) for inlet in INLETS_C},
        "typical dies, by inlet and assumed preheat": {
            f"{inlet:.0f} C, x {preheat:g}": (inlet, preheat, 0)
            for inlet in (25.0, 45.0)
            for preheat in (0.0, 1.0, 2.0)
        },
        "dies that differ by 5 %, by seed and inlet": {
            f"seed {seed}, {inlet:.0f} C": (inlet, 1.0, seed) for inlet in (25.0, 45.0) for seed in (1, 2, 3)
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true", help="write benchmarks/placement.csv")
    parser.add_argument("--part", choices=("runs", "gains", "both"), default="both", help="which of the two to compute")
    asked = parser.parse_args()
    if asked.part != "gains":
        report_runs(write=asked.write)
    if asked.part != "runs":
        print(f"\n{render_gains()}\nThe paper reports 4 to 7 % for thermal-aware placement with uneven pipelines.")


def report_runs(*, write: bool) -> None:
    """Print what was found for every configuration; with `write`, as a file."""
    rows = paper_rows()
    print(render_rows(rows))
    counts = {kind: sum(row["found"] == kind for row in rows) for kind in ("strategy", "placement", "none")}
    refused = 188 - len(rows)
    gains = sorted(row["placement_gain_fraction"] for row in rows if row["placement_gain_fraction"] is not None)
    both_ways = sum(bool(row["placement_is_better"]) for row in rows)
    print(f"\n{len(rows)} configurations ({refused} of 188 are refused): {counts}")
    print(
        f"Ranks and layers, at 25 C and with equal dies: {len(gains)} pipelines gain up to {100 * gains[-1]:.2f} % "
        f"of tokens/s, median {100 * gains[len(gains) // 2]:.2f} %; {both_ways} are better in both ways."
    )
    for row in rows:
        if row["found"] == "none":
            fits = "" if row["fits"] else ", which does not fit in memory itself"
            print(f"none found: {row['case']} ({row['cluster']}){fits}: {row['tried']} runs simulated, the fastest "
                  f"{100 * row['fastest_fraction']:+.2f} %")  # fmt: skip
    if write:
        Path(__file__).with_suffix(".csv").write_text(to_csv(rows) + "\n")


if __name__ == "__main__":
    main()
