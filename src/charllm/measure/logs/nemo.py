"""NeMo: progress bars of NeMo 1 (Lightning), lines of NeMo 2, and lines of NeMo Automodel."""

import re
from collections.abc import Iterator, Sequence

from charllm.measure.logs.lines import Line
from charllm.measure.logs.names import NAMES, Meaning, find_pairs, to_fields
from charllm.measure.logs.program import Found, Program
from charllm.measure.logs.progress import find_bar

NEMO = Program(
    mark=re.compile(r"Training epoch \d+, iteration (?P<number>\d{1,15})/\d+ \|"),
    names={**NAMES, "global_step": Meaning("number")},
    words=(b"Training epoch",),
)
AUTOMODEL = Program(
    mark=re.compile(r"\bstep (?P<number>\d{1,15}) \| epoch \d+ \| loss "),
    names={**NAMES, "tps": Meaning("tokens_per_s")},
    words=(b" | epoch ",),
)


def read_bars(lines: Sequence[Line]) -> Iterator[Found]:
    """List the steps of a Lightning progress bar, which is drawn several times a step: its last state counts."""
    last: Found | None = None
    for line in lines:
        bar = find_bar(line.text)
        if bar is None or "Epoch" not in bar.title or not bar.done:
            continue
        fields = to_fields(find_pairs(bar.postfix))
        if not fields:
            continue
        if "seconds" not in fields and bar.seconds is not None:
            fields["seconds"] = bar.seconds
        found = bar.done, fields, line
        if last is not None and last[0] != bar.done:
            yield last
        last = found
    if last is not None:
        yield last


LIGHTNING = Program(
    mark=re.compile(r"Epoch \d+:.{0,400}?\|\s{0,9}+(?P<number>\d{1,15})/\S{1,15}+ \["),
    words=(b"Epoch",),
    read=read_bars,
)
