"""A plan as text: the best strategies, why the first is the best, how the others were decided."""

from collections.abc import Mapping, Sequence
from typing import Any

from charllm.report.tables import metric_cells, metric_headings, render_table, wrap_all
from charllm.result.metrics import quantity, selected
from charllm.units import format_percent

SHOWN = selected(
    "step_time_s", "tokens_per_s", "power_mean_w", "temperature_peak_c", "memory_need_bytes", "mfu", "tokens_per_j"
)
HEADINGS = ("rank", "strategy", *metric_headings(SHOWN), "best with")
MOST_ROWS = 10
DROPPED_FIRST = ("best with", *metric_headings(reversed(SHOWN[1:])))


def render_plan(plan: Mapping[str, Any], command: str) -> str:
    """Return the table of a plan, its reasons and its counts; `command` reproduces the winner."""
    best = plan["best"]
    rows = [_row(str(place), one) for place, one in enumerate(best[:MOST_ROWS], 1)]
    own = plan["own"]
    if own:
        rows.append(_row("own" if own["rank"] is None else f"own ({own['rank']})", own))
    title = f"Best strategies for {plan['objective']}, simulated in full"
    parts = [render_table(title, HEADINGS, rows, drop=DROPPED_FIRST, where="--csv")]
    if plan["pareto"]:
        parts.append(render_table("Pareto front: tokens/s, tokens/J, temperature and peak power", HEADINGS,
                                  [_row(str(place), one) for place, one in enumerate(plan["pareto"], 1)],
                                  drop=DROPPED_FIRST, where="--csv"))  # fmt: skip
    parts.append("\n".join(["Why the first is the best", *wrap_all(best[0]["why"])]))
    parts += [_section(title, lines) for title, lines in _lists(plan) if lines]
    parts.append(f"Run it with\n{command}")
    return "\n\n".join(parts)


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n".join([title, *wrap_all(lines)])


def _lists(plan: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    counts = plan["counts"]
    decided = [
        f"{counts['visited']:,} strategies: {counts['pruned_memory']:,} may not fit in memory, "
        f"{counts['pruned_bound']:,} ruled out (cannot be faster), {counts['priced']:,} evaluated, "
        f"{counts['simulated']:,} of them simulated ({plan['elapsed_s']:.1f} s)"
    ]
    decided += [f"{count} of the simulated break {limit}" for limit, count in plan["rejected"].items() if count]
    changes = [_change(one) for one in plan["best"][0]["diff"]] if plan["own"] else []
    stays = [f"{one['change']}: {_stays(one)}" for one in plan["sensitivity"]]
    return [
        ("Settings to change in your own strategy", changes),
        ("Is the first still the best on a changed machine?", stays),
        ("How strategies were selected", decided),
    ]


def _change(one: Mapping[str, Any]) -> str:
    before, after = ("-" if one[side] is None else one[side] or "set" for side in ("before", "after"))
    return f"{one['program']}: {one['flag']} {before} -> {after}"


def _stays(one: Mapping[str, Any]) -> str:
    if one["stays"] is None:
        return str(one["reason"])
    lead = one["lead_fraction"]
    margin = f" by {format_percent(abs(lead))}" if lead is not None else ""
    return f"stays the best{margin}" if one["stays"] else f"is behind{margin}"


def _row(rank: str, one: Mapping[str, Any]) -> list[str]:
    odds = quantity("probability_best").cell(one["probability_best"])
    return [rank, one["strategy"], *metric_cells(one["metrics"], SHOWN), odds]
