"""Colour for a terminal, added to a finished text: what it says does not depend on it."""

import re

BOLD, DIM, YELLOW, RESET = "\x1b[1m", "\x1b[2m", "\x1b[33m", "\x1b[0m"
RULE = re.compile(r"-+(  -+)*")
NOTE = re.compile(r"\(columns not shown: |Explanation: ")


def paint(text: str) -> str:
    """Make titles and headings of tables bold, rules faint and explanations yellow."""
    return "\n\n".join(_paint_block(block) for block in text.split("\n\n"))


def _paint_block(block: str) -> str:
    lines = block.split("\n")
    rules = [place for place, line in enumerate(lines) if RULE.fullmatch(line)]
    head = rules[0] if rules else 0
    painted = [
        f"{BOLD}{line}{RESET}" if place < head else f"{DIM}{line}{RESET}" if place in rules else line
        for place, line in enumerate(lines)
    ]
    return "\n".join(_paint_note(line) for line in painted)


def _paint_note(line: str) -> str:
    found = NOTE.match(line)
    return f"{DIM if line.startswith('(') else YELLOW}{line}{RESET}" if found else line
