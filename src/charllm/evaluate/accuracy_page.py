"""The accuracy page of the documentation, written from the committed scoreboard (`make scoreboard`)."""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, floor
from pathlib import Path
from typing import Any

from charllm.evaluate.points import Score
from charllm.evaluate.predictions import load_predictions
from charllm.evaluate.scoreboard import PARTS, PUBLISHED, SPLITS, ranked_fraction, read_scoreboard
from charllm.result.differences import ANY, QUANTITIES, TEMPERATURES, UNMEASURABLE, half_width, read_errors
from charllm.result.uncertainty import LEVEL, errors, usual_factors
from charllm.units import format_percent

PAGE = Path(__file__).parents[3] / "docs" / "accuracy.md"
OPENING = """# Accuracy

This page is written by `make scoreboard`; edit `evaluate/accuracy_page.py`, not this page. `charllm validate all`
computes the same figures anew in a few minutes (`--quick` takes published rows as committed).
[How far to trust it](trust.md) says what they mean.

Errors are predicted over measured minus one, without sign; those of temperatures are in kelvin. *Mean* keeps the sign.
*Table* is the median error of a simpler method: for published runs the median FLOP/s of other model families on the
same GPU and precision; for thermal traces one resistance without lag; for the rest the median figure, or rate, of the
other rows of the class."""
BY = {"class": "class", "source": "source", "GPU": "GPU", "strategy": "axes that cut the model",
      "GPUs": "number of GPUs", "parameters": "parameters"}  # fmt: skip
COVERED, WIDEST = (0.85, 0.95), 0.30
"""What is asked of an interval of 90 % on a source that was left out."""


def render_page(scores: Sequence[Score]) -> str:
    """Return the page."""
    parts = [OPENING, "## Step time of published runs", _published(scores), _intervals(), _differences()]
    parts.append("## Everything else")
    for name, part in PARTS.items():
        own = [
            score
            for score in scores
            if score.part == name and score.by in ("all", "class", "take", "meaning", "change")
        ]
        if own:
            parts += [f"### {name[0].upper()}{name[1:]}", part.about, _table(own, with_quantity=True)]
    from charllm.evaluate.generation import score_generation
    from charllm.evaluate.rl import score_rl

    parts += ["## Generation", GENERATION, _questions(score_generation())]
    parts += ["## Reinforcement learning", RL, _questions(score_rl())]
    return "\n\n".join(parts) + "\n"


GENERATION = """Prefill and decode of vLLM 0.20 (B300), FasterTransformer (A100) and TensorRT-LLM 0.5 (A100, H100), and
time per token and power of vLLM under saturated load (ML.ENERGY, H100), as published. Nothing is fitted on these rows;
eight choices of mechanism were made with their errors in view (evaluate/generation.py).
Time per token under load is that of a median step, its power that of steps and of the prompts read between them. Time
to first token under load is queueing and is not predicted."""


RL = """Steps that NeMo RL prints, on 8 to 512 H100 and GB200, with their mean length; phases of three of them. Nothing
is fitted on these rows; their errors were seen while five assumptions were chosen (evaluate/rl.py)."""


def _questions(scored: Mapping[str, Any]) -> str:
    """Return errors of rows that no training run stands behind, by question."""
    rows = [
        [name, str(one["scored"]), format_percent(one["median_abs_error_fraction"]),
         format_percent(one["p90_abs_error_fraction"]), format_percent(one["mean_error_fraction"])]
        for name, one in scored["scores"].items()
    ]  # fmt: skip
    return _markdown(["rows of", "rows", "median error", "90th percentile", "mean"], rows, texts=1)


def _published(scores: Sequence[Score]) -> str:
    own = [score for score in scores if score.part == "published"]
    everything = [score for score in own if score.by == "all"]
    usual = [score for score in scores if score.part == "published, untuned hosts" and score.split == "source left out"]
    ranked = 100 * ranked_fraction(load_predictions())
    parts = [
        PUBLISHED,
        _table(everything, names=[score.split for score in everything]),
        f"Of pairs of one source, model and GPU whose times differ by more than 10 %, {ranked:.0f} % are ranked "
        "correctly.",
    ]
    parts += _usual(usual)
    first, gpu_left_out = next(iter(SPLITS)), "GPU left out"
    for by, title in BY.items():
        split = {"source": "source left out", "GPU": gpu_left_out}.get(by, first)
        groups = [score for score in own if score.by == by and score.split == split]
        parts += [f"By {title}, {split}:", _table(sorted(groups, key=lambda score: -score.rows))]
    return "\n\n".join(parts)


def _usual(scores: Sequence[Score]) -> list[str]:
    """Return how runs of users were predicted, which no other figure holds."""
    whole = next((score for score in scores if score.by == "all"), None)
    if whole is None:
        return []
    low, middle, high = usual_factors()
    sources = [score for score in scores if score.by == "source"]
    return [
        f"{whole.rows} further rows are of runs as users have them (centres, repositories, comparisons, hosts that "
        f"were not tuned): median error {_write(whole, whole.median)}, 90th percentile {_write(whole, whole.p90)}, "
        f"mean {_write(whole, whole.mean)}, source left out. Nine in ten of them took {low:.2g} to {high:.2g} times as "
        f"long as predicted, half of them more than {middle:.2g} times. They are in no fit and in no other figure.",
        _table(sorted(sources, key=lambda score: -score.rows)),
    ]


def _table(scores: Iterable[Score], *, with_quantity: bool = False, names: Sequence[str] = ()) -> str:
    """Return scores as a Markdown table."""
    rows = []
    for place, score in enumerate(scores):
        name = names[place] if names else "all" if score.by == "all" else score.group
        lead = [score.quantity, score.split, name] if with_quantity else [name]
        figures = [_write(score, figure) for figure in (score.median, score.p90, score.mean, score.baseline_median)]
        rows.append([*lead, str(score.rows), *figures])
    lead = ["quantity", "split", "group"] if with_quantity else [""]
    return _markdown([*lead, "rows", "median", "90th percentile", "mean", "table"], rows, len(lead))


def _write(score: Score, figure: float | None) -> str:
    if figure is None:
        return ""
    return f"{figure:.1f} K" if score.quantity in TEMPERATURES else format_percent(figure)


def _intervals() -> str:
    """Return how intervals do where each source is left out."""
    held = errors()["held_out"]["sources"]
    rows = [
        f"| {source} | {one['rows']} | {format_percent(one['covered_fraction'], 0)} | "
        f"{format_percent(one['width_fraction'], 0)} | {'yes' if _meets(one) else 'no'} |"
        for source, one in held.items()
    ]
    met = sum(_meets(one) for one in held.values())
    return "\n".join([
        f"## Intervals of {format_percent(LEVEL, 0)}",
        "",
        "Each source of 20 rows or more, judged by [intervals](concepts/uncertainty.md) that the other sources give. "
        f"{met} of {len(held)} have 85 to 95 % of their rows inside, at a median width of at most 30 % of the value. "
        f"Together {format_percent(_covered(held.values()), 0)} of their rows are inside. Sources are small: intervals "
        f"that hold exactly {format_percent(LEVEL, 0)} of independent rows would have 85 to 95 % inside for "
        f"{_expected(held.values()):.0f} of {len(held)} sources on average; rows of one source are not independent.",
        "",
        "| source | rows | inside | median width | both met |",
        "|---|---:|---:|---:|---|",
        *rows,
        "",
        "The same for runs on H200 boards that were predicted first, each take by intervals that the others give. The "
        "air at the boards was not measured, and temperatures of one take err together.",
        "",
        "| metric | rows | inside | median width |",
        "|---|---:|---:|---:|",
        *(_take_row(metric, one) for metric, one in errors()["held_out"]["h200"].items()),
    ])  # fmt: skip


DIFFERENCES = """## Intervals of differences

Half width of the 90 % interval of what one change does: that of a small effect, and that of one of 20 % (temperatures:
5 K). The measured difference of nine in ten pairs lies inside; where the interval holds zero, an answer says
*{unmeasurable}*. *Noise* is the standard deviation of the same difference measured twice. *{any}* stands for kinds
without pairs. Step times of published pairs were predicted with their model family left out; watts, clocks and degrees
were read on H200 boards, on V100 nodes (clock limits) and on an H100 (power limits).

{table}

How many pairs lie in intervals that the other sources (or boards) give:

{held}"""
LARGE_EFFECT, LARGE_K = 0.2, 5.0


def _differences() -> str:
    """Return the errors of differences, and how their intervals do where each source is left out."""
    rows = [_difference_row(row) for row in read_errors()["errors"]]
    held = [[one["quantity"], one["source"], str(one["pairs"]), format_percent(one["covered_fraction"], 0)]
            for one in read_errors()["held_out"]]  # fmt: skip
    return DIFFERENCES.format(
        unmeasurable=UNMEASURABLE, any=ANY,
        table=_markdown(["quantity", "change", "small effect", "large effect", "median error", "noise", "pairs", "runs",
                         "sources"], rows, texts=2),
        held=_markdown(["quantity", "source", "pairs", "inside"], held, texts=2),
    )  # fmt: skip


def _difference_row(row: Mapping[str, Any]) -> list[str]:
    is_kelvin = row["quantity"] in TEMPERATURES
    large = half_width(row, LARGE_K if is_kelvin else LARGE_EFFECT)
    sizes = (half_width(row, 0.0), large, row["median_error"], row["noise"])
    shown = [f"{size:.1f} K" if is_kelvin else format_percent(size) for size in sizes]
    return [row["quantity"], row["change"], *shown, *(str(row[name]) for name in ("pairs", "runs", "sources"))]


def _markdown(columns: Sequence[str], rows: Iterable[Sequence[str]], texts: int) -> str:
    """Return a table whose first columns are texts and whose others are figures."""
    rule = ["---"] * texts + ["---:"] * (len(columns) - texts)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [columns, rule, *rows])


def _covered(sources: Iterable[dict[str, float]]) -> float:
    """Return the share of all rows that lie inside."""
    counted = [(one["rows"], one["covered_fraction"]) for one in sources]
    return sum(rows * inside for rows, inside in counted) / sum(rows for rows, _inside in counted)


def _expected(sources: Iterable[dict[str, float]]) -> float:
    """Return for how many sources a binomial number of rows inside lies within the bounds, on average."""
    from scipy.stats import binom

    low, high = COVERED
    sizes = [int(one["rows"]) for one in sources]
    return float(sum(binom.cdf(floor(high * rows), rows, LEVEL) - binom.cdf(ceil(low * rows) - 1, rows, LEVEL)
                     for rows in sizes))  # fmt: skip


def _take_row(metric: str, one: dict[str, float]) -> str:
    width = f"{one['width_k']:.1f} K" if "width_k" in one else format_percent(one["width_fraction"], 0)
    return f"| {QUANTITIES[metric]} | {one['rows']} | {format_percent(one['covered_fraction'], 0)} | {width} |"


def _meets(one: dict[str, float]) -> bool:
    return COVERED[0] <= one["covered_fraction"] <= COVERED[1] and one["width_fraction"] <= WIDEST


def write_page() -> None:
    """Write the page into the documentation."""
    PAGE.write_text(render_page(read_scoreboard()), encoding="utf-8")


if __name__ == "__main__":
    write_page()
