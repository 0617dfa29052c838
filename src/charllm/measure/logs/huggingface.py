"""Hugging Face Trainer (and TRL, LLaMA-Factory, Axolotl): a dict of metrics a line; the progress bar has the number."""

import re
from collections.abc import Iterator, Sequence

from charllm.measure.logs.lines import Line
from charllm.measure.logs.names import find_pairs, to_fields
from charllm.measure.logs.program import Found, Program
from charllm.measure.logs.progress import Bar, find_bar
from charllm.units import whole_number

METRICS = re.compile(r"\{\s*['\"](?:train_)?loss['\"]\s*:[^{}]*\}")
SHORTEST_S = 10.0
"""A bar shows whole seconds: over a shorter time its own smoothed rate is closer."""


def read_dicts(lines: Sequence[Line]) -> Iterator[Found]:
    """List the dicts with the step that the bar before or on the line is at; without a bar they are counted."""
    bar: Bar | None = None
    before: Bar | None = None
    count = 0
    for line in lines:
        found = METRICS.search(line.text)
        bar = find_bar(line.text[: found.start()] if found else line.text) or bar
        if not found or "train_runtime" in found[0]:
            continue
        count += 1
        fields = to_fields(find_pairs(found[0]))
        seconds = _seconds(before, bar)
        if seconds is not None:
            fields.setdefault("seconds", seconds)
        yield (_number(found[0]) or (bar.done if bar else count)), fields, line
        before = bar


def _number(text: str) -> int | None:
    stated = re.search(r"['\"](?:global_)?step(?:/max_steps)?['\"]\s*:\s*['\"]?(\d+)", text)
    return whole_number(stated[1]) if stated else None


def _seconds(before: Bar | None, bar: Bar | None) -> float | None:
    if bar is None:
        return None
    if before and bar.elapsed_s - before.elapsed_s >= SHORTEST_S and bar.done > before.done:
        return (bar.elapsed_s - before.elapsed_s) / (bar.done - before.done)
    return bar.seconds


HUGGINGFACE = Program(mark=METRICS, words=(b"loss", b"s/it", b"it/s"), read=read_dicts)
