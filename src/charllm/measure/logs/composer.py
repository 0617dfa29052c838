"""Composer and llm-foundry: a block of lines for each batch, ``[batch=10/100]:`` and one line a metric."""

import re
from collections.abc import Iterator, Sequence

from charllm.measure.logs.lines import Line
from charllm.measure.logs.names import find_pairs, to_fields
from charllm.measure.logs.program import Found, Program

HEAD = re.compile(r"\[(?:batch|step)=(?P<number>\d{1,15})(?:/\d+)?(?:,[^\]]*)?\]:?")
METRIC = re.compile(r"^\s*+(?:Train |Eval )?[\w./-]++\s?[\w./-]*+[:=]\s*+\S++\s*$")


def read_blocks(lines: Sequence[Line]) -> Iterator[Found]:
    """List the blocks; a block ends at the first line that is no metric."""
    block: Found | None = None
    for line in lines:
        head = HEAD.search(line.text)
        if head:
            if block:
                yield block
            rest = line.text[head.end() :]
            block = int(head["number"]), _fields(rest), line
        elif block and METRIC.match(line.text):
            block = block[0], {**_fields(line.text), **block[1]}, line
        elif block:
            yield block
            block = None
    if block:
        yield block


def _fields(text: str) -> dict[str, float]:
    return to_fields(pair for pair in find_pairs(text.replace("Train ", "")) if not pair.key.startswith("Eval"))


LONGEST_BLOCK = 100
COMPOSER = Program(mark=HEAD, words=(b"[batch=", b"[step="), following=LONGEST_BLOCK, read=read_blocks)
