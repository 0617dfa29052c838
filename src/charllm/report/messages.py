"""The messages of a run as text: those of one rank, or those of all ranks beside their traces."""

from collections.abc import Sequence
from itertools import pairwise

from charllm.report.tables import render_table
from charllm.trace.compare import MessageRow, total_by_group
from charllm.units import format_bytes

SHOWN_DIFFERENCES = 20


def render_messages(rows: Sequence[MessageRow], rank: int) -> str:
    """Return the messages of one rank in one step."""
    cells = [
        [row.group, _ranks(row.ranks), row.kind, format_bytes(row.message_bytes), str(row.calls),
         format_bytes(row.calls * row.message_bytes)]
        for row in rows
    ]  # fmt: skip
    columns = ["group", "ranks", "kind", "message", "calls", "total"]
    title = f"Messages of rank {rank} in one step (see --rank, or --csv for all ranks)"
    return render_table(title, columns, cells) if cells else f"Rank {rank} sends nothing"


def render_comparison(rows: Sequence[MessageRow]) -> str:
    """Return simulated and traced messages of one step, by group and kind, then what differs."""
    cells = [
        [group, kind, *_totals(found, traced=False), *_totals(found, traced=True),
         "yes" if all(row.equal for row in found) else "NO"]
        for (group, kind), found in total_by_group(rows).items()
    ]  # fmt: skip
    columns = ["group", "kind", "calls simulated", "bytes simulated", "calls traced", "bytes traced", "equal"]
    ranks = len({row.rank for row in rows})
    parts = [render_table(f"Messages of {ranks} ranks in one step, simulated and traced", columns, cells)]
    different = [row for row in rows if not row.equal]
    if different:
        cells = [
            [str(row.rank), row.group, _ranks(row.ranks), row.kind, str(row.message_bytes), str(row.calls),
             str(row.calls_traced)]
            for row in different[:SHOWN_DIFFERENCES]
        ]  # fmt: skip
        columns = ["rank", "group", "ranks", "kind", "message bytes", "calls simulated", "calls traced"]
        shown = f", first {SHOWN_DIFFERENCES} of {len(different)}" if len(different) > SHOWN_DIFFERENCES else ""
        parts.append(render_table(f"Messages that differ{shown} (--csv lists all)", columns, cells))
    return "\n\n".join(parts)


def _totals(rows: Sequence[MessageRow], *, traced: bool) -> tuple[str, str]:
    calls = [(row.calls_traced or 0) if traced else row.calls for row in rows]
    moved = sum(count * row.message_bytes for count, row in zip(calls, rows, strict=True))
    return f"{sum(calls):,}", f"{moved:,}"


def _ranks(ranks: Sequence[int]) -> str:
    """Write ranks with their stride where they have one: ``0-6/2`` is 0, 2, 4, 6."""
    strides = {after - before for before, after in pairwise(ranks)}
    if len(ranks) < 3 or len(strides) != 1:
        return ",".join(map(str, ranks))
    (stride,) = strides
    return f"{ranks[0]}-{ranks[-1]}" + (f"/{stride}" if stride > 1 else "")
