"""The calibration of a network, and predicted against measured collectives, as text."""

from typing import Any

from charllm.report.tables import render_table, wrap_all
from charllm.units import MICRO, format_bytes, format_change, format_percent

COLUMNS = ("", "rows", "median |error|", "90th percentile", "mean error", "median above 16 MiB")
FIGURES = (
    "median_abs_error_fraction",
    "p90_abs_error_fraction",
    "mean_error_fraction",
    "large_median_abs_error_fraction",
)


def render_fit(report: dict[str, Any]) -> str:
    """Lay out a calibration: constants, residuals by collective, what is not identified."""
    rows = [
        [
            each["name"],
            f"{each['value']:.4g}",
            format_percent(each["error_fraction"]),
            f"{each['prior']:.4g}",
            each["meaning"] if each["identified"] else f"not identified: {each['meaning']}",
        ]
        for each in report["parameters"]
    ]
    title = (
        f"Network of {report['cluster']}: constants fitted to {report['in_sample']['overall']['scored']} collectives"
    )
    parts = [render_table(title, ["constant", "value", "standard error", "before", "stands for"], rows)]
    parts.append(_errors("Residuals of the fit: predicted over measured", report["in_sample"]))
    others = {"constants before": report["before"], "sizes left out of the fit (4 folds)": report["held_out"]}
    rows = [[name, *_cells(table["overall"])] for name, table in others.items()]
    parts.append(render_table("For comparison", COLUMNS[:5], [row[:5] for row in rows]))
    if report["not_identified"]:
        rows = [[row["parameter"], row["run"]] for row in report["not_identified"]]
        heading = ["constant", "benchmark needed to identify it"]
        parts.append(render_table("Not identified (left out of the file)", heading, rows))
    return "\n\n".join(parts)


def render_scores(table: dict[str, Any]) -> str:
    """Lay out predicted against measured seconds by collective, group and size."""
    parts = [_errors(f"Collectives, predicted against measured, {table['cluster']}", table)]
    rows = [
        [
            row["group"], row["mode"], row["collective"], str(row["ranks"]), format_bytes(row["message_bytes"]),
            row["algorithm"], f"{row['predicted_s'] / MICRO:,.1f}", f"{row['measured_s'] / MICRO:,.1f}",
            format_change(row['error_fraction']),
        ]
        for row in table["predictions"]
    ]  # fmt: skip
    columns = ("group", "mode", "collective", "ranks", "message", "algorithm", "predicted us", "measured us", "error")
    parts.append(render_table("Each case", columns, rows, drop=("algorithm", "mode"), where="--csv"))
    parts += wrap_all(
        f"not measured: {row['group']} {row['collective']} of {format_bytes(row['message_bytes'])}: {row['error']}"
        for row in table["not_measured"]
    )
    return "\n\n".join(parts)


def _errors(title: str, table: dict[str, Any]) -> str:
    groups = {"all": table["overall"], **table["by_collective"], **table["by_size"]}
    return render_table(title, COLUMNS, [[name, *_cells(group)] for name, group in groups.items()])


def _cells(group: dict[str, Any]) -> list[str]:
    figures = [group.get(name) for name in FIGURES]
    return [str(group["scored"]), *(format_percent(each) for each in figures)]
