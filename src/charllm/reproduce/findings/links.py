"""Tensor and pipeline parallelism underuse links, because data is cut into small messages."""

from charllm.reproduce.finding import Configuration, Finding, Reading
from charllm.reproduce.looks import Row
from charllm.reproduce.paper import degrees, dense_runs

CUT = ("tp", "pp")


def small_messages() -> Finding:
    """What messages lose by being small."""
    runs = {name: run for name, run in dense_runs("base").items() if min(degrees(run)[:2]) > 1}
    return Finding(
        name="small-messages",
        claim="Tensor with pipeline parallelism underuses links, because data is cut into small messages.",
        unit="% of the bandwidth of large messages that tp and pp messages do not reach",
        configurations={name: Configuration((run,), lost_percent) for name, run in runs.items()},
        least=10.0,
        note="Each message against the rate of a large one of its kind on the same link, weighted by the time under "
        "way. What remains below the links' peak is not the size of messages: protocol, shared NICs, and the "
        "time in which nothing is sent at all.",
        readings={
            "share of the step that large messages would save, %": Reading(
                {name: Configuration((run,), saved_percent) for name, run in runs.items()}
            ),
            "% of the links' peak that is not reached while tp and pp messages are under way": Reading(
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
