"""Tensor and pipeline parallelism underuse links, because data is split into small messages."""

from charllm.report.claims import read_claims
from charllm.reproduce.finding import Configuration, Finding, Reading
from charllm.reproduce.looks import Row
from charllm.reproduce.paper import degrees, dense_runs

CUT = ("tp", "pp")


def small_messages() -> Finding:
    """Bandwidth that small messages lose."""
    runs = {name: run for name, run in dense_runs("base").items() if min(degrees(run)[:2]) > 1}
    return Finding(
        claim=read_claims()["small-messages"],
        configurations={name: Configuration((run,), lost_percent) for name, run in runs.items()},
        readings={
            "step time that large messages would save, %": Reading(
                {name: Configuration((run,), saved_percent) for name, run in runs.items()}
            ),
            "unused share of the links' peak during TP and PP transfers, %": Reading(
                {name: Configuration((run,), unused_percent) for name, run in runs.items()}
            ),
        },
    )


def lost_percent(row: Row) -> float | None:
    """Return the share of large messages' bandwidth that is not reached, over both axes."""
    return _weighted(row, "small_message_loss")


def unused_percent(row: Row) -> float | None:
    """Return the share of the links' peak that is not reached while they are used."""
    used = _weighted(row, "peak_use")
    return None if used is None else 100 - used


def saved_percent(row: Row) -> float | None:
    """Return the share of the step that exposed messages lose to being small."""
    if not row.get("step_time_s"):
        return None
    saved_s = sum(row[f"breakdown_s.{axis}_exposed"] * row.get(f"small_message_loss.{axis}", 0.0) for axis in CUT)
    return float(100 * saved_s / row["step_time_s"])


def _weighted(row: Row, name: str) -> float | None:
    seconds = {axis: row[f"link_s.{axis}"] for axis in CUT if f"link_s.{axis}" in row}
    whole_s = sum(seconds.values())
    return 100 * sum(part * row[f"{name}.{axis}"] for axis, part in seconds.items()) / whole_s if whole_s else None
