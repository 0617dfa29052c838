"""Where the time goes, by configuration and stage (figures 10, 15), and what each link carries (figure 5)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from charllm.catalog.resolve import resolve_run
from charllm.report.figure import Column, Figure
from charllm.report.page.case_links import case_links
from charllm.report.page.case_seconds import case_seconds
from charllm.report.page.cases import StudiedCase, conditions_of, title
from charllm.reproduce.figures.heat import front_to_rear, gpu_map
from charllm.reproduce.looks import Rows
from charllm.reproduce.paper import H200, MICROBATCH
from charllm.result.metrics import LINK_WORDS, LINKS
from charllm.timeline.labels import LABEL_WORDS, LABELS
from charllm.units import GIGA
from charllm.workload.node_traffic import gpu_traffic
from charllm.workload.step import build_step

MODEL, ENDS = "gpt3-175b ", " / mbs 1"
SIZES = (1, 4)


def kernel_seconds(cases: Mapping[str, Sequence[StudiedCase]], _rows: Rows) -> list[Figure]:
    """Return where the seconds of a step go, with and without recomputation."""
    listed = [case for case in cases.get(H200, ()) if case.name.endswith((" / base", " / act"))]
    if not listed:
        return []
    note = (
        "Each instant has one label, and waiting is separate from exposed communication. The artifact sums kernel "
        "durations over all streams, which hides overlap, bubbles and waits."
    )
    question = "Figure 10: breakdown of the step time, without (base) and with recomputation (act)"
    figure = case_seconds(listed, conditions_of(listed))
    found = [replace(figure, name="figure-10", question=question, message=f"{figure.message} {note}")]
    for sharded, words in ((False, "model parallelism"), (True, "FSDP")):
        figure = case_seconds([case for case in listed if ("fsdp" in case.name) == sharded], conditions_of(listed))
        if not figure.missing:
            name = f"figure-10-seconds{'-fsdp' if sharded else ''}"
            options = {**figure.options, "value": "seconds", "unit": "s", "total": True}
            found.append(replace(figure, name=name, question=f"{question}, seconds: {words}", message=note,
                                 options=options))  # fmt: skip
    return found


def stage_seconds(cases: Mapping[str, Sequence[StudiedCase]], _rows: Rows) -> list[Figure]:
    """Return the seconds of every stage of GPT3-175B, a figure for each strategy, microbatches of 1 and 4, in order."""
    strategies = [case.name.removeprefix(MODEL).removesuffix(ENDS) for case in cases.get(MICROBATCH, ())
                  if case.name.startswith(MODEL) and case.name.endswith(ENDS)]  # fmt: skip
    found = [_stage_figure(strategy, cases.get(MICROBATCH, ())) for strategy in strategies]
    return [figure for figure in found if figure is not None]


def _stage_figure(strategy: str, cases: Sequence[StudiedCase]) -> Figure | None:
    rows = [
        (size, stage, label, seconds)
        for size in SIZES
        for case in cases
        if case.name == f"{MODEL}{strategy} / mbs {size}"
        for stage, label, seconds in _stages(case)
    ]
    if not rows:
        return None
    columns = {
        "bar": Column("stage", [f"mbs {size}, stage {stage}" for size, stage, _, _ in rows]),
        "group": Column("run", [f"mbs {size}" for size, _, _, _ in rows]),
        "part": Column("part", [label for _, _, label, _ in rows]),
        "seconds": Column("time", [seconds for _, _, _, seconds in rows], "s", 3),
    }
    options = {"bar": "bar", "group": "group", "part": "part", "value": "seconds", "order": list(LABELS),
               "palette": "part", "labels": LABEL_WORDS, "unit": "s", "horizontal": True}  # fmt: skip
    message = (
        "Pipeline stages of GPT3-175B in order; the artifact's plot scrambles them (file names sorted as text). "
        "Larger microbatches lengthen the pipeline bubble."
    )
    question = f"Figure 15: breakdown of the step time by pipeline stage, microbatches 1 and 4, {strategy}"
    return Figure(f"figure-15-{strategy}", "stacked-bars", question, message, columns, options)


def _stages(case: StudiedCase | None) -> list[tuple[int, str, float]]:
    view = case.open_view() if case is not None and case.ran else None
    table: Mapping[str, Sequence[Any]] = (view.table("breakdown") if view is not None else None) or {}
    rows = zip(*(table.get(name, ()) for name in ("stage", "label", "seconds")), strict=True)
    return [(int(stage), str(label), float(seconds)) for stage, label, seconds in rows if seconds > 0]


def traffic(cases: Mapping[str, Sequence[StudiedCase]], _rows: Rows) -> list[Figure]:
    """Return bytes sent per GPU and step by link, and achieved bandwidth against message size."""
    listed = [case for case in cases.get(H200, ()) if case.name.endswith(" / base") and case.ran and case.gpus]
    if not listed:
        return []
    rows = [(case, link, _sent_gb(case, link)) for case in listed for link in LINKS if _sent_gb(case, link)]
    columns = {
        "group": Column("model", [case.group for case, _, _ in rows]),
        "bar": Column("configuration", [title(case).removesuffix(" / base") for case, _, _ in rows]),
        "part": Column("link", [LINK_WORDS[link] for _, link, _ in rows]),
        "sent": Column("sent per GPU and step", [sent for _, _, sent in rows], "GB", 3),
    }
    options = {"bar": "bar", "part": "part", "value": "sent", "group": "group", "unit": "GB", "palette": "series",
               "horizontal": True}  # fmt: skip
    most = max(rows, key=lambda row: row[2])
    message = (
        f"All links of a GPU, counted at the sender. Maximum: {title(most[0])}, {most[2]:.0f} GB over "
        f"{LINK_WORDS[most[1]]}. The artifact reads one of 18 NVLinks, and only 32 bits of its counters."
    )
    question = "Figure 5: data sent per GPU and step, by link"
    figures = [Figure("figure-5", "stacked-bars", question, message, columns, options, conditions_of(listed))]
    scatter = case_links(listed, conditions_of(listed))
    return [
        *figures,
        *_sent_by_gpu(listed),
        replace(scatter, name="figure-5-messages", question="Figure 5: achieved bandwidth by message size"),
    ]


MAPPED = {
    "nvlink": ("inside", "NVLink", ""),
    "pcie": (
        "outside",
        "PCIe, to its adapter",
        " Rings leave a node from one GPU; which one NCCL chooses is not known.",
    ),
}
"""Suffix of a figure's name: the part of GpuTraffic that it shows, its words, and what is assumed."""


def _sent_by_gpu(listed: Sequence[StudiedCase]) -> list[Figure]:
    """Return heat maps of what every GPU sends over each kind of link."""
    maps = []
    for sharded, words in ((False, ""), (True, ", FSDP")):
        maps += _maps_of([case for case in listed if ("fsdp" in case.name) == sharded], words, "-fsdp" * sharded)
    return maps


def _maps_of(listed: Sequence[StudiedCase], which: str, ends: str) -> list[Figure]:
    sent: dict[str, list[tuple[str, str, float]]] = {suffix: [] for suffix in MAPPED}
    for case in listed:
        view = case.open_view()
        if view is None:
            continue
        run = resolve_run(view.result.spec)
        found = gpu_traffic(build_step(run))
        for place, row in front_to_rear(view):
            gpu = row["node"] * run.cluster.node.gpus + row["slot"]
            for suffix, (part, _words, _note) in MAPPED.items():
                amount = float(getattr(found, part)[gpu]) / GIGA
                sent[suffix].append((title(case).removesuffix(" / base"), place, amount))
    return [
        gpu_map(f"figure-5-{suffix}{ends}", f"Figure 5: data sent by every GPU in a step over {words}{which}",
                sent[suffix], "sent", "GB", conditions_of(listed), note)
        for suffix, (_part, words, note) in MAPPED.items() if sent[suffix]
    ]  # fmt: skip


def _sent_gb(case: StudiedCase, link: str) -> float:
    sent = case.values.get(f"link_bytes.{link}")
    return float(sent) / (case.gpus or 1.0) / GIGA if sent else 0.0
