"""Composer (LLM Foundry) and OLMo-core: a block of lines for each batch, ``[batch=10/100]:`` and one line a metric.

The number of a batch is the program's count over all epochs, where the block has it, for the head of a block counts
what the run's length is given in: batches of an epoch, tokens or samples. Rates of batches have few digits in slow
runs; those of samples have more.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from charllm.measure.logs.lines import Line
from charllm.measure.logs.names import NAMES, Meaning, Pair, find_pairs, to_fields
from charllm.measure.logs.program import Found, Program

HEAD = re.compile(
    r"\[(?:batch|token|sample|epoch|second)=(?P<number>\d{1,15})(?:/\d+)?\](?:\[batch=(?P<batch>\d{1,15})(?:/\d+)?\])?:?"
)
METRIC = re.compile(r"^\s*+(?:Train |Eval )?[\w./-]++(?:\s[\w./-]++){0,5}+(?:\s?\([^()]{1,40}+\))?[:=]\s*+\S++\s*$")
COUNT = "time/batch"
"""Batches before this one, over all epochs."""
LONGEST_BLOCK = 100


def read_blocks(lines: Sequence[Line], head: re.Pattern[str], names: Mapping[str, Meaning]) -> Iterator[Found]:
    """List the blocks; a block ends at the first line that is no metric."""
    before: Found | None = None
    for number, pairs, line in _split(lines, head):
        fields = to_fields(pairs, names)
        count = next((pair.value for pair in pairs if pair.key == COUNT), None)
        found = (number if count is None else int(count) + 1), fields, line
        batches = found[0] - before[0] if before else 0
        samples = fields.get("consumed_samples", 0.0) - before[1].get("consumed_samples", 0.0) if before else 0.0
        if batches > 0 and samples > 0 and fields.get("samples_per_s"):
            fields["samples"] = samples / batches
            fields["seconds"] = fields["samples"] / fields["samples_per_s"]
        yield found
        before = found


def _split(lines: Sequence[Line], head: re.Pattern[str]) -> Iterator[tuple[int, list[Pair], Line]]:
    block: tuple[int, list[Pair], Line] | None = None
    for line in lines:
        found = head.search(line.text)
        if found:
            if block:
                yield block
            block = int(found.groupdict().get("batch") or found["number"]), _pairs(line.text[found.end() :]), line
        elif block and METRIC.match(line.text):
            block = block[0], block[1] + _pairs(line.text), line
        elif block:
            yield block
            block = None
    if block:
        yield block


def _pairs(text: str) -> list[Pair]:
    return [pair for pair in find_pairs(text.replace("Train ", "")) if not pair.key.startswith("Eval")]


COMPOSER = Program(
    mark=HEAD,
    words=(b"[batch=", b"[token=", b"[sample=", b"[epoch=", b"[second="),
    following=LONGEST_BLOCK,
    read=partial(
        read_blocks,
        head=HEAD,
        names={**NAMES, "time/sample": Meaning("consumed_samples"), "time/token": Meaning("consumed_tokens")},
    ),
)
OLMO_HEAD = re.compile(r"\[step=(?P<number>\d{1,15})(?:/(?:\d+|\?+))?(?:,[^\]]*)?\]:?")
OLMO = Program(
    mark=OLMO_HEAD,
    words=(b"[step=",),
    following=LONGEST_BLOCK,
    read=partial(read_blocks, head=OLMO_HEAD, names={**NAMES, "throughput/device/mfu": Meaning("mfu_fraction", 0.01)}),
)
