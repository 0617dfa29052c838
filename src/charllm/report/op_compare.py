"""Two sides of a comparison of ops as text."""

from collections.abc import Sequence

from charllm.report.tables import render_table, wrap_all
from charllm.trace.op_compare import ClassRow, KernelCount, Side
from charllm.units import MICRO, MILLI, format_change

FAR_FRACTION, SMALL_FRACTION, SHOWN_KERNELS = 0.1, 0.01, 6
"""Classes that differ by more than the first, and are more than the second of a step, are listed kernel by kernel."""


def render_ops(first: Side, second: Side, rows: Sequence[ClassRow], notes: Sequence[str]) -> str:
    """Return totals, classes, and the kernels of classes that differ."""
    parts = [_totals(first, second), _classes(first, second, rows)]
    far = [row for row in rows if _is_far(row, first.step_time_s)]
    parts += [_kernels(row.work, side) for row in far for side in (first, second)]
    parts += ["\n".join(wrap_all(f"- {note}" for note in notes))] if notes else []
    return "\n\n".join(parts)


def _is_far(row: ClassRow, step_s: float) -> bool:
    apart = row.difference_fraction is None or abs(row.difference_fraction) > FAR_FRACTION
    return apart and max(row.seconds) > SMALL_FRACTION * step_s


def _percent(before: float | None, after: float | None) -> str:
    return "" if not before or after is None else format_change(after / before - 1)


def _totals(first: Side, second: Side) -> str:
    sides = (first, second)
    launches = [sum(one.launches for one in side.kernels) for side in sides]
    busy_s = [sum(one.seconds for one in side.kernels) for side in sides]
    host_s = [side.host_s for side in sides]
    each_s = [
        None if spent is None or not count else spent / count for spent, count in zip(host_s, launches, strict=True)
    ]
    rows: list[tuple[str, list[float | None], float, int]] = [
        ("step time, ms", [side.step_time_s for side in sides], MILLI, 2),
        ("device, ms", [*busy_s], MILLI, 2),
        ("launches", [*launches], 1.0, 0),
        ("host launches, ms", [*host_s], MILLI, 2),
        ("host per launch, us", [*each_s], MICRO, 1),
    ]
    cells = [
        [name, *("" if value is None else f"{value / unit:.{places}f}" for value in pair), _percent(*pair)]
        for name, pair, unit, places in rows
    ]
    title = f"A step of {first.name} beside {second.name}"
    return render_table(title, ["", _short(first), _short(second), "difference"], cells)


def _short(side: Side) -> str:
    return side.name if len(side.name) <= 16 else f"...{side.name[-13:]}"


def _classes(first: Side, second: Side, rows: Sequence[ClassRow]) -> str:
    cells = [
        [row.work, *(f"{seconds / MILLI:.2f}" for seconds in row.seconds), _percent(*row.seconds),
         *(f"{count:.0f}" for count in row.launches)]
        for row in rows
    ]  # fmt: skip
    columns = ["class", f"ms, {_short(first)}", f"ms, {_short(second)}", "difference", "launches", "launches, second"]
    return render_table("By kernel class", columns, cells)


def _kernels(work: str, side: Side) -> str:
    own: list[KernelCount] = sorted((one for one in side.kernels if one.work == work), key=lambda one: -one.seconds)
    cells = [[one.name, f"{one.launches:.0f}", f"{one.seconds / MILLI:.3f}"] for one in own[:SHOWN_KERNELS]]
    more = f", first {SHOWN_KERNELS} of {len(own)} (--csv lists all)" if len(own) > SHOWN_KERNELS else ""
    return render_table(f"{work}, {side.name}{more}", ["launched by", "launches", "ms"], cells)
