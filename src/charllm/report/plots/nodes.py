"""The GPUs of a node as they stand: rows from front to rear, a number in each slot, the one that paces marked."""

from collections.abc import Sequence
from dataclasses import dataclass

from charllm.report.plots.pen import Pen

GAP = "   "
SHADES = (68, 67, 103, 102, 101, 143, 137, 136, 178)
"""From cold to hot: blue, grey, yellow as in cividis, all of them legible on dark and on light."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One GPU: where it stands and what is written there."""

    node: str
    row: int
    place: int
    value: float
    paces: bool = False


def draw_nodes(slots: Sequence[Slot], pen: Pen, *, front: str = "front", rear: str = "rear") -> list[str]:
    """Draw nodes beside each other as the output is wide, each a block of rows."""
    blocks = [_block(node, slots, pen) for node in dict.fromkeys(slot.node for slot in slots)]
    rows = max(len(block) for block, _ in blocks) - 1
    sides = ["", *_sides(rows, front, rear, pen)]
    margin = max(map(len, sides))
    per_line = max(1, (pen.width - margin) // (max(width for _, width in blocks) + len(GAP)))
    lines: list[str] = []
    for first in range(0, len(blocks), per_line):
        shown = blocks[first : first + per_line]
        for row in range(rows + 1):
            cells = [block[row] if row < len(block) else " " * width for block, width in shown]
            lines.append(f"{sides[row].ljust(margin)}{GAP}{GAP.join(cells)}".rstrip())
    return lines


def _sides(rows: int, front: str, rear: str, pen: Pen) -> list[str]:
    """Return what stands beside the rows: where the air enters and where it leaves."""
    if rows < 2 or not front:
        return [""] * rows
    return [front, *[pen.pick("↓", "v").center(len(front)).rstrip()] * (rows - 2), rear]


def _block(node: str, slots: Sequence[Slot], pen: Pen) -> tuple[list[str], int]:
    """Return the lines of one node and their width."""
    mine = {(slot.row, slot.place): slot for slot in slots if slot.node == node}
    rows, places = max(row for row, _ in mine) + 1, max(place for _, place in mine) + 1
    texts = {where: f"{slot.value:.0f}" for where, slot in mine.items()}
    wide = max(map(len, texts.values()))
    values = [slot.value for slot in slots]
    low, high = min(values), max(values)
    lines = []
    for row in range(rows):
        cells = []
        for place in range(places):
            slot = mine.get((row, place))
            if slot is None:
                cells.append(" " * (wide + 2))
                continue
            shade = SHADES[round((slot.value - low) / (high - low) * (len(SHADES) - 1))] if high > low else SHADES[0]
            ends = "><" if slot.paces else "[]"
            text = f"{ends[0]}{texts[row, place].rjust(wide)}{ends[1]}"
            cells.append(pen.colour([(letter, shade if pen.has_colour else None) for letter in text]))
        lines.append(" ".join(cells))
    width = max(places * (wide + 3) - 1, len(node))
    pad = width - (places * (wide + 3) - 1)
    return [node.ljust(width), *(line + " " * pad for line in lines)], width
