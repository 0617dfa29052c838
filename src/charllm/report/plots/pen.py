"""What an output can show: its width, whether it has block and braille characters, whether it has colour."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from charllm.report.colour import RESET

BLOCKS = "█▓▒░│─└┘┤┬·↓…⣿"
"""All that a plot may draw beside ASCII; ⣿ stands for braille."""
Cell = tuple[str, int | None]
"""A character and its colour, a number of the 256 of a terminal."""


@dataclass(frozen=True, slots=True)
class Pen:
    """How plots are drawn on one output."""

    width: int = 80
    has_blocks: bool = True
    """False: nothing but ASCII."""
    has_colour: bool = False

    def pick(self, block: str, plain: str) -> str:
        """Return the character that this output can show."""
        return block if self.has_blocks else plain

    def colour(self, cells: Iterable[Cell]) -> str:
        """Join characters, each in its colour where there is one."""
        if not self.has_colour:
            return "".join(character for character, _ in cells)
        runs = [(tone, "".join(each[0] for each in run)) for tone, run in groupby(cells, key=lambda cell: cell[1])]
        return "".join(text if tone is None else f"\x1b[38;5;{tone}m{text}{RESET}" for tone, text in runs)

    def cut(self, text: str, width: int) -> str:
        """Shorten a text that is too long for its place."""
        return text if len(text) <= width else text[: max(0, width - 1)] + self.pick("…", "~")


def can_show_blocks(encoding: str | None) -> bool:
    """Tell whether an output of this encoding has the characters that plots are drawn with."""
    try:
        BLOCKS.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
