"""Tensor and pipeline parallelism underuse links, because data is split into small messages."""

from charllm.report.claims import Claim
from charllm.reproduce.finding import Configuration, Finding, Reading
from charllm.reproduce.looks import Row
from charllm.reproduce.paper import degrees, dense_runs

CUT = ("tp", "pp")


def small_messages() -> Finding:
    """Bandwidth that small messages lose."""
    runs = {name: run for name, run in dense_runs("base").items() if min(degrees(run)[:2]) > 1}
    return Finding(
        claim=Claim(
            name="small-messages",
            text="Certain parallelism combinations, such as tensor with pipeline, lead to bandwidth underutilization "
            "due to inefficient data chunking.",
            unit="% lower bandwidth of TP and PP messages than of large messages",
            least=10.0,
            of="some",
        ),
        configurations={name: Configuration((run,), lost_percent) for name, run in runs.items()},
        why="latency is a larger share of shorter messages",
        note="Each message is compared with a large message of the same collective on the same link, weighted by "
        "transfer time. The rest of the gap to the links' peak is not due to message size but to protocols, shared "
        "NICs and idle links.",
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
