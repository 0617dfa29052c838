"""One JSON object a line: charllm's reference trainer, and programs that log so (fairseq, metaseq)."""

import json
import re
from collections.abc import Iterator, Sequence

from charllm.measure.logs.lines import Line
from charllm.measure.logs.names import Pair, to_fields, to_number
from charllm.measure.logs.program import Found, Program, first_whole_number

NUMBERS = ("number", "step", "global_step", "iteration", "iter", "num_updates", "_step")
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
        number = first_whole_number(*(table.get(name) for name in NUMBERS)) if isinstance(table, dict) else None
        if number is None:
            continue
        values = {key: to_number(str(value)) for key, value in table.items() if isinstance(value, int | float | str)}
        fields = to_fields(Pair(key, value, None) for key, value in values.items() if value is not None)
        if fields:
            yield number, fields, line


JSON_LINES = Program(mark=OBJECT, words=(b"tep", b"iter", b"pdate", b'"number"'), read=read_objects)
