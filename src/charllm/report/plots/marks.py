"""The character and the colour of each part: the same in every plot, and the colours those of the HTML pages."""

from collections.abc import Iterable, Mapping

from charllm.report.plots.pen import Pen

Marks = Mapping[str, tuple[str, int]]
"""The character and colour of each part, in the order of the parts."""
PALETTES: Mapping[str, Mapping[str, tuple[str, str, int]]] = {
    "part": {
        "compute": ("█", "#", 74),
        "forward": ("▒", "f", 74),
        "backward": ("█", "b", 31),
        "weight": ("▓", "w", 110),
        "recompute": ("▓", "r", 117),
        "optimizer": ("o", "o", 175),
        "tp_exposed": ("t", "t", 178),
        "pp_exposed": ("p", "p", 166),
        "dp_exposed": ("d", "d", 221),
        "ep_exposed": ("e", "e", 36),
        "cp_exposed": ("c", "c", 140),
        "straggler_wait": ("~", "~", 246),
        "bubble": ("·", ".", 240),
        "overhead": ("+", "+", 243),
        "step": ("█", "#", 74),
    },
    "memory": {
        "weights": ("█", "W", 74),
        "gradients": ("▓", "G", 117),
        "optimizer": ("▒", "O", 175),
        "activations": ("░", "A", 178),
        "scratch": ("s", "s", 166),
        "reserve": ("·", ".", 240),
        "communication": ("c", "c", 36),
        "context": ("x", "x", 243),
        "used": ("█", "#", 74),
    },
    "cause": {"power": ("▒", "p", 178), "thermal": ("█", "T", 166), "brake": ("▓", "B", 175)},
}
"""By palette of a figure: part, its character among blocks, in ASCII, and its colour."""
SPARE, PLAIN = "█▓▒░", "#=%-"
"""Characters for the first parts that no palette knows; the others get a letter."""
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
COLOURS = (74, 166, 36, 175, 178, 140, 117, 243)


def marks_of(parts: Iterable[str], pen: Pen, palette: str = "") -> dict[str, tuple[str, int]]:
    """Return a character of its own, and a colour, for each part."""
    known = PALETTES.get(palette, {})
    found: dict[str, tuple[str, int]] = {}
    taken = {mark for block, plain, _ in known.values() for mark in (block, plain)} if known else set()
    order = list(known)
    for part in sorted(dict.fromkeys(parts), key=lambda part: order.index(part) if part in known else len(order)):
        if part in known:
            block, plain, tone = known[part]
            found[part] = (pen.pick(block, plain), tone)
            continue
        shades = pen.pick(SPARE, PLAIN)
        letters = [letter for letter in part.lower() if letter in LETTERS] + list(LETTERS)
        mark = next((each for each in (*shades, *letters) if each not in taken), "?")
        taken.add(mark)
        found[part] = (mark, COLOURS[len(found) % len(COLOURS)])
    return found
