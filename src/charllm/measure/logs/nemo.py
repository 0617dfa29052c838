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
    """List the steps of a Lightning progress bar, which is drawn several times a step: its last state counts.

    A bar begins anew in each epoch; steps are counted on. A first epoch that comes again is another run.
    """
    last: Found | None = None
    epoch = begun = full = 0
    for line in lines:
        bar = find_bar(line.text)
        title = EPOCH.search(bar.title) if bar else None
        if bar is None or title is None or not bar.done:
            continue
        fields = to_fields(find_pairs(bar.postfix))
        if "seconds" not in fields and bar.seconds is not None:
            fields["seconds"] = bar.seconds
        if not fields:
            continue
        if int(title[1]) != epoch:
            begun = begun + full if int(title[1]) > epoch else 0
            epoch = int(title[1])
        full = bar.total or bar.done
        found = begun + bar.done, fields, line
        if last is not None and last[0] != found[0]:
            yield last
        last = found
    if last is not None:
        yield last


EPOCH = re.compile(r"Epoch (\d{1,9})")
LIGHTNING = Program(
    mark=re.compile(
        r"(?:Epoch \d+:.{0,400}?\|\s{0,9}+|Epoch \d+/-?\d+ [━╸╺ ]{1,400}+)"
        r"(?P<number>\d{1,15})/\S{1,15}+ (?:\[|\d+:\d\d)"
    ),
    words=(b"Epoch",),
    read=read_bars,
    unread="no progress bar was drawn after a step",
)
