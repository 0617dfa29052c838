"""A grid of cells that lines are drawn into: eight braille dots a cell, or one ASCII character."""

from charllm.report.plots.pen import Pen

BRAILLE = 0x2800
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bit of a dot, by row from the top and by column."""


class Dots:
    """Rows of cells; lines in dots, single characters over them."""

    def __init__(self, columns: int, rows: int, pen: Pen) -> None:
        self.columns, self.rows, self.pen = columns, rows, pen
        self.across, self.down = (2, 4) if pen.has_blocks else (1, 1)
        self._bits = [[0] * columns for _ in range(rows)]
        self._under = [[" "] * columns for _ in range(rows)]
        self._over: dict[tuple[int, int], tuple[str, int | None]] = {}

    @property
    def width(self) -> int:
        """Dots across."""
        return self.columns * self.across

    @property
    def height(self) -> int:
        """Dots from bottom to top."""
        return self.rows * self.down

    def dot(self, across: int, up: int) -> None:
        """Set one dot, counted from the lower left."""
        row, within = divmod(self.height - 1 - up, self.down)
        column, side = divmod(across, self.across)
        self._bits[row][column] |= DOTS[within][side]

    def column(self, across: int, low: int, high: int) -> None:
        """Set all dots of one column from low to high."""
        for up in range(low, high + 1):
            self.dot(across, up)

    def shade(self, column: int, row: int, character: str) -> None:
        """Lay a character under the lines, in a row of cells counted from the bottom."""
        self._under[self.rows - 1 - row][column] = character

    def put(self, column: int, row: int, character: str, tone: int | None = None) -> None:
        """Write a character over the lines, in a row of cells counted from the bottom."""
        self._over[column, self.rows - 1 - row] = (character, tone)

    def lines(self, tone: int | None = None) -> list[str]:
        """Return the rows of cells as text, top first; lines in the colour given."""
        return [
            self.pen.colour([self._cell(column, row, tone) for column in range(self.columns)])
            for row in range(self.rows)
        ]

    def _cell(self, column: int, row: int, tone: int | None) -> tuple[str, int | None]:
        if (column, row) in self._over:
            return self._over[column, row]
        bits = self._bits[row][column]
        if not bits:
            return self._under[row][column], None
        return chr(BRAILLE + bits) if self.pen.has_blocks else "*", tone
