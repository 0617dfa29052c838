"""How the log of one program is read: which lines report on a step, and what their names mean."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from charllm.measure.logs.lines import Line
from charllm.measure.logs.names import NAMES, Meaning, find_pairs, to_fields
from charllm.units import whole_number

Found = tuple[int, dict[str, float], Line]
"""Number of a step, its fields and its (last) line."""


class Program(NamedTuple):
    """One training program."""

    mark: re.Pattern[str]
    """A line that reports on a step, with the group `number`."""
    names: Mapping[str, Meaning] = NAMES
    ending: str = ""
    """Text that every complete line ends in, where there is one: a line without it was cut short."""
    needs: tuple[str, ...] = ()
    """Fields of which a line must state one to count as a step."""
    words: tuple[bytes, ...] = ()
    """A line that matters holds one of these; any may where there are none."""
    following: int = 0
    """Lines after such a one that matter too."""
    read: Callable[[Sequence[Line]], Iterator[Found]] | None = None
    """Reader of a program whose steps are not lines of names and numbers."""
    mean_step_s: Callable[[Sequence[Line]], float | None] | None = None
    """Reads the mean duration of a step where the program sums up its run."""
    below: bool = False
    """Whether it runs below another program, whose lines say more where there are any."""
    unread: str = ""
    """Why a log of this program may have reports and no steps."""


def read_steps(program: Program, lines: Sequence[Line]) -> Iterator[Found]:
    """List the steps that the lines report, in order."""
    if program.read is not None:
        yield from program.read(lines)
        return
    for line in lines:
        found = program.mark.search(line.text)
        if found is None:
            continue
        text = line.text[found.end("number") :]
        if program.ending and not text.rstrip().endswith(program.ending):
            # The last number may have lost digits.
            text = text[: max(text.rfind(program.ending), 0)]
        fields = to_fields(find_pairs(text), program.names)
        if not program.needs or any(name in fields for name in program.needs):
            stated = fields.pop("number", None)
            number = whole_number(found["number"].replace(",", "")) if stated is None else _as_count(stated)
            if number is not None:
                yield number, fields, line


def first_whole_number(*values: Any) -> int | None:
    """Return the first value that is a whole number."""
    for value in values:
        if isinstance(value, bool) or value is None:
            continue
        try:
            return int(value)
        except (TypeError, ValueError, OverflowError):
            continue
    return None


def _as_count(stated: float) -> int | None:
    """Return the number of a step that a line states; None for what is no number."""
    return int(stated) if math.isfinite(stated) else None
