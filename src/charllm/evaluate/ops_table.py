"""Read what was measured of single ops: the table `charllm bench ops` writes, or the short one with sizes in a, b, c.

The short layout (no `dims`): a, b, c are m, n, k of a product; batch, heads and length of attention (key-value heads in
the name, as in b1h64kv8s8192; head size 128); MiB of a copy or an addition in place; rows and columns; elements.
A grouped product has `experts` groups of a rows each; a skewed one shares the same rows out unevenly. Without
temp_start_c an op starts as warm as the one before left the GPU.
Watts are the energy counter's mean, with two exceptions, neither for bursts, whose rhythm may beat with the readings:
where the table itself bounds that mean no better than 3 %, the mean of the instant readings; in windows below 2 s
without such a bound, the middle of both, as the counter lags by 0.1 s and instant readings see a quarter of the time.
"""

import csv
import io
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from charllm.errors import SpecError
from charllm.gpu.shape import DIMENSIONS, PRECISIONS, KernelShape
from charllm.spec.request import read_text
from charllm.units import MEGA, MIB

Row = Mapping[str, str]

NEEDED = ("kind", "name", "dtype", "window_s")
SIZES = ("a", "b", "c")
HEAD_DIM = 128
SHORT_KINDS = {
    "attn_fwd": "attention",
    "attn_fwdbwd": "attention_both",
    "layernorm": "norm",
    "adamw_fused": "optimizer",
    "grouped_gemm_skewed": "grouped_gemm",
}
SINGLE_KINDS = {
    "gemm": "gemm", "gemm_dgrad": "gemm", "gemm_wgrad": "gemm", "bmm": "gemm", "scaled_mm": "gemm", "router": "gemm",
    "grouped": "grouped_gemm", "grouped_dgrad": "grouped_gemm", "grouped_wgrad": "grouped_wgrad",
    "attention": "attention", "attention_backward": "attention_backward",
    "rms_norm": "rmsnorm", "rms_norm_backward": "rmsnorm_backward", "layer_norm": "norm",
    "layer_norm_backward": "norm_backward", "cat_halves": "cat", "bf16_to_fp32": "to_fp32", "fp32_to_bf16": "to_16bit",
    "accumulate_fp32": "accumulate", "zero": "fill",
    **{name: name for name in ("copy", "add", "gelu", "gelu_backward", "silu", "silu_backward", "dropout")},
}  # fmt: skip
"""Kinds of a table of single kernels (evaluate/h200/readings/single_kernels.csv) that a KernelShape can say."""
BACKENDS = {"flash": "flash2", "default": "best", "cudnn": "best"}
SHORT_WINDOW_S, LARGE_ERROR_FRACTION = 2.0, 0.03
LONGEST_WINDOW_S = 3600.0
LARGEST_SIZE = 2**40


class Measured(NamedTuple):
    """What was read; None where nothing was."""

    seconds_s: float | None
    power_w: float | None
    clock_hz: float | None
    peak_w: float | None


class OpRow(NamedTuple):
    """One op as it was run, and what was read of it."""

    name: str
    shape: KernelShape
    start_c: float | None
    """None: as warm as the op before left the GPU."""
    window_s: float
    on_s: float
    """Length of a burst; 0 where the op ran on and on."""
    period_s: float
    measured: Measured


class SkippedOp(NamedTuple):
    """A row that says nothing about one kernel."""

    name: str
    reason: str


class Unusable(Exception):
    """Why a row is left out."""


def read_ops(path: str) -> tuple[list[OpRow], list[SkippedOp]]:
    """Read a table; a row that is no single kernel is left out with the reason, a value that is none is refused."""
    given, rows = _read_table(path)
    wanted = (*NEEDED, *(("dims",) if "dims" in given else SIZES))
    missing = [name for name in wanted if name not in given]
    if missing:
        raise SpecError("file", path, f"a table of ops with the columns {', '.join(wanted)} (no {', '.join(missing)})")
    kept, skipped = [], []
    for number, row in enumerate(rows, start=2):
        try:
            kept.append(_read_row(row, f"row {number}"))
        except Unusable as reason:
            skipped.append(SkippedOp(row["name"], str(reason)))
    if not kept:
        why = skipped[0].reason if skipped else "it has no rows"
        raise SpecError("file", path, f"a table with at least one op that can be predicted ({why})")
    return kept, skipped


def _read_table(path: str) -> tuple[list[str], list[Row]]:
    """Read a CSV file: the names of its columns, and its rows as texts, empty where a row ends early."""
    try:
        lines = [line for line in csv.reader(io.StringIO(read_text(path, "file"), newline="")) if line]
    except csv.Error as error:
        raise SpecError("file", path, f"a CSV file ({error})") from None
    header = [name.strip() for name in lines[0]] if lines else []
    padding = [""] * len(header)
    return header, [dict(zip(header, [*line, *padding], strict=False)) for line in lines[1:]]


def _read_row(row: Row, field: str) -> OpRow:
    if row.get("error"):
        raise Unusable(f"the bench says: {row['error']}")
    mode = row.get("mode") or "steady"
    if mode == "beside" or row.get("beside"):
        raise Unusable("two kernels beside each other: no model of that here")
    if mode not in ("steady", "burst"):
        raise Unusable(f"unknown mode {mode}")
    if not row["kind"]:
        raise Unusable("no kernel of its own")
    shape = _read_shape(row, field)
    window = _number(row, "window_s", field)
    start = _number(row, "temp_start_c", field)
    if window is None:
        raise Unusable("no window given")
    _check_range(f"{field}, window_s", window, 1e-3, LONGEST_WINDOW_S)
    if start is not None:
        _check_range(f"{field}, temp_start_c", start, -20.0, 150.0)
    on_s, period_s = (_number(row, name, field) or 0.0 if mode == "burst" else 0.0 for name in ("on_s", "period_s"))
    if mode == "burst" and not 0 < on_s <= period_s <= window:
        raise SpecError(f"{field}, on_s", f"{on_s:g} of {period_s:g} s", "0 < on_s <= period_s <= window_s in a burst")
    return OpRow(row["name"], shape, start, window, on_s, period_s, _read_measured(row, window, field))


def _read_shape(row: Row, field: str) -> KernelShape:
    kind = SHORT_KINDS.get(row["kind"], row["kind"])
    if kind not in DIMENSIONS:
        raise Unusable(f"unknown kind {row['kind']}")
    precision = row["dtype"]
    if precision not in PRECISIONS:
        raise Unusable(f"unknown precision {precision}")
    values = row.get("values") or ("random" if row.get("dims") else "unknown")
    if values not in ("random", "trained", "zeros", "unknown"):
        raise Unusable(f"unknown operands {values}")
    dims = _long_sizes(row, field) if "dims" in row else _short_sizes(kind, row, field)
    if len(dims) not in DIMENSIONS[kind]:
        counts = " or ".join(map(str, DIMENSIONS[kind]))
        raise SpecError(f"{field}, dims", "x".join(map(str, dims)), f"{counts} sizes for {kind}")
    return KernelShape(kind, dims, precision, values, "uneven" if row["kind"] == "grouped_gemm_skewed" else "best")


def _long_sizes(row: Row, field: str) -> tuple[int, ...]:
    return tuple(_size(text, f"{field}, dims") for text in row["dims"].split("x"))


def _short_sizes(kind: str, row: Row, field: str) -> tuple[int, ...]:
    if kind == "grouped_gemm":
        if not row.get("experts"):
            raise Unusable("a grouped product needs its groups in experts, or its sizes in dims")
        groups = _size(row["experts"], f"{field}, experts")
        return (groups, *(_size(row[name], f"{field}, {name}") for name in SIZES))
    count = {"gemm": 3, "norm": 2, "rmsnorm": 2, "gelu": 2}.get(kind, 3 if kind.startswith("attention") else 1)
    sizes = tuple(_size(row[name], f"{field}, {name}") for name in SIZES[:count])
    if kind == "gemm":
        return (1, *sizes)
    if kind.startswith("attention"):
        found = re.search(r"kv(\d+)", row["name"])
        return (sizes[0], sizes[1], int(found[1]) if found else sizes[1], sizes[2], HEAD_DIM)
    if kind == "copy":
        return (int(sizes[0] * MIB) // 2,)
    if kind == "add":
        # In place it moves 4 bytes an element, where the kernel of the bench moves 6.
        return (int(sizes[0] * MIB) // 2 * 4 // 6,)
    return sizes


class SingleKernel(NamedTuple):
    """A kernel repeated in a graph, its operands in turn from memory, and what was read at its clock."""

    shape: KernelShape
    queued: bool
    """In a graph: no launch between two calls."""
    temperature_c: float
    measured: Measured


def read_single_kernels(path: str) -> list[SingleKernel]:
    """Read a table of kernels by themselves, those that a KernelShape can say; attention is causal there."""
    found = []
    for row in _read_table(path)[1]:
        sizes = json.loads(row["dims"])
        shape = _single_shape(row, sizes)
        if shape is not None:
            read = Measured(float(row["s_per_call"]), float(row["steady_w"]), float(row["steady_mhz"]) * MEGA, None)
            found.append(SingleKernel(shape, row["mode"] == "graph", float(row["temp_c"]), read))
    return found


def _single_shape(row: Row, sizes: Mapping[str, Any]) -> KernelShape | None:
    kind, form, precision = SINGLE_KINDS.get(row["kind"]), row["kind"], row["precision"]
    if kind is None or (kind.startswith("attention") and not (sizes["causal"] and sizes["backend"] in BACKENDS)):
        return None
    if kind.startswith("attention"):
        width = (sizes["dim"] + sizes["value_dim"]) // 2
        dims = (sizes["batch"], sizes["heads"], sizes["kv"], sizes["seq"], width)
        return KernelShape(kind, dims, precision, variant=BACKENDS[sizes["backend"]])
    if form == "router":
        return KernelShape(kind, (1, sizes["tokens"], sizes["experts"], sizes["hidden"]), precision)
    if kind == "gemm":
        variant = "wgrad" if form == "gemm_wgrad" else "best"
        return KernelShape(kind, (sizes.get("b", 1), sizes["m"], sizes["n"], sizes["k"]), precision, variant=variant)
    if kind.startswith("grouped"):
        rows, n, k = sizes["rows"], sizes["n"], sizes["k"]
        across = {"grouped": (rows, n, k), "grouped_dgrad": (rows, k, n), "grouped_wgrad": (n, k, rows)}[form]
        uneven = "uneven" in sizes and kind == "grouped_gemm"
        return KernelShape(kind, (sizes["experts"], *across), precision, variant="uneven" if uneven else "best")
    names = ("elements",) if "elements" in sizes else ("rows", "width")
    return KernelShape(kind, tuple(sizes[name] for name in names), precision)


def _read_measured(row: Row, window_s: float, field: str) -> Measured:
    mean, instant = _number(row, "mean_w", field), _number(row, "instant_mean_w", field)
    bound = _number(row, "mean_w_error", field)
    watts = instant if mean is None else mean
    if mean is not None and instant is not None and row.get("mode") != "burst":
        if bound is not None and bound > LARGE_ERROR_FRACTION * mean:
            watts = instant
        elif bound is None and window_s < SHORT_WINDOW_S:
            watts = (mean + instant) / 2
    clock = _number(row, "sm_mhz", field)
    return Measured(
        _positive(_number(row, "s_per_call", field)),
        _positive(watts),
        _positive(None if clock is None else clock * MEGA),
        _positive(_number(row, "instant_max_w", field)),
    )


def _positive(value: float | None) -> float | None:
    return value if value is not None and value > 0 else None


def _number(row: Row, name: str, field: str) -> float | None:
    text = (row.get(name) or "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        raise SpecError(f"{field}, {name}", text, "a number or nothing") from None
    if not abs(value) < float("inf"):
        raise SpecError(f"{field}, {name}", text, "a finite number or nothing")
    return value


def _size(text: str, field: str) -> int:
    try:
        size = int(float(text))
    except (ValueError, OverflowError):
        raise SpecError(field, text, "a whole number of at least 1") from None
    if not 1 <= size <= LARGEST_SIZE:
        raise SpecError(field, text, "a whole number of at least 1")
    return size


def _check_range(field: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise SpecError(field, value, f"from {low:g} to {high:g}")
