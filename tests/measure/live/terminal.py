"""A small terminal: enough of a VT100 to see what a person would see."""

import re

ESCAPE = re.compile(r"\033(?:\[([0-9;]*)([A-Za-z])|([78]))")


class Terminal:
    """A screen of some lines, of which a region scrolls; lines that leave it upwards are kept in `scrolled`."""

    def __init__(self, lines: int, columns: int) -> None:
        self._size = lines, columns
        self._cells = [[" "] * columns for _ in range(lines)]
        self._row = self._column = 0
        self._region = 0, lines - 1
        self._saved = 0, 0
        self.scrolled: list[str] = []

    @property
    def screen(self) -> list[str]:
        return ["".join(line).rstrip() for line in self._cells]

    def feed(self, text: str) -> None:
        place = 0
        while place < len(text):
            found = ESCAPE.match(text, place)
            if found:
                self._obey(found)
                place = found.end()
                continue
            self._put(text[place])
            place += 1

    def _put(self, letter: str) -> None:
        if letter == "\n":
            self._next_line()
        elif letter == "\r":
            self._column = 0
        else:
            if self._column == self._size[1]:
                self._column = 0
                self._next_line()
            self._cells[self._row][self._column] = letter
            self._column += 1

    def _next_line(self) -> None:
        top, bottom = self._region
        if self._row == bottom:
            self.scrolled.append("".join(self._cells[top]).rstrip())
            del self._cells[top]
            self._cells.insert(bottom, [" "] * self._size[1])
        elif self._row < self._size[0] - 1:
            self._row += 1

    def _obey(self, found: "re.Match[str]") -> None:
        numbers = [int(word) for word in (found[1] or "").split(";") if word]
        if found[3] == "7":
            self._saved = self._row, self._column
        elif found[3] == "8":
            self._row, self._column = self._saved
        elif found[2] == "H":
            self._row, self._column = (numbers[0] - 1, numbers[1] - 1) if numbers else (0, 0)
        elif found[2] == "A":
            self._row = max(self._region[0], self._row - (numbers[0] if numbers else 1))
        elif found[2] == "K":
            self._cells[self._row] = [" "] * self._size[1]
        elif found[2] == "J":
            for row in range(self._row, self._size[0]):
                self._cells[row] = [" "] * self._size[1]
        elif found[2] == "r":
            self._region = (numbers[0] - 1, numbers[1] - 1) if numbers else (0, self._size[0] - 1)
            self._row = self._column = 0
        else:
            raise AssertionError(found[0])
