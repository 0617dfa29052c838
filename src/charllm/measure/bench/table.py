"""What the bench found, as one row an op."""

import csv
import io
from typing import Any

from charllm.gpu.shape import KernelShape, work
from charllm.measure.bench.run import OpRun
from charllm.measure.bench.suite import OpCase
from charllm.measure.recording import Recording
from charllm.measure.window import Window, look
from charllm.units import MEGA, TERA

COLUMNS = (
    "group", "kind", "name", "a", "b", "c", "dims", "dtype", "values", "mode", "on_s", "period_s", "beside", "blocks",
    "calls", "s_per_call", "tflops_or_tbps", "mean_w", "mean_w_error", "instant_mean_w", "instant_max_w", "sm_mhz",
    "sm_mhz_std_fraction", "power_limited", "thermally_limited", "temp_start_c", "temp_end_c", "window_s",
    "busy_fraction", "t0", "t1", "error",
)  # fmt: skip


def tabulate(cases: list[OpCase], runs: list[OpRun], recording: Recording) -> list[dict[str, Any]]:
    """Join each run with what the recording says of its first GPU in its window."""
    by_name = {case.name: case for case in cases}
    gpu = next(iter(recording.series), None)
    return [_row(by_name[run.name], run, recording, gpu) for run in runs if run.name in by_name]


def _row(case: OpCase, run: OpRun, recording: Recording, gpu: int | None) -> dict[str, Any]:
    seen = look(recording, gpu, run.start_s, run.end_s) if gpu is not None and not run.error else None
    row: dict[str, Any] = dict.fromkeys(COLUMNS, "")
    row.update(
        group=case.group, name=case.name, mode=case.mode, on_s=case.on_s, period_s=case.period_s, beside=case.beside,
        blocks=case.blocks, calls=run.calls, window_s=run.end_s - run.start_s, t0=run.start_s, t1=run.end_s,
        error=run.error,
    )  # fmt: skip
    if case.shape is not None:
        row.update(_shape_cells(case.shape))
        row.update(_rate_cells(case.shape, run) if run.calls else {})
    return {**row, **(_reading_cells(seen) if seen else {})}


def _rate_cells(shape: KernelShape, run: OpRun) -> dict[str, Any]:
    s_per_call = run.on_s / run.calls
    flop, size_bytes = work(shape)
    return {
        "s_per_call": s_per_call,
        "tflops_or_tbps": (flop or size_bytes) / s_per_call / TERA,
        "busy_fraction": run.on_s / (run.end_s - run.start_s),
    }


def _shape_cells(shape: KernelShape) -> dict[str, Any]:
    a, b, c = _three(shape.kind, shape.dims)
    return {
        "kind": shape.kind,
        "a": a,
        "b": b,
        "c": c,
        "dims": "x".join(map(str, shape.dims)),
        "dtype": shape.precision,
        "values": shape.values,
    }


def _three(kind: str, dims: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the three dimensions people name an op by: m, n, k; batch, heads, sequence; rows, width."""
    if kind in ("gemm", "grouped_gemm"):
        return dims[1], dims[2], dims[3]
    if kind.startswith("attention"):
        return dims[0], dims[1], dims[3]
    return dims[0], dims[1] if len(dims) > 1 else 0, 0


def _reading_cells(seen: Window) -> dict[str, Any]:
    limited = seen.limited_fraction or {}
    cells = {
        "mean_w": seen.power_mean_w,
        "mean_w_error": seen.energy_j.error / seen.duration_s if seen.energy_j else None,
        "instant_mean_w": seen.instant_energy_j / seen.duration_s if seen.instant_energy_j is not None else None,
        "instant_max_w": seen.power_peak_sensor_w,
        "sm_mhz": seen.clock_mean_hz / MEGA if seen.clock_mean_hz is not None else None,
        "sm_mhz_std_fraction": seen.clock_std_fraction,
        "power_limited": limited.get("power"),
        "thermally_limited": limited.get("thermal"),
        "temp_start_c": seen.temperature_start_c,
        "temp_end_c": seen.temperature_end_c,
    }
    return {name: "" if value is None else value for name, value in cells.items()}


def to_csv(rows: list[dict[str, Any]]) -> str:
    """Write rows as CSV, numbers to six digits."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(
            {
                name: f"{value:.6g}" if isinstance(value, float) and name not in ("t0", "t1") else value
                for name, value in row.items()
            }
        )
    return out.getvalue()
