"""A traced run as text: where the time goes, the largest kernels, links, waits, and what to do."""

from collections.abc import Mapping, Sequence
from typing import Any

from charllm.report.tables import render_table, shown_ends, wrap, wrap_all
from charllm.units import GIB, MICRO, format_bytes, format_percent, format_si

SHOWN_KERNELS, SHOWN_LINKS, SHOWN_CLASSES, LONGEST_NAME = 10, 8, 14, 48
IDLE_WORDS = {
    "host": "idle: host launches late",
    "sync": "idle: host waits for the device",
    "kernel_gap": "idle: gaps between kernels",
    "dependency": "idle: other streams or ranks",
    "unknown": "idle: cause unknown",
}
NO_OPERATOR = "idle: outside of operators"
"""What the host does between operators, where there is no device."""


def render_trace(found: Mapping[str, Any]) -> str:
    """Return the report of a traced run."""
    if not found["step_time_s"]:
        return "\n".join(["No step could be read.", *wrap_all(found["warnings"])])
    parts = [
        _head(found),
        _times(found),
        _phases(found["phases"]),
        _launches(found),
        _classes(found),
        _kernels(found),
        _rates(found["rates"]),
        _ranks(found),
        _links(found),
        _waits(found),
    ]
    parts += ["\n".join(wrap(found["advice"]))]
    if found["warnings"]:
        parts.append("\n".join(["Notes:", *wrap_all(f"- {text}" for text in found["warnings"])]))
    return "\n\n".join(part for part in parts if part)


def _head(found: Mapping[str, Any]) -> str:
    ranks, step_s = found["ranks"], found["step_time_s"]
    devices = " and ".join(dict.fromkeys(rank["device"] or "unnamed device" for rank in ranks))
    steps = f"mean of {found['steps']} steps" if found["steps"] > 1 else "one step"
    told = f"{len(ranks)} rank{'s' if len(ranks) > 1 else ''} on {devices}: step time {_write(step_s)}, {steps}"
    return "\n".join(wrap(told + (f"; MFU {format_percent(found['mfu'])}" if found["mfu"] else "") + "."))


def _write(seconds: float) -> str:
    return f"{seconds:.3f} s" if seconds >= 1 else f"{1000 * seconds:.3f} ms"


def _times(found: Mapping[str, Any]) -> str:
    step_s = found["step_time_s"]
    rows = [("compute", found["compute_fraction"] * step_s)]
    rows += [(f"exposed {axis} communication", seconds) for axis, seconds in found["exposed_communication_s"].items()]
    rows += [("exposed copies", found["copy_fraction"] * step_s)]
    words = {**IDLE_WORDS, "host": NO_OPERATOR} if found["tensor_core_fraction"] is None else IDLE_WORDS
    rows += [(words[cause], seconds) for cause, seconds in found["idle_s"].items()]
    shown = [(name, seconds) for name, seconds in rows if seconds > 0]
    shown += [(f"(hidden {axis} communication)", seconds) for axis, seconds in found["hidden_communication_s"].items()]
    cells = [[name, _write(seconds), format_percent(seconds / step_s)] for name, seconds in shown]
    return render_table("Breakdown of the step time, mean over ranks", ["part", "time", "share of step"], cells)


def _phases(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the phases that the program names, such as prefill and decode."""
    cells = [
        [row["phase"], f"{row['times']:g}", _write(row["seconds"]), format_percent(row["busy_fraction"]),
         format_percent(row["share"])]
        for row in rows
    ]  # fmt: skip
    columns = ["phase", "times", "time", "device busy", "share of busy time"]
    return render_table("Phases that the program names, in a step of the first rank", columns, cells) if cells else ""


def _launches(found: Mapping[str, Any]) -> str:
    if not found["launch_s"]:
        return ""
    told = (
        f"The host takes {found['launch_s'] / MICRO:.1f} us for each of {found['kernels_per_step']:,.0f} launches of a "
        f"step; the device waits for late launches {format_percent(found['launch_bound_fraction'])} of the step."
    )
    return "\n".join(wrap(told))


def _classes(found: Mapping[str, Any]) -> str:
    items = list(found["classes"].items())
    cells = [[name, _write(one["seconds"]), format_percent(one["share"])] for name, one in items[:SHOWN_CLASSES]]
    rest = items[SHOWN_CLASSES:]
    if rest:
        seconds, share = (sum(one[key] for _name, one in rest) for key in ("seconds", "share"))
        cells.append([f"{len(rest)} more", _write(seconds), format_percent(share)])
    unknown = format_percent(found["unknown_fraction"])
    return render_table(f"Kernel classes (unknown: {unknown})", ["class", "time", "share of work"], cells)


def _kernels(found: Mapping[str, Any]) -> str:
    cells = [
        [
            shorten_kernel(one["name"]),
            one["class"],
            one["operator"] or "-",
            f"{one['calls']:,.0f}",
            _write(one["seconds"]),
            format_percent(one["share"]),
        ]
        for one in found["kernels"][:SHOWN_KERNELS]
    ]
    title = f"Largest kernels of rank {found['ranks'][0]['rank']} in a step (--csv lists all)"
    columns = ["kernel", "class", "operator", "calls", "time", "share of work"]
    return render_table(title, columns, cells, drop=("operator", "calls"))


def _rates(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rates of products and copies by shape; the model's stand for one call alone at the highest clock."""
    cells = []
    for row in rows[:SHOWN_KERNELS]:
        rate, unit = (row["flop_per_s"], "FLOP/s") if row["flop_per_s"] else (row["bytes_per_s"], "B/s")
        predicted = row["predicted_seconds"]
        model = (
            [format_si(rate * row["seconds"] / predicted, unit), f"{row['seconds'] / predicted:.2f}"]
            if predicted
            else ["-", "-"]
        )
        cells.append([row["operator"].removeprefix("aten::"), row["shape"], row["dtype"].removeprefix("c10::"),
                      f"{row['calls']:,.0f}", _write(row["seconds"]), format_si(rate, unit), *model])  # fmt: skip
    title = "Rates by shape (products: m x n x k)"
    columns = ["operator", "shape", "type", "calls", "time", "rate", "model", "time / model"]
    return render_table(title, columns, cells, drop=("type", "calls", "model", "rate")) if cells else ""


def shorten_kernel(name: str) -> str:
    """Return a kernel's name without what all of them have, as far as a table has room."""
    plain = name.removeprefix("void ").replace("at::native::", "").replace("(anonymous namespace)::", "")
    return plain if len(plain) <= LONGEST_NAME else plain[: LONGEST_NAME - 3] + "..."


def _ranks(found: Mapping[str, Any]) -> str:
    if len(found["ranks"]) < 2:
        return ""
    shown, left_out = shown_ends(found["ranks"], "ranks")
    waits = {one["rank"]: one for one in found["waits"] or []}
    names = ("compute_fraction", "exposed_communication_fraction", "overlapped_communication_fraction", "idle_fraction")
    cells = [
        [str(one["rank"]), _write(one["step_time_s"]), *(format_percent(one[name]) for name in names),
         _write(waits[one["rank"]]["wait_s"]) if one["rank"] in waits else "-",
         _write(waits[one["rank"]]["caused_wait_s"]) if one["rank"] in waits else "-"]
        for one in shown
    ]  # fmt: skip
    columns = ["rank", "step", "compute", "exposed", "overlapped", "idle", "waits in collectives", "makes others wait"]
    return render_table(f"Ranks{left_out}", columns, cells)


def _links(found: Mapping[str, Any]) -> str:
    rows: Sequence[Mapping[str, Any]] = found["links"][:SHOWN_LINKS]
    if not rows:
        return ""
    cells = [
        [row["axis"] or "-", row["kind"], str(row["ranks"]), format_bytes(row["size_bytes"]), f"{row['calls']:,.1f}",
         _write(row["seconds"]), format_si(row["bus_bytes_per_s"], "B/s"), format_si(row["best_bytes_per_s"], "B/s"),
         format_si(row["peak_bytes_per_s"], "B/s") if row["peak_bytes_per_s"] else "-"]
        for row in rows
    ]  # fmt: skip
    columns = ["axis", "kind", "ranks", "message", "calls", "time", "bus bandwidth", "fastest tenth", "peak"]
    table = render_table("Collectives of a rank and step, by message size", columns, cells)
    small = found["small_message_fraction"]
    if not small:
        return table
    told = f"{format_percent(small)} of their time is in messages that reach less than half the bandwidth of the best."
    return "\n".join([table, *wrap(told)])


def _waits(found: Mapping[str, Any]) -> str:
    lines = [
        f"{axis} collectives: {_write(one['wait_s'])} waiting for other ranks, {_write(one['transfer_s'])} transfer."
        for axis, one in (found["waits_by_axis"] or {}).items()
    ]
    if found["straggler"]:
        one = found["straggler"]
        lines.append(f"Rank {one['rank']} makes others wait {_write(one['caused_wait_s'])} per step ({one['cause']}).")
    for one in found["bubbles"][:SHOWN_LINKS]:
        stage = f"Stage {one['stage']}, rank" if one["stage"] is not None else "Rank"
        lines.append(
            f"{stage} {one['rank']}: bubble {_write(one['bubble_s'])} ({format_percent(one['fraction'])} of the step)."
        )
    return "\n".join(wrap_all(lines))


def render_snapshot(one: Mapping[str, Any]) -> str:
    """Return who held a GPU's memory at its peak, beside what is predicted."""
    predicted = one["predicted"] or {}
    measures = [
        ("at the peak", "peak_bytes", "allocated_bytes"),
        ("held by the allocator", "peak_reserved_bytes", "reserved_bytes"),
        ("when it was written", "allocated_bytes", ""),
    ]  # fmt: skip
    rows = [[words, _gib(one[name]), _gib(predicted.get(other)), _ratio(one[name], predicted.get(other))]
            for words, name, other in measures]  # fmt: skip
    name = f"{one['path']}: memory of GPU {one['device']}, rank {one['rank']}, GiB"
    parts = [render_table(name, ["", "snapshot", "predicted", "predicted / snapshot"], rows)]
    share = sum(one["origins"].values()) or 1
    cells = [[origin, _gib(size), format_percent(size / share)] for origin, size in one["origins"].items()]
    parts.append(render_table("At the peak, by who allocated it", ["by", "GiB", "share"], cells))
    if predicted:
        kinds = [[kind, _gib(size)] for kind, size in predicted["kinds"].items()]
        parts.append(render_table(f"Predicted for stage {predicted['stage']}", ["kind", "GiB"], kinds))
    sites = [[row["site"], f"{row['tensors']:,}", _gib(row["bytes"])] for row in one["sites"]]
    return "\n\n".join([*parts, render_table("Largest at the peak, by line", ["line", "tensors", "GiB"], sites)])


def _gib(size: float | None) -> str:
    return "-" if size is None else f"{size / GIB:.2f}"


def _ratio(size: float | None, predicted: float | None) -> str:
    return f"{predicted / size:.2f}" if size and predicted else "-"
