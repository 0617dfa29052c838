"""Ranks of the paper's configurations that were emulated on a real H200, drawn over simulated points."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from statistics import median
from typing import Any, NamedTuple

from charllm.evaluate.h200.rank_cases import LATER_RANKS, RANKS
from charllm.evaluate.h200.tables import read_table
from charllm.report.figure import Column, Figure
from charllm.report.page.cases import StudiedCase
from charllm.report.page.quantity import metric_column
from charllm.reproduce.looks import Row, Rows, key_of, of_rank
from charllm.reproduce.paper import Request
from charllm.result.metrics import METRICS, quantity, selected
from charllm.sweep.axes import list_settings
from charllm.units import MEGA, format_percent

PANELS = selected(
    "step_time_s", "power_mean_w", "power_peak_sensor_w", "clock_mean_hz", "temperature_mean_c", "temperature_peak_c",
)  # fmt: skip
SCORED = PANELS[:4]
WHATEVER_THE_BATCH = selected("power_peak_sensor_w", "clock_mean_hz")
"""Metrics of a rank that hardly depend on the batch; mean power and temperature depend on the share of bubbles."""
LARGEST_BUBBLE = 0.1
"""Pipeline bubble over compute up to which the mean clock counts as independent of the batch."""
TAKES = {"ranks_played.csv": RANKS, "later_ranks_played.csv": LATER_RANKS}
"""Readings of ranks of the paper's cluster, and their requests."""
AS_EMULATED = {"base": "nemo", "default_overlap": [], "default_interleaving": False}
"""The profile as it was when they were emulated."""
OTHERS = ("llama3-8b",)
"""Emulated models that are not the paper's."""
BATCH, GPUS = "training.global_batch_size", 32
ORIGINS = ("simulated", "emulated")


class EmulatedRank(NamedTuple):
    """One rank that a board has emulated, and what the board read."""

    name: str
    request: Request
    rank: int
    read: Row

    @property
    def settings(self) -> frozenset[tuple[str, str]]:
        """What was run, but for the batch and the software profile."""
        return _settings(list_settings(self.request))

    @property
    def bubble_fraction(self) -> float:
        """Bubble over compute of a 1F1B pipeline: (stages - 1) / microbatches."""
        asked = list_settings(self.request)
        tp, pp = (int(asked.get(f"parallelism.{name}") or 1) for name in ("tp", "pp"))
        replicas = GPUS / (tp * pp)
        microbatches = asked[BATCH] / asked["training.micro_batch_size"] / replicas
        return float((pp - 1) / microbatches)

    def without_bubble(self, name: str) -> Row:
        """Return what was read of a metric that does not depend on the batch; nothing where its bubble is large."""
        depends = name == "clock_mean_hz" and self.bubble_fraction > LARGEST_BUBBLE
        return {} if depends else {name: self.read[name]}


def _settings(settings: Mapping[str, Any]) -> frozenset[tuple[str, str]]:
    """Return settings that differ from the defaults of the paper's runs, in any order."""
    usual = {"training.micro_batch_size": 1, "training.recompute": "none", "training.lora_rank": 0}
    asked = {name: value for name, value in settings.items() if not name.startswith("framework") and name != BATCH}
    degrees = {name for name, value in asked.items() if name.startswith("parallelism.") and value in (None, 1)}
    return frozenset(
        (name, str(value)) for name, value in asked.items() if usual.get(name) != value and name not in degrees
    )


@cache
def _ranks() -> tuple[EmulatedRank, ...]:
    return tuple(
        EmulatedRank(
            name,
            {**asked[name][0], "framework": AS_EMULATED},
            asked[name][1],
            {
                **{metric: float(row[metric]) for metric in PANELS if metric in row},
                "clock_mean_hz": float(row["clock_mean_mhz"]) * MEGA,
            },
        )
        for file, asked in TAKES.items()
        for name, row in read_table(file).items()
        if asked[name][0]["model"] not in OTHERS
    )


def emulated_runs() -> list[Request]:
    """Return the ranks that were emulated, as requests: each is predicted for the same job and batch."""
    return [of_rank(one.request, one.rank) for one in _ranks()]


def emulated(_cases: Mapping[str, Sequence[StudiedCase]], rows: Rows) -> list[Figure]:
    """Return emulated ranks beside the prediction for the same rank, at the same batch, on the same single board."""
    pairs = [
        (one, row) for one in _ranks() if (row := rows.get(key_of(of_rank(one.request, one.rank)), {})).get(PANELS[0])
    ]
    if not pairs:
        return []
    points = [(one.name, origin, row) for one, said in pairs
              for origin, row in zip(ORIGINS, (said, one.read), strict=True)]  # fmt: skip
    columns = {
        "rank": Column("rank", [name for name, _, _ in points]),
        "origin": Column("origin", [origin for _, origin, _ in points]),
        **{name: metric_column(name, [row for _, _, row in points], 3) for name in PANELS},
    }
    panels = [{"column": name, "label": quantity(name).brief, "unit": quantity(name).unit}
              for name in PANELS]  # fmt: skip
    errors = {
        METRICS[name].brief: median(abs(said[name] / one.read[name] - 1) for one, said in pairs) for name in SCORED
    }
    told = ", ".join(f"{word} {format_percent(error)}" for word, error in errors.items())
    message = (
        f"{len(pairs)} ranks, each emulated for a whole step on one H200 (global batch 32 or 64) and predicted for the "
        f"same rank and batch. Median error: {told}. Transfers and waits of an emulated rank last as long as they were "
        "predicted when it was emulated."
    )
    options = {"row": "rank", "panels": panels, "shape": "origin"}
    conditions = "Both are one board alone, with no GPU upstream. Numbers on the right are the simulated ones."
    question = "How do simulated ranks compare with emulated ones?"
    return [Figure("emulated", "multiples", question, message, columns, options, conditions)]


def with_emulated(figure: Figure, cases: Sequence[StudiedCase]) -> Figure:
    """Draw emulated ranks over the rows of the same configuration, in the panels that do not depend on the batch."""
    shown = {(case.group, case.label): _settings(case.settings) for case in cases}
    over = [(place, one) for place, settings in shown.items() for one in _ranks() if one.settings == settings]
    if not over or not set(WHATEVER_THE_BATCH) <= set(figure.columns):
        return figure
    added: dict[str, Sequence[Any]] = {name: [None] * len(over) for name in figure.columns}
    added["group"], added["case"] = ([place[at] for place, _ in over] for at in (0, 1))
    for name in WHATEVER_THE_BATCH:
        added[name] = metric_column(name, [one.without_bubble(name) for _, one in over], 3).values
    columns = {name: replace(column, values=[*column.values, *added[name]]) for name, column in figure.columns.items()}
    points = len(figure.columns["case"].values)
    columns["origin"] = Column("origin", [ORIGINS[0]] * points + [ORIGINS[1]] * len(over))
    told = (
        f"{len(over)} configurations have an emulated rank (one H200, global batch 32 or 64 instead of 128). Its peak "
        "power is drawn over the simulated one, and its mean clock where the bubble is below "
        f"{format_percent(LARGEST_BUBBLE, 0)}."
    )
    return replace(figure, columns=columns, options={**figure.options, "shape": "origin"},
                   message=f"{figure.message} {told}")  # fmt: skip
