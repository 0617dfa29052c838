"""Does it fit? Memory of one GPU of each stage by kind, against the size of the GPU."""

from charllm.report.figure import Column, Figure
from charllm.report.page.bars import bar_options
from charllm.report.page.view import RunView, missing
from charllm.report.tables import shown_ends
from charllm.result.answers import answer_memory, gpu_table, memory_size_bytes
from charllm.result.metrics import KINDS
from charllm.units import GIB

NAME, KIND, QUESTION = "memory", "stacked-bars", "Does it fit in memory?"
USED = "used"
"""The one kind of a measured run: what the device shows as used."""
WORDS = {
    "reserve": "cache of the allocator",
    "communication": "communication buffers",
    "context": "context and kernels",
    USED: "used (as the device shows)",
}
"""Kinds that are not called by their own name."""


def memory_figure(run: RunView) -> Figure:
    """Return memory by kind, one bar for each stage; for each GPU where only its sum was read."""
    bars = _by_stage(run) or _worst_rank(run) or _measured(run)
    if not bars:
        return missing(NAME, KIND, QUESTION, run.why_not("memory_peak_bytes", "memory"))
    shown, left_out = shown_ends(list(bars), "bars")
    order = [kind for kind in (*KINDS, USED) if any(bars[bar].get(kind, 0.0) > 0 for bar in shown)]
    cells = [(bar, kind, bars[bar].get(kind, 0.0) / GIB) for bar in shown for kind in order]
    columns = {
        "bar": Column("stage or GPU", [bar for bar, _kind, _size in cells]),
        "kind": Column("kind", [kind for _bar, kind, _size in cells]),
        "size": Column("memory", [size for _bar, _kind, size in cells], "GiB", 4),
    }
    words = {kind: WORDS.get(kind, kind) for kind in order}
    options = bar_options(words, "size", "GiB", "memory", part="kind")
    has_bytes = memory_size_bytes(run.result.spec)
    if has_bytes:
        options["limit"] = {
            "value": has_bytes / GIB,
            "label": f"{gpu_table(run.result.spec)['name']}: {has_bytes / GIB:.1f} GiB",
        }
    return Figure(NAME, KIND, QUESTION, _message(run, bars) + left_out, columns, options, run.conditions)


def _by_stage(run: RunView) -> dict[str, dict[str, float]]:
    table = run.table("memory")
    if not table:
        return {}
    return {
        f"stage {stage}": {kind: table[f"{kind}_bytes"][place] for kind in KINDS}
        for place, stage in enumerate(table["stage"])
    }


def _worst_rank(run: RunView) -> dict[str, dict[str, float]]:
    """Return the one rank that the metrics describe, where a run was stored without its tables."""
    kinds, rank = run.result.metrics.get("memory_breakdown_bytes"), run.result.metrics.get("memory_rank")
    return {f"rank {rank}": kinds} if kinds else {}


def _worst_stage(run: RunView) -> str:
    """Name the stage of the worst rank, where each stage has a bar."""
    table, rank = run.table("memory") or {}, run.result.metrics.get("memory_rank")
    ranks = list(table.get("rank", ()))
    return f"stage {table['stage'][ranks.index(rank)]}" if rank in ranks else ""


def _measured(run: RunView) -> dict[str, dict[str, float]]:
    rows = [row for row in run.result.gpus if row.get("memory_peak_bytes") is not None]
    many = len({row.get("node") for row in rows}) > 1
    return {
        (f"node {run.node_name(row['node'])} " if many else "") + f"GPU {row['slot']}": {USED: row["memory_peak_bytes"]}
        for row in rows
    }


def _message(run: RunView, bars: dict[str, dict[str, float]]) -> str:
    """Say whether it fits, and what takes most on the fullest GPU, or what would fit."""
    fullest = _worst_stage(run) or max(bars, key=lambda bar: sum(bars[bar].values()))
    kind = max(bars[fullest], key=lambda name: bars[fullest][name])
    answer = answer_memory(run.result)
    if kind == USED:
        return f"Peak {answer}, as the device shows it."
    text = f"{answer[:1].upper()}{answer[1:]}."
    if run.misfit:
        return " ".join([text, *run.misfit])
    size_gib = bars[fullest][kind] / GIB
    return f"{text} The fullest is {fullest}; its largest part is {WORDS.get(kind, kind)} ({size_gib:.1f} GiB)."
