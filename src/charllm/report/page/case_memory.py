"""Does every case fit?"""

from collections.abc import Sequence

from charllm.report.figure import Column, Figure
from charllm.report.page.bars import bar_options
from charllm.report.page.cases import StudiedCase, full_label, groups, select, title
from charllm.report.page.memory import USED, WORDS
from charllm.report.page.quantity import write_list
from charllm.result.metrics import KINDS
from charllm.units import GIB, format_percent

QUESTION = "Does every case fit in memory?"
NOTHING = "No case has a memory breakdown."


def case_memory(cases: Sequence[StudiedCase], conditions: str = "") -> list[Figure]:
    """Return the memory of every case against its GPU's: a figure for each size of memory among them."""
    known = [case for case in cases if parts_bytes(case)]
    if not known:
        return [Figure("memory", "stacked-bars", QUESTION, "", missing=NOTHING)]
    by_size: dict[float | None, list[StudiedCase]] = {}
    for case in known:
        by_size.setdefault(case.machine.get("memory_bytes"), []).append(case)
    return [
        _figure(listed, size, at, _question(size, len(by_size)), conditions)
        for at, (size, listed) in enumerate(by_size.items())
    ]


def parts_bytes(case: StudiedCase) -> dict[str, float]:
    """Return the memory of the worst rank by kind, or all of it as used where only that was read."""
    found = {kind: case.values.get(f"memory_breakdown_bytes.{kind}") for kind in KINDS}
    known = {kind: size for kind, size in found.items() if size is not None}
    peak_bytes = case.values.get("memory_peak_bytes")
    return known or ({USED: peak_bytes} if peak_bytes is not None else {})


def _question(size_bytes: float | None, sizes: int) -> str:
    if sizes == 1 or size_bytes is None:
        return QUESTION
    return f"{QUESTION.removesuffix('?')} of {size_bytes / GIB:.1f} GiB?"


def _figure(cases: Sequence[StudiedCase], size_bytes: float | None, at: int, question: str, conditions: str) -> Figure:
    shown, left_out = select(cases)
    alone = len(groups(shown)) == 1
    rows = [
        (case, kind, size)
        for group in groups(shown).values()
        for case in group
        for kind, size in parts_bytes(case).items()
        if size > 0
    ]
    columns = {
        "group": Column("model", [case.group for case, _, _ in rows]),
        "bar": Column("case", [full_label(case, alone) for case, _, _ in rows]),
        "part": Column("kind", [kind for _, kind, _ in rows]),
        "value": Column("memory of the worst rank", [size / GIB for _, _, size in rows], "GiB"),
    }
    words = {kind: WORDS.get(kind, kind) for kind in (*KINDS, USED)}
    options = bar_options(words, "value", "GiB", "memory", group="group")
    if size_bytes is not None:
        options["limit"] = {"value": size_bytes / GIB, "label": f"GPU memory, {size_bytes / GIB:.1f} GiB"}
    name = "memory" if at == 0 else f"memory-{at + 1}"
    return Figure(name, "stacked-bars", question, left_out + _message(cases, size_bytes), columns, options, conditions)


def _message(cases: Sequence[StudiedCase], size_bytes: float | None) -> str:
    need = {id(case): _need_bytes(case) for case in cases}
    worst = max(cases, key=lambda case: need[id(case)])
    parts = parts_bytes(worst)
    kind = max(parts, key=lambda kind: parts[kind] if kind != "reserve" else 0.0)
    needs = f"{title(worst)} needs most: {need[id(worst)] / GIB:.1f} GiB"
    largest = (
        "" if kind == USED else f", of which {format_percent(parts[kind] / need[id(worst)], 0)} {WORDS.get(kind, kind)}"
    )
    limit = f" of {size_bytes / GIB:.1f} GiB" if size_bytes else ""
    misfits = [case for case in cases if case.values.get("fits") is False]
    told = (
        f"{len(misfits)} do not fit: {write_list([title(case) for case in misfits])}."
        if misfits
        else "All of them fit."
    )
    return f"{told} {needs}{limit}{largest}."


def _need_bytes(case: StudiedCase) -> float:
    """Return what the worst rank needs; of a measured case what it used."""
    need_bytes = case.values.get("memory_need_bytes")
    return sum(parts_bytes(case).values()) if need_bytes is None else float(need_bytes)
