"""Everything charllm is scored on that ships with it, as one table: what it predicts now against what was measured.

    python -m charllm.evaluate.scoreboard

predicts everything again and writes evaluate/data/predictions.csv, result/data/errors.json,
result/data/difference_errors.json, evaluate/data/scoreboard.csv, docs/accuracy.md and docs/known_runs.md
(`make scoreboard`). `charllm validate all` prints the same scores and writes nothing.
"""

import csv
from collections.abc import Callable, Iterable, Sequence
from importlib import resources
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from charllm.evaluate.caps import cap_points
from charllm.evaluate.corrections import source_of
from charllm.evaluate.differences import difference_points
from charllm.evaluate.h200.memory import loop_scores, training_scores
from charllm.evaluate.h200.points import (
    first_points,
    heat_points,
    kernel_points,
    loop_points,
    rank_points,
    traced_points,
    training_points,
)
from charllm.evaluate.known_runs import KnownScore, known_runs, score_run
from charllm.evaluate.memory import held_out, read_rows, tuned_rows
from charllm.evaluate.points import Point, Score, named_class, score_points, size_groups, with_baselines
from charllm.evaluate.predictions import Prediction, load_predictions, strategy_of, write_rows
from charllm.evaluate.scores import TimeScore, looked_up_s, order_pairs
from charllm.evaluate.time import resolve_row
from charllm.result.differences import read_errors
from charllm.result.uncertainty import errors
from charllm.simulate.predict import predict
from charllm.spec.run import CLASSES
from charllm.workload.parameters import count_parameters

FILE = Path(str(resources.files("charllm.evaluate") / "data" / "scoreboard.csv"))
LEAST_ROWS = 5
"""A group with fewer rows has no line of its own."""
DIGITS = 4
WORSE_FRACTION, WORSE = 0.05, 0.002
"""A score moved if it did by more than both: a share of the committed one, and a figure (0.2 % or 0.002 K)."""
SPLITS = {
    "family left out": "predicted_s",
    "source left out": "source_left_out_s",
    "GPU left out": "gpu_left_out_s",
    "nothing fitted": "prior_s",
    "in sample": "shipped_s",
}
"""Split of published rows: its column in the table of predictions."""


class Part(NamedTuple):
    """One kind of measurement."""

    points: Callable[[], list[Point]]
    described: str
    has_table: bool = False
    """Whether a table of figures or rates is a simpler method for it."""

    @property
    def about(self) -> str:
        """What was measured, and what the constants were fitted on, in one line."""
        return " ".join(self.described.split())


def time_scores(rows: Iterable[Prediction]) -> list[TimeScore]:
    """Return published rows as they are ranked and looked up."""
    return [
        TimeScore(row.id, row.source, row.gpu, row.precision, row.kind, f"{row.source} {row.model} {row.gpu}",
                  row.measured_s, row.predicted_s, row.flop_per_gpu, row.host)
        for row in rows
    ]  # fmt: skip


def published_points(rows: Sequence[Prediction]) -> list[Point]:
    """Return published rows in every split; rows on untuned hosts are a part of their own."""
    simpler = looked_up_s(time_scores(rows))
    return [
        Point("published" if row.host == "tuned" else "published, untuned hosts", split, "step time", row.id,
              getattr(row, column), row.measured_s, _published_groups(row), row.flop_per_gpu, found or None)
        for split, column in SPLITS.items()
        for row, found in zip(rows, simpler, strict=True)
    ]  # fmt: skip


def _published_groups(row: Prediction) -> dict[str, str]:
    return {"class": CLASSES[row.kind], "source": row.source, "GPU": row.gpu, "strategy": row.strategy,
            **size_groups(row.gpus, row.parameters)}  # fmt: skip


def known_points() -> list[Point]:
    """Return well-known runs, those with several assumed settings left out."""
    return [_known_point(score_run(run)) for run in known_runs() if run.is_scored]


def _known_point(score: KnownScore) -> Point:
    spec, gpus = score.spec, score.spec.parallelism.world
    groups = {"class": named_class(spec), "GPU": spec.cluster.gpu.name, "strategy": strategy_of(spec),
              **size_groups(gpus, count_parameters(spec.model, with_mtp=True))}  # fmt: skip
    return Point("known runs", "constants that ship", "step time", score.run.id, score.predicted_s, score.measured_s,
                 groups)  # fmt: skip


def memory_points() -> list[Point]:
    """Return published memory with each source left out, and that of H200 runs, on which nothing was fitted."""
    scores = {"source left out": held_out(tuned_rows()),
              "no constant fitted on it": [*loop_scores(), *training_scores()]}  # fmt: skip
    return [
        Point("memory", split, "peak memory", score.id, score.predicted_bytes, score.measured_bytes,
              {"meaning": score.measure, "source": source_of(score.id)})
        for split, found in scores.items() for score in found
    ]  # fmt: skip


def node_power_points() -> list[Point]:
    """Return the power of nodes in published runs whose table prints it (a node's median over the run)."""
    found = []
    for row in read_rows():
        if row["power_w"] and source_of(row["id"]) == "MLPERF":
            run = resolve_row(row)
            metrics = predict(run, ignore_memory=True, longest_s=inf).result.metrics
            read_w = float(row["power_w"]) * run.cluster.node.gpus
            groups = {"class": named_class(run), "GPU": run.cluster.gpu.name}
            found.append(Point("node power", "no constant fitted on it", "node power", row["id"],
                               metrics["node_power_mean_w"], read_w, groups))  # fmt: skip
    return found


PARTS: dict[str, Part] = {
    "known runs": Part(known_points, """Runs described from their papers; some are also among the published rows."""),
    "memory": Part(memory_points, """Published memory in the meaning each source prints, and that of runs on an H200.
        One constant is fitted on the published rows."""),
    "kernels": Part(kernel_points, """Single ops and bursts on H200 boards. Kernel and power constants of an H200 are
        fitted on these tables; `charllm calibrate` holds out shapes.""", has_table=True),
    "loops": Part(loop_points, """Bare training loops on an H200. Launches and two chains of kernels were corrected
        after they had been read.""", has_table=True),
    "training": Part(training_points, """Runs of the reference trainer on two H200 boards; air at one was
        3.5 K cooler than in the catalog.""", has_table=True),
    "ranks": Part(rank_points, """Ranks of large jobs, emulated on an H200: predictions for the timelines that it
        played. For the eight sparse ones its air was 6 K cooler than in the catalog.""", has_table=True),
    "predicted first": Part(first_points, """Predictions written down before a board read them, with the model of that
        day. They do not change."""),
    "traced steps": Part(traced_points, """Profiled steps on an H200. The profile `reference` was written on these
        traces."""),
    "thermal traces": Part(heat_points, """Temperature of an H200 from its recorded power alone, second by second. Heat
        was fitted on take opsA, one rule chosen on opsB.""", has_table=True),
    "power caps": Part(cap_points, """An H100 under caps (arXiv:2604.11391, arXiv:2603.16164)."""),
    "differences": Part(difference_points, """Effects of one change of a run: ratios of two runs of one board or source,
        temperatures in kelvin. `charllm validate differences` adds signs and noise. *Table* is a rule: time follows
        FLOPs and the inverse of a clock limit, nothing else moves."""),
    "node power": Part(node_power_points, """Whole nodes of H100 in MLPerf Training results that print power: medians
        of whole runs, evaluation included. Three are immersion-cooled and read on the DC side, one is cooled by air and
        read at the wall."""),
}  # fmt: skip
"""What is scored beside published step times; all of it takes less than a minute."""
PUBLISHED = (
    "Published runs, each with its source. Constants are fitted on these rows (`make fit`), and again without each "
    "family, source and GPU."
)


def score_all(rows: Sequence[Prediction], parts: Iterable[str] = PARTS) -> list[Score]:
    """Return the scores of published rows, as predicted, and of all other parts, predicted here."""
    points = published_points(rows)
    for name in parts:
        found = PARTS[name].points()
        points += with_baselines(found) if PARTS[name].has_table else found
    return [_rounded(score) for score in score_points(points, LEAST_ROWS)]


def _rounded(score: Score) -> Score:
    simpler = None if score.baseline_median is None else _round(score.baseline_median)
    return score._replace(median=_round(score.median), p90=_round(score.p90), mean=_round(score.mean),
                          baseline_median=simpler)  # fmt: skip


def _round(figure: float) -> float:
    return float(f"{figure:.{DIGITS}g}")


def ranked_fraction(rows: Sequence[Prediction]) -> float:
    """Return the share of pairs of one source, model and GPU that differ by 10 % and are ranked correctly."""
    return order_pairs(time_scores(row for row in rows if row.host == "tuned"))[0] or 0.0


def read_scoreboard() -> list[Score]:
    """Read the scores that are committed."""
    with FILE.open(newline="", encoding="utf-8") as file:
        return [_read(row) for row in csv.DictReader(file)]


def _read(row: dict[str, str]) -> Score:
    texts = ("part", "split", "quantity", "by", "group")
    cells: dict[str, Any] = {name: text if name in texts else float(text) if text else None
                             for name, text in row.items()}  # fmt: skip
    return Score(**{**cells, "rows": int(cells["rows"])})


class Change(NamedTuple):
    """A score that differs from the committed one."""

    score: Score
    committed: Score
    worse: bool


def compare(scores: Iterable[Score], committed: Iterable[Score]) -> list[Change]:
    """Return the scores whose median or 90th percentile moved by more than the tolerance."""
    known = {score[:5]: score for score in committed}
    found = []
    for score in scores:
        before = known.get(score[:5])
        if before is not None:
            moved = [_moved(score.median, before.median), _moved(score.p90, before.p90)]
            if any(moved):
                found.append(Change(score, before, worse=max(moved) > 0))
    return found


def _moved(now: float, before: float) -> float:
    """Return by how much a score grew, 0 within the tolerance."""
    grown = now - before
    return grown if abs(grown) > max(WORSE, WORSE_FRACTION * before) else 0.0


def main() -> None:
    """Predict everything again, and write every table and page that follows from it."""
    from charllm.evaluate import difference_errors, intervals, known_runs, predictions
    from charllm.evaluate.accuracy_chart import write_chart
    from charllm.evaluate.accuracy_page import write_page

    predictions.main()
    load_predictions.cache_clear()
    intervals.main()
    errors.cache_clear()
    difference_errors.write()
    read_errors.cache_clear()
    scores = score_all(load_predictions())
    for change in compare(scores, read_scoreboard() if FILE.exists() else ()):
        now, before = change.score, change.committed
        print(f"{'worse' if change.worse else 'better'}: {', '.join(now[:5])}: median {before.median:g} to "
              f"{now.median:g}, 90th percentile {before.p90:g} to {now.p90:g}")  # fmt: skip
    write_rows(FILE, Score._fields, scores)
    write_page()
    write_chart(load_predictions())
    known_runs.main(["--docs"])


if __name__ == "__main__":
    main()
