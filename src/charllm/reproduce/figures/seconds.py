"""Where the time goes: by configuration (figure 10) and by stage (figure 15)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from charllm.report.figure import Column, Figure
from charllm.report.page.case_seconds import case_seconds
from charllm.report.page.cases import StudiedCase, conditions_of
from charllm.reproduce.looks import Rows
from charllm.reproduce.paper import H200, MICROBATCH
from charllm.timeline.labels import LABEL_WORDS, LABELS

SHOWN = ("tp2-pp16", "tp8-pp4")
SIZES = (1, 4)


def kernel_seconds(cases: Mapping[str, Sequence[StudiedCase]], _rows: Rows) -> list[Figure]:
    """Return where the seconds of a step go, with and without recomputation."""
    listed = [case for case in cases.get(H200, ()) if case.name.endswith((" / base", " / act"))]
    if not listed:
        return []
    figure = case_seconds(listed, conditions_of(listed))
    return [
        replace(
            figure,
            name="figure-10",
            question="Figure 10: breakdown of the step time, without (base) and with recomputation (act)",
            message=f"{figure.message} Each instant has one label, and waiting is separate from exposed communication. "
            "The artifact sums kernel durations over all streams, which hides overlap, bubbles and waits.",
        )
    ]


def stage_seconds(cases: Mapping[str, Sequence[StudiedCase]], _rows: Rows) -> list[Figure]:
    """Return the seconds of every stage of GPT3-175B, microbatches of 1 and 4 side by side, stages in order."""
    rows: list[tuple[str, str, float]] = []
    for strategy in SHOWN:
        for size in SIZES:
            case = next(
                (one for one in cases.get(MICROBATCH, ()) if one.name == f"gpt3-175b {strategy} / mbs {size}"), None
            )
            for stage, label, seconds in _stages(case):
                rows.append((f"{strategy} mbs {size}, stage {stage}", label, seconds))
    if not rows:
        return []
    columns = {
        "bar": Column("stage", [bar for bar, _, _ in rows]),
        "group": Column("run", [bar.partition(",")[0] for bar, _, _ in rows]),
        "part": Column("part", [part for _, part, _ in rows]),
        "seconds": Column("time", [seconds for _, _, seconds in rows], "s", 3),
    }
    options = {"bar": "bar", "group": "group", "part": "part", "value": "seconds", "order": list(LABELS),
               "palette": "part", "labels": LABEL_WORDS, "unit": "s", "horizontal": True}  # fmt: skip
    message = (
        "Pipeline stages of GPT3-175B in order; the artifact's plot scrambles them (file names sorted as text). "
        "Larger microbatches lengthen the pipeline bubble."
    )
    question = "Figure 15: breakdown of the step time by pipeline stage, microbatches 1 and 4"
    return [Figure("figure-15", "stacked-bars", question, message, columns, options)]


def _stages(case: StudiedCase | None) -> list[tuple[int, str, float]]:
    view = case.open_view() if case is not None and case.ran else None
    table: Mapping[str, Sequence[Any]] = (view.table("breakdown") if view is not None else None) or {}
    rows = zip(*(table.get(name, ()) for name in ("stage", "label", "seconds")), strict=True)
    return [(int(stage), str(label), float(seconds)) for stage, label, seconds in rows if seconds > 0]
