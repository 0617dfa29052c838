"""Say what calibration found, how well, and what to run for the rest."""

from typing import Any

import numpy as np

from charllm.arrays import Floats
from charllm.calibrate.least_squares import Fit
from charllm.evaluate.scores import describe_errors
from charllm.report.tables import render_table, wrap_all
from charllm.units import format_percent

ADVICE = {
    "power.leakage_w_per_k": "the same op 20 K apart: `charllm bench ops --only soak,cool` (1 minute), cold and hot",
    "power.voltage_slope_per_hz": "ops held at different clocks: `charllm bench ops --only gemm,attention` (4 minutes)",
    "power.fp8": "8-bit GEMMs: `charllm bench ops --only fp8` (20 seconds)",
    "power.softmax": "`charllm bench ops --only attention` (1 minute)",
    "power.instruction_j": "only its product with a kernel's instruction count is seen: a loop of known instructions",
    "power.cache_byte_j": "memory-bound kernels that stay in cache: `charllm bench ops --only memory` (1 minute)",
    "power.memory_byte_j": "`charllm bench ops --only memory` (1 minute)",
    "power": "`charllm bench ops` (10 minutes)",
    "kernels.fp8": "8-bit GEMMs: `charllm bench ops --only fp8` (20 seconds)",
    "kernels.grouped": "grouped GEMMs: `charllm bench ops --only grouped` (20 seconds)",
    "kernels.attention": "`charllm bench ops --only attention` (1 minute)",
    "kernels.softmax": "`charllm bench ops --only attention` (1 minute)",
    "kernels.tile_ramp": "attention with few heads: `charllm bench ops --only attention` (1 minute)",
    "kernels.memory": "`charllm bench ops --only memory` (1 minute)",
    "kernels.cache": "`charllm bench ops --only memory` (1 minute)",
    "kernels.stream": "`charllm bench ops --only memory` (1 minute)",
    "kernels.launch_s": "GEMMs too small to keep the GPU busy: `charllm bench ops --only small` (1 minute)",
    "kernels": "GEMMs of many shapes: `charllm bench ops --only gemm` (6 minutes)",
    "heat.memory": "copies between GEMMs: `charllm bench ops --only memory,soak` (2 minutes)",
    "heat": "load, then idle, three sink time constants each: `charllm bench ops --only soak,cool` (1 minute)",
}
"""Beginning of a parameter's name: benchmark needed to identify it. The first that fits counts."""


def advice_for(found: Fit) -> list[dict[str, str]]:
    """Return what is not identified, and what to run; a board's own factor is not a constant of the GPU."""
    rows = []
    for each in found.found:
        if not each.identified and not each.name.startswith("board."):
            text = next(text for start, text in ADVICE.items() if each.name.startswith(start))
            rows.append({"parameter": each.name, "run": text})
    return rows


def describe_fit(
    found: Fit, inside: dict[str, Floats], outside: dict[str, Floats], boards: list[str]
) -> dict[str, Any]:
    """Return parameters and residuals as a table."""
    return {
        "boards": boards,
        "misfit": found.misfit,
        "parameters": [each._asdict() for each in found.found],
        "in_sample": {name: describe_errors(errors.tolist()) for name, errors in inside.items()},
        "held_out": {name: describe_errors(errors[np.isfinite(errors)].tolist()) for name, errors in outside.items()},
    }


def render_fit(report: dict[str, Any]) -> str:
    """Lay it out for a terminal."""
    parts = []
    if "ops" in report:
        ops = report["ops"]
        rows = [
            [
                f"{name}, {where}",
                *(format_percent(figures[key], 2) for key in FIGURES),
            ]
            for where, group in (("in sample", ops["in_sample"]), ("4 folds of shapes", ops["held_out"]))
            for name, figures in group.items()
        ]
        parts.append(render_table("Ops", ["", "median |error|", "90th percentile", "mean error"], rows))
        parts.append(_parameters(f"Power and kernels of {report['gpu']}", ops["parameters"]))
    if "heat" in report:
        heat = report["heat"]
        parts.append(_parameters(f"Heat of {report['gpu']}", heat["parameters"]))
        parts += wrap_all(
            [
                "RMSE of each GPU after removing an offset, K: " + ", ".join(f"{x:.2f}" for x in heat["rmse_k"]),
                "Ambient temperature of each GPU (fitted, not recorded), C: "
                + ", ".join(f"{x:.1f}" for x in heat["ambient_c"]),
            ]
        )
    if report["not_identified"]:
        rows = [[row["parameter"], row["run"]] for row in report["not_identified"]]
        parts.append(
            render_table("Not identified (left out of the file)", ["constant", "benchmark needed to identify it"], rows)
        )
    return "\n\n".join(parts)


FIGURES = ("median_abs_error_fraction", "p90_abs_error_fraction", "mean_error_fraction")


def _parameters(title: str, found: list[dict[str, Any]]) -> str:
    rows = [
        [
            each["name"],
            f"{each['value']:.4g}",
            format_percent(each["error_fraction"]),
            f"{each['prior']:.4g}",
            "" if each["identified"] else "not identified",
        ]
        for each in found
    ]
    return render_table(title, ["constant", "value", "standard error", "before", ""], rows)
