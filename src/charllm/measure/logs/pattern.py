"""Any other program: lines that name a step and a loss or a time, or a pattern of the user's own."""

import re
from collections.abc import Iterator, Sequence

from charllm.errors import SpecError
from charllm.measure.logs.lines import Line
from charllm.measure.logs.log import LoggedStep
from charllm.measure.logs.names import FACTORS, to_number
from charllm.measure.logs.program import Found, Program

PLAIN = Program(
    mark=re.compile(
        r"(?i)\b(?:global[_ ]?)?(?:step|iter|iteration|batch|update)s?\b[\s:=#\[(]*(?P<number>\d[\d,]{0,20})(?![.\d])"
    ),
    needs=("loss", "seconds", "tokens_per_s", "gpu_tokens_per_s", "samples_per_s"),
    words=(b"tep", b"iter", b"Iter", b"atch", b"pdate"),
)
LONGEST_PATTERN = 2000
EXTRA = ("ms", "samples_per_s")
"""Groups beside the fields of a step: milliseconds, and samples per second."""
GROUPS = tuple(name for name in LoggedStep.__dataclass_fields__ if name not in ("end_byte", "steps"))


def own_pattern(pattern: str) -> Program:
    """Build the reader of a user's own pattern, whose named groups are fields of a step."""
    try:
        mark = re.compile(pattern) if len(pattern) <= LONGEST_PATTERN else None
    except re.error as error:
        raise SpecError("--log-pattern", pattern, f"a regular expression ({error})") from None
    if mark is None or "number" not in mark.groupindex:
        raise SpecError("--log-pattern", pattern, "a regular expression with a group (?P<number>...), the step")
    for group in mark.groupindex:
        if group not in (*GROUPS, *EXTRA):
            raise SpecError("--log-pattern", group, f"groups named {', '.join((*GROUPS, *EXTRA))}")

    def read(lines: Sequence[Line]) -> Iterator[Found]:
        for line in lines:
            found = mark.search(line.text)
            number = to_number(found["number"]) if found else None
            if found and number is not None:
                values = {name: to_number(text or "") for name, text in found.groupdict().items() if name != "number"}
                fields = {name: value for name, value in values.items() if value is not None}
                if "ms" in fields:
                    fields["seconds"] = fields.pop("ms") * FACTORS["ms"]
                yield int(number), fields, line

    return Program(mark=mark, read=read)
