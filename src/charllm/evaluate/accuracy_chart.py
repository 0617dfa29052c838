"""Every held-out published step time, predicted against measured, as one picture for README and the accuracy page."""

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median

from charllm.evaluate.predictions import Prediction

FILE = Path(__file__).parents[3] / "docs" / "pictures" / "accuracy.svg"
SIDE, LEFT, TOP, BOTTOM, WIDTH = 360, 64, 16, 52, 600
"""Pixels: of the square that is drawn on, around it, and of the whole."""
COLOURS = {
    "dense": "#3568b8",
    "sparse": "#c2571a",
    "LoRA": "#2d8a4e",
    "as users run it": "#8a8a8a",
}
"""Class of runs: its colour. Of runs as users have them the source was left out, of the others the model family."""
KINDS = {"dense": "dense", "moe": "sparse", "lora": "LoRA"}
ROOM = 1.5
"""Between the outermost dots and the frame, as a factor."""
BAND = 1.1
"""Dashed lines stand at 10 % above and below what was measured."""


def group_rows(rows: Iterable[Prediction]) -> dict[str, list[tuple[float, float]]]:
    """Return (measured, predicted) seconds by class; runs that were not tuned are a class of their own."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in COLOURS}
    *_, users = COLOURS
    for row in rows:
        tuned = row.host == "tuned"
        predicted_s = row.predicted_s if tuned else row.source_left_out_s
        found[KINDS[row.kind] if tuned else users].append((row.measured_s, predicted_s))
    return found


def draw_chart(groups: dict[str, list[tuple[float, float]]]) -> str:
    """Return the picture as SVG: both axes logarithmic, a dot for each row."""
    seconds = [value for points in groups.values() for point in points for value in point]
    low, high = math.log10(min(seconds) / ROOM), math.log10(max(seconds) * ROOM)

    def place(value_s: float) -> float:
        return SIDE * (math.log10(value_s) - low) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {TOP + SIDE + BOTTOM}" role="img" '
        'font-family="sans-serif" font-size="12" fill="#222">',
        "<title>Step time of published runs: predicted without their model family, against measured</title>",
        f'<rect width="{WIDTH}" height="{TOP + SIDE + BOTTOM}" fill="#fff"/>',
        f'<g transform="translate({LEFT} {TOP})">',
        *_axes(range(math.ceil(low), math.floor(high) + 1), place),
        *_diagonals(low, high, place),
    ]
    for name, points in groups.items():
        dots = "".join(f"M{place(x):.1f} {SIDE - place(y):.1f}h0" for x, y in points)
        parts.append(f'<path d="{dots}" stroke="{COLOURS[name]}" stroke-width="4" stroke-linecap="round" '
                     'stroke-opacity="0.6" fill="none"/>')  # fmt: skip
    return "\n".join([*parts, *_legend(groups), "</g>", "</svg>"]) + "\n"


def _axes(decades: Sequence[int], place: Callable[[float], float]) -> list[str]:
    lines = [f'<rect width="{SIDE}" height="{SIDE}" fill="none" stroke="#888"/>']
    for decade in decades:
        at, words = place(10.0**decade), f"{10.0**decade:g} s"
        lines += [
            f'<path d="M{at:.1f} 0v{SIDE}M0 {SIDE - at:.1f}h{SIDE}" stroke="#e4e4e4"/>',
            f'<text x="{at:.1f}" y="{SIDE + 18}" text-anchor="middle">{words}</text>',
            f'<text x="-8" y="{SIDE - at + 4:.1f}" text-anchor="end">{words}</text>',
        ]
    return [
        *lines,
        f'<text x="{SIDE / 2}" y="{SIDE + 40}" text-anchor="middle">measured step time</text>',
        f'<text transform="translate(-50 {SIDE / 2}) rotate(-90)" text-anchor="middle">predicted</text>',
    ]


def _diagonals(low: float, high: float, place: Callable[[float], float]) -> list[str]:
    first_s, last_s = 10.0**low, 10.0**high
    return [
        f'<path d="M{place(first_s * max(1, 1 / factor)):.1f} {SIDE - place(first_s * max(1, factor)):.1f}'
        f'L{place(last_s / max(1, factor)):.1f} {SIDE - place(last_s * min(1, factor)):.1f}" stroke="#555" '
        f'stroke-dasharray="{dash}"/>'
        for factor, dash in ((1.0, "none"), (BAND, "4 3"), (1 / BAND, "4 3"))
    ]


def _legend(groups: dict[str, list[tuple[float, float]]]) -> list[str]:
    lines = []
    for number, (name, points) in enumerate(groups.items()):
        y = 14 + 40 * number
        errors = [abs(math.log(predicted_s / measured_s)) for measured_s, predicted_s in points]
        words = f"{len(points)} rows, median {100 * median(errors):.1f} %" if errors else "no rows"
        lines += [
            f'<circle cx="{SIDE + 18}" cy="{y - 4}" r="4" fill="{COLOURS[name]}"/>',
            f'<text x="{SIDE + 28}" y="{y}">{name}</text>',
            f'<text x="{SIDE + 28}" y="{y + 15}" fill="#666">{words}</text>',
        ]
    return [*lines, f'<text x="{SIDE + 10}" y="{14 + 40 * len(groups)}" fill="#666">dashed: 10 % off</text>']


def write_chart(rows: Iterable[Prediction]) -> None:
    """Write the picture of the documents."""
    FILE.write_text(draw_chart(group_rows(rows)), encoding="utf-8")
