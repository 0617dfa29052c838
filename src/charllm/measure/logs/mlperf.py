"""MLPerf training: one ``:::MLLOG {...}`` object a line, with the loss at a count of samples and the time of day."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from charllm.measure.logs.lines import Line
from charllm.measure.logs.program import Found, Program
from charllm.units import MILLI

MARK = re.compile(r":::MLLOG \{.{0,400}\"key\": \"(?:train_loss|tracked_stats)\"")
PREFIX = ":::MLLOG "
SIZES = {"global_batch_size": "global_batch_size", "max_sequence_length": "seq_length"}
"""Key of a size: the setting it is."""
PAUSES = {"eval_start": True, "eval_stop": False}
"""Keys between which nothing is trained."""
SECONDS, LOSSES = ("train_step_time", "step_time"), ("reduced_train_loss", "train_loss", "loss")


def read_object(text: str) -> Mapping[str, Any]:
    """Return the object of a line; an empty one where there is none."""
    at = text.find(PREFIX + "{")
    try:
        table = json.loads(text[at + len(PREFIX) :]) if at >= 0 else {}
    except (ValueError, RecursionError):
        return {}
    return table if isinstance(table, dict) else {}


def read_sizes(text: str) -> list[tuple[str, str]]:
    """Return the size that a line states."""
    table = read_object(text)
    name, value = SIZES.get(str(table.get("key"))), table.get("value")
    return [(name, str(value))] if name and type(value) is int and 0 < value < 10**12 else []


def read_events(lines: Sequence[Line]) -> Iterator[Found]:
    """List the steps at which a loss is stated; evaluations between two of them are taken off."""
    batch, paused_s, pause_s = 0, 0.0, 0.0
    before: tuple[int, float] | None = None
    for line in lines:
        table = read_object(line.text)
        key, time_s = table.get("key"), _number(table.get("time_ms")) * MILLI
        if key == "global_batch_size":
            batch = int(_number(table.get("value"), 0.0))
        elif PAUSES.get(str(key)):
            pause_s = time_s
        elif key in PAUSES:
            paused_s += time_s - pause_s if pause_s else 0.0
            pause_s = 0.0
        elif key in ("train_loss", "tracked_stats"):
            number, fields = _step(table, batch)
            if number is None or not math.isfinite(time_s):
                continue
            fields["time_s"] = time_s
            spent_s = time_s - before[1] - paused_s if before else 0.0
            if before and number > before[0] and spent_s > 0:
                fields.setdefault("seconds", spent_s / (number - before[0]))
            if before is None or number != before[0]:
                before, paused_s = (number, time_s), 0.0
                yield number, fields, line


def _step(table: Mapping[str, Any], batch: int) -> tuple[int | None, dict[str, float]]:
    """Return the number of a step, as stated or by the samples before it, and its loss and time."""
    facts = table.get("metadata")
    facts = facts if isinstance(facts, dict) else {}
    value = table.get("value")
    if table["key"] == "train_loss":
        samples = _number(facts.get("samples_count"))
        number = samples / batch if batch > 0 else math.nan
        fields = {"loss": _number(value), "consumed_samples": samples, "learning_rate": _number(facts.get("lr"))}
    else:
        stated = value if isinstance(value, dict) else {}
        fields = {
            "seconds": next((_number(stated[name]) for name in SECONDS if name in stated), math.nan),
            "loss": next((_number(stated[name]) for name in LOSSES if name in stated), math.nan),
        }
        number = _number(facts.get("step")) if not math.isnan(fields["seconds"]) else math.nan
    known = {name: found for name, found in fields.items() if not math.isnan(found)}
    return (round(number) if 0 <= number < 10**15 else None), known


def _number(value: Any, otherwise: float = math.nan) -> float:
    return float(value) if isinstance(value, int | float) and abs(value) < 1e18 else otherwise


MLPERF = Program(mark=MARK, words=(b":::MLLOG",), read=read_events)
