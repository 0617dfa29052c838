"""Ranks of the paper's configurations that were emulated on a real H200, over what is simulated."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from charllm.evaluate.h200.rank_cases import LATER_RANKS, RANKS
from charllm.evaluate.h200.tables import read_table
from charllm.report.figure import Column, Figure
from charllm.report.page.cases import StudiedCase
from charllm.report.page.quantity import quantity
from charllm.reproduce.looks import Row, Rows, key_of
from charllm.reproduce.paper import Request
from charllm.units import MEGA

PANELS = ("step_time_s", "power_mean_w", "power_peak_sensor_w", "clock_mean_hz")


TAKES = {"ranks_played.csv": RANKS, "later_ranks_played.csv": LATER_RANKS}
"""Readings of ranks of the paper's cluster, and their requests."""
AS_PLAYED = {"base": "nemo", "default_overlap": [], "default_interleaving": False}
"""The profile as it was when they were played."""
OTHERS = ("llama3-8b",)
"""Models that were played and are not the paper's."""


@cache
def _ranks() -> tuple[dict[str, Any], ...]:
    return tuple(
        {
            "name": name,
            "request": {**asked[name][0], "framework": AS_PLAYED},
            **{metric: float(row[metric]) for metric in PANELS[:-1]},
            "clock_mean_hz": float(row["clock_mean_mhz"]) * MEGA,
        }
        for file, asked in TAKES.items()
        for name, row in read_table(file).items()
        if asked[name][0]["model"] not in OTHERS
    )


def emulated_runs() -> list[Request]:
    """Return the runs whose ranks were emulated."""
    return [rank["request"] for rank in _ranks()]


def emulated(_cases: Mapping[str, Sequence[StudiedCase]], rows: Rows) -> list[Figure]:
    """Return emulated ranks beside the simulated run that they belong to."""
    points: list[tuple[str, str, Row]] = []
    for rank in _ranks():
        row = rows.get(key_of(rank["request"]), {})
        if row.get("step_time_s"):
            points += [(rank["name"], "simulated", row), (rank["name"], "emulated", rank)]
    if not points:
        return []
    columns = {
        "rank": Column("rank", [name for name, _, _ in points]),
        "origin": Column("origin", [origin for _, origin, _ in points]),
        **{
            name: Column(
                quantity(name).label,
                [quantity(name).shown(row.get(name)) for _, _, row in points],
                quantity(name).unit,
                3,
            )
            for name in PANELS
        },
    }
    panels = [{"column": name, "label": quantity(name).short or quantity(name).label, "unit": quantity(name).unit}
              for name in PANELS]  # fmt: skip
    errors = sorted(
        abs(row["step_time_s"] / rank["step_time_s"] - 1)
        for rank in _ranks()
        if (row := rows.get(key_of(rank["request"]), {})).get("step_time_s")
    )
    message = (
        f"{len(errors)} ranks, each played for a whole step on an H200 (a batch of 32 or 64): step times of the "
        f"simulated job differ by {100 * errors[len(errors) // 2]:.1f} % at the median, {100 * errors[-1]:.0f} % at "
        "most. An emulated rank plays its transfers and waits as long as they were predicted when it was played. "
        "Simulated power and clock are means over all GPUs of the job, emulated ones those of one rank."
    )
    options = {"row": "rank", "panels": panels, "shape": "origin"}
    conditions = "emulated boards stood alone in their air; simulated at an inlet of 25 C"
    return [Figure("emulated", "multiples", "How do emulated ranks compare?", message, columns, options, conditions)]
