"""Well-known training runs, described from their papers in known_runs.toml, against what charllm predicts.

No constant is fitted to them. `python -m charllm.evaluate.known_runs --docs` writes the page docs/known_runs.md.
"""

import math
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from charllm.catalog.resolve import resolve_run
from charllm.evaluate.scores import describe_errors
from charllm.simulate.predict import predict
from charllm.spec.request import Table, merge, parse_layer_split
from charllm.spec.run import RunSpec
from charllm.spec.schedules import SCHEDULES
from charllm.units import TERA, format_change, format_percent

TABLE = "known_runs.toml"
SUBSTITUTE_SCHEDULE = "zero-bubble"
"""Simulated where a run's own schedule is not one that charllm knows: it, too, fills bubbles with weight gradients."""
DOCS_PAGE = Path(__file__).parents[3] / "docs" / "known_runs.md"
PAGE_OPENING = """\
This page is written by `python -m charllm.evaluate.known_runs --docs`; `charllm validate known` prints the same
numbers. Each run is described from its paper in `src/charllm/evaluate/known_runs.toml`, and settings that the paper
leaves open are marked as assumed. No constant of charllm is fitted to this table, but some of the measurements are also
rows of the published results that constants are fitted on. They are marked with \\*."""


class KnownRun(NamedTuple):
    """One run as its paper describes it."""

    id: str
    name: str
    citation: str
    measured: Mapping[str, float]
    derivation: str
    tolerance_fraction: float
    gpu_memory_gb: float
    verified: str
    """How the figures were checked."""
    confidence: str
    assumed: tuple[str, ...]
    in_published_table: tuple[str, ...]
    request: Table

    @property
    def is_scored(self) -> bool:
        """Whether enough of the run is stated to hold a prediction against it."""
        return self.confidence != "low"


class KnownScore(NamedTuple):
    """A known run, predicted."""

    run: KnownRun
    spec: RunSpec
    measured_s: float
    predicted_s: float
    fits: bool
    memory_peak_bytes: float
    notes: tuple[str, ...]
    """What was simulated otherwise than the paper describes."""

    @property
    def error_fraction(self) -> float:
        """Prediction over measurement, minus one."""
        return self.predicted_s / self.measured_s - 1


@lru_cache(maxsize=1)
def known_runs() -> tuple[KnownRun, ...]:
    """Return the runs of the table, in its order."""
    text = resources.files("charllm.evaluate").joinpath(TABLE).read_text(encoding="utf-8")
    return tuple(_read_run(name, entry) for name, entry in tomllib.loads(text).items())


def _read_run(name: str, entry: Mapping[str, Any]) -> KnownRun:
    lists = {key: tuple(entry.get(key, ())) for key in ("assumed", "in_published_table")}
    return KnownRun(id=name, **{**entry, **lists, "request": _read_request(entry["request"])})


def _read_request(request: Mapping[str, Any]) -> Table:
    split = request["parallelism"].get("layers_per_stage")
    if split is None:
        return dict(request)
    parsed: Table = merge(request, {"parallelism": {"layers_per_stage": parse_layer_split(split)}})
    return parsed


def resolve_known(run: KnownRun) -> tuple[RunSpec, tuple[str, ...]]:
    """Build the run, and say what had to be replaced because charllm does not know it."""
    schedule = run.request["parallelism"].get("schedule")
    if schedule is None or schedule in SCHEDULES:
        return resolve_run(run.request), ()
    request = merge(run.request, {"parallelism": {"schedule": SUBSTITUTE_SCHEDULE}})
    return resolve_run(request), (f"schedule {schedule} simulated as {SUBSTITUTE_SCHEDULE}",)


def measured_step_s(run: KnownRun, spec: RunSpec) -> float:
    """Return the step time that the paper's statement amounts to."""
    stated, gpus = run.measured, spec.parallelism.world
    if "step_time_s" in stated:
        return stated["step_time_s"]
    if "tokens_per_s_per_gpu" in stated:
        return spec.tokens_per_step / (stated["tokens_per_s_per_gpu"] * gpus)
    flop_per_s = stated["tflop_per_s_per_gpu"] * TERA * gpus
    return spec.tokens_per_step * stated["flop_per_token"] / flop_per_s


def score_run(run: KnownRun) -> KnownScore:
    """Simulate one run through the closed loop, as `charllm simulate --ignore-memory` does."""
    spec, notes = resolve_known(run)
    metrics = predict(spec, ignore_memory=True, longest_s=math.inf).result.metrics
    return KnownScore(
        run=run,
        spec=spec,
        measured_s=measured_step_s(run, spec),
        predicted_s=metrics["step_time_s"],
        fits=metrics["fits"],
        memory_peak_bytes=metrics["memory_peak_bytes"],
        notes=notes,
    )


def score_known_runs() -> list[KnownScore]:
    """Simulate every run of the table."""
    return [score_run(run) for run in known_runs()]


def summarise(scores: Sequence[KnownScore]) -> dict[str, Any]:
    """Return the errors of the runs that count, the largest of them, and every row."""
    counted = [score for score in scores if score.run.is_scored]
    worst = max(counted, key=lambda score: abs(score.error_fraction), default=None)
    return {
        "runs": len(scores),
        **describe_errors([score.error_fraction for score in counted]),
        "max_abs_error_fraction": abs(worst.error_fraction) if worst else None,
        "worst": worst.run.id if worst else None,
        "predicted_oom": [score.run.id for score in scores if not score.fits],
        "predictions": [as_row(score) for score in scores],
    }


def as_row(score: KnownScore) -> dict[str, Any]:
    """Return one run as a row of the JSON output."""
    run = score.run
    return {
        "id": run.id,
        "name": run.name,
        "gpu": score.spec.cluster.gpu.name,
        "gpus": score.spec.parallelism.world,
        "measured_s": score.measured_s,
        "predicted_s": score.predicted_s,
        "error_fraction": score.error_fraction,
        "tolerance_fraction": run.tolerance_fraction,
        "fits": score.fits,
        "memory_peak_bytes": score.memory_peak_bytes,
        "verified": run.verified,
        "confidence": run.confidence,
        "scored": run.is_scored,
        "citation": run.citation,
        "measured": dict(run.measured),
        "derivation": run.derivation,
        "assumed": list(run.assumed),
        "in_published_table": list(run.in_published_table),
        "notes": list(score.notes),
    }


def describe_measurement(run: KnownRun) -> str:
    """Say in words what the paper states."""
    stated = run.measured
    if "step_time_s" in stated:
        return f"{stated['step_time_s']:g} s a step"
    if "tokens_per_s_per_gpu" in stated:
        return f"{stated['tokens_per_s_per_gpu']:,g} tokens/s per GPU"
    return f"{stated['tflop_per_s_per_gpu']:g} TFLOP/s per GPU"


def render_page(scores: Sequence[KnownScore]) -> str:
    """Write the documentation page: scores, one table of runs, then what is assumed of each."""
    summary = summarise(scores)
    counted = [score for score in scores if score.run.is_scored]
    apart = [score for score in scores if not score.run.is_scored]
    parts = [
        "# Well-known training runs",
        PAGE_OPENING,
        _describe_scores(summary) + " " + _describe_memory(scores),
        _page_table(counted),
    ]
    if apart:
        parts += [
            "## Runs with several assumed settings",
            "Settings that decide the step time of these runs are not stated, so the scores leave them out.",
            _page_table(apart),
        ]
    parts += ["## Derivations and assumptions", *(_page_entry(score) for score in scores)]
    return "\n\n".join(parts) + "\n"


def _describe_scores(summary: Mapping[str, Any]) -> str:
    names = ("median_abs_error_fraction", "p90_abs_error_fraction", "max_abs_error_fraction")
    median, p90, largest = (format_percent(summary[name]) for name in names)
    return (
        f"Step time of {summary['scored']} runs: median error {median}, 90th percentile {p90}, mean "
        f"{format_change(summary['mean_error_fraction'])}, largest {largest} (`{summary['worst']}`)."
    )


def _describe_memory(scores: Sequence[KnownScore]) -> str:
    misfits = [score.run.name for score in scores if not score.fits]
    if not misfits:
        return "Every run is predicted to fit in the memory of its GPU, as it did."
    return f"Predicted not to fit in memory, although they did: {', '.join(misfits)}."


def _page_table(scores: Sequence[KnownScore]) -> str:
    columns = ["run", "GPUs", "stated", "measured s", "predicted s", "error", "citation"]
    rows = [
        [
            score.run.name + (r" \*" if score.run.in_published_table else ""),
            f"{score.spec.parallelism.world:,} {score.spec.cluster.gpu.name}",
            describe_measurement(score.run),
            f"{score.measured_s:.4g}",
            f"{score.predicted_s:.4g}",
            format_change(score.error_fraction),
            score.run.citation,
        ]
        for score in scores
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [columns, ["---"] * len(columns), *rows])


def _page_entry(score: KnownScore) -> str:
    run = score.run
    heading = f"**{run.name}**, {score.spec.parallelism.world:,} GPUs (confidence {run.confidence})."
    lines = [f"{heading} {_sentence(run.derivation)}", "", f"- Verified: {_sentence(run.verified)}"]
    lines += [f"- Assumed: {_sentence(text)}" for text in run.assumed]
    lines += [f"- Simulated otherwise: {_sentence(text)}" for text in score.notes]
    return "\n".join(lines)


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def main(arguments: Sequence[str], write: Callable[[str], object] = sys.stdout.write) -> int:
    """Print the page, or with --docs write it to docs/known_runs.md."""
    page = render_page(score_known_runs())
    if "--docs" in arguments:
        DOCS_PAGE.write_text(page, encoding="utf-8")
    else:
        write(page)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
