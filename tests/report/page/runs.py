"""Runs whose pages are looked at: simulated ones, and results as measurement and emulation leave them."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from charllm.catalog.resolve import resolve_run
from charllm.report.figure import Columns, Figure
from charllm.report.page.view import RunView
from charllm.result.columns import columns_of
from charllm.result.metrics import fill_metrics
from charllm.result.result import RunResult
from charllm.simulate.predict import simulate
from charllm.spec.request import merge

PIPELINE: dict[str, Any] = {
    "model": "llama3-8b",
    "cluster": "charllm-ppt-h200",
    "parallelism": {"tp": 2, "pp": 2},
    "training": {"global_batch_size": 64},
}


def view(**changes: Any) -> RunView:
    """Simulate the pipeline with changes to its request."""
    spec = resolve_run(merge(PIPELINE, changes))
    return RunView(simulate(spec, ignore_memory=True))


@cache
def pipeline() -> RunView:
    return view()


@cache
def misfit() -> RunView:
    spec = resolve_run({"model": "gpt3-175b", "cluster": "charllm-ppt-h200", "parallelism": {"pp": 32}})
    return RunView(simulate(spec))


def with_steps(result: RunResult, steps_s: Sequence[tuple[float, float]], **phases_s: float) -> RunView:
    """Add marked steps and phases to a measured run."""
    steps, phases = columns_of(("start_s", "end_s"), steps_s), columns_of(("phase", "seconds"), [*phases_s.items()])
    return RunView(replace(result, tables={**result.tables, "steps": lambda: steps, "phases": lambda: phases}))


def measured(nodes: int = 2, gpus: int = 2, signals: dict[str, list[Any]] | None = None, **metrics: Any) -> RunResult:
    """A measured run of which telemetry alone is known: the second node is warmer, and its last GPU is throttled."""
    rows = [
        {
            "rank": None,
            "node": node,
            "slot": slot,
            "stage": None,
            "memory_peak_bytes": 2.0**34,
            "power_mean_w": 500.0,
            "temperature_mean_c": 50.0 + 5 * node + slot,
            "temperature_peak_c": 55.0 + 5 * node + slot,
            "clock_mean_hz": 1.9e9,
            "throttled_time_fraction": {"power": 0.25 * (node == nodes - 1), "thermal": 0.0, "brake": 0.0},
        }
        for node in range(nodes)
        for slot in range(gpus)
    ]
    known = {
        "power_mean_w": 500.0,
        "temperature_peak_c": 55.0 + 5 * (nodes - 1) + gpus - 1,
        "clock_mean_hz": 1.9e9,
        "throttled_time_fraction": {"power": 0.125, "thermal": 0.0, "brake": 0.0},
        "memory_peak_bytes": 2.0**34,
    }
    return RunResult(
        "measured",
        {"command": ["torchrun", "train.py"]},
        fill_metrics({**known, **metrics}),
        rows,
        [{"node": node, "name": f"host{node}"} for node in range(nodes)],
        {
            "charllm": "0.1.0",
            "measurement": {"steps": 4, "intervals": {"step_time_s": [0.9, 1.1]}, "sampler": {"rows": 3}},
        },
        ["breakdown_s: needs a profiler trace", "mfu: not measured in this run", "fits: not measured in this run"],
        tables={"signals": lambda: signals} if signals else {},
    )


def rows_of(figure: Figure) -> list[dict[str, Any]]:
    """Return the table behind a figure as rows."""
    return table_rows(figure.columns)


def table_rows(columns: Columns) -> list[dict[str, Any]]:
    names = list(columns)
    return [dict(zip(names, row, strict=True)) for row in zip(*(columns[name].values for name in names), strict=True)]
