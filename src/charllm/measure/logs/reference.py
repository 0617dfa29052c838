"""One JSON object a line: charllm's reference trainer, and programs that log so (fairseq, metaseq,
LLaMA-Factory, ms-swift)."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from charllm.measure.logs.lines import Line
from charllm.measure.logs.names import Pair, to_fields, to_number
from charllm.measure.logs.program import Found, Program, first_whole_number
from charllm.measure.logs.progress import read_elapsed_s

NUMBERS = ("number", "step", "global_step", "iteration", "iter", "num_updates", "_step", "current_steps",
           "global_step/max_steps")  # fmt: skip
OBJECT = re.compile(rf"^[^{{]*\{{.*?\"(?:{'|'.join(NUMBERS)})\"\s*:")


def read_objects(lines: Sequence[Line]) -> Iterator[Found]:
    """List the objects that have a step number and a field of a step."""
    for line in lines:
        if not OBJECT.match(line.text):
            continue
        try:
            table = json.loads(line.text[line.text.index("{") : line.text.rindex("}") + 1])
        except (ValueError, RecursionError):
            continue
        number = (
            first_whole_number(*(_before_slash(table.get(name)) for name in NUMBERS))
            if isinstance(table, dict)
            else None
        )
        if number is None:
            continue
        values = {key: to_number(str(value)) for key, value in table.items() if isinstance(value, int | float | str)}
        fields = to_fields(Pair(key, value, None) for key, value in values.items() if value is not None)
        elapsed_s = read_elapsed_s(table.get("elapsed_time"))
        if elapsed_s is not None:
            fields["elapsed_s"] = elapsed_s
        if fields:
            yield number, fields, line


def _before_slash(value: Any) -> Any:
    """Take 3 of ms-swift's "3/94"."""
    return value.partition("/")[0] if isinstance(value, str) else value


JSON_LINES = Program(mark=OBJECT, words=(b"tep", b"iter", b"pdate", b'"number"'), read=read_objects)
