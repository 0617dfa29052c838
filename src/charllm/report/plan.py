"""A plan as text: the best strategy and those that really differ from it, why the first is best, the counts."""

from collections.abc import Mapping, Sequence
from typing import Any

from charllm.report.tables import metric_cells, metric_headings, render_table, wrap_all
from charllm.result.metrics import selected
from charllm.units import format_change, format_percent

SHOWN = selected(
    "step_time_s", "tokens_per_s", "power_mean_w", "temperature_peak_c", "memory_need_bytes", "mfu", "tokens_per_j"
)
MONEY, WHOLE_RUN = selected("money_per_trillion_tokens"), selected("run_time_s", "run_money", "run_energy_j")
MOST_ROWS = 10


def render_plan(plan: Mapping[str, Any], command: str, *, full: bool = False) -> str:
    """Return the best strategy, those that really differ, why, and the counts; with `full` every strategy listed.

    `command` reproduces the winner.
    """
    shown = _columns(plan)
    names, dropped = ("", "strategy", *metric_headings(shown)), metric_headings(reversed(shown[1:]))
    rows = [_row(_role(one), one, shown) for one in plan["alternatives"]]
    own = plan["own"]
    if own:
        rows.append(_row("your own", own, shown))
    title = f"{plan['run']}: strategies for {plan['objective']}, each simulated in full"
    parts = [render_table(title, names, rows, drop=dropped, where="--csv")]
    parts += ["\n".join(wrap_all(_sentences(plan)))]
    front = "Pareto front: tokens/s, tokens/J, temperature and peak power"
    for heading, listed in (("Best strategies", plan["best"][:MOST_ROWS] if full else []), (front, plan["pareto"])):
        cells = [_row(str(place), one, shown) for place, one in enumerate(listed, 1)]
        parts += [render_table(heading, names, cells, drop=dropped, where="--csv")] if cells else []
    parts.append("\n".join(["Why the first", *wrap_all(plan["best"][0]["why"])]))
    parts += [_section(title, lines) for title, lines in _lists(plan) if lines]
    parts.append(f"Run it with\n{command}")
    return "\n\n".join(parts)


def _columns(plan: Mapping[str, Any]) -> list[str]:
    """Return the metrics that are shown: those that the objective asks about first."""
    metric = plan["goal"]["metric"].partition(".")[0]
    money = metric in MONEY or metric.startswith(("run_", "money_"))
    more = [*(MONEY if money else ()), *(WHOLE_RUN if metric.startswith("run_") else ())]
    wanted = [*SHOWN[:2], metric, *more, *SHOWN[2:]]
    return [name for name in dict.fromkeys(wanted) if any(one["metrics"].get(name) is not None for one in plan["best"])]


def _role(one: Mapping[str, Any]) -> str:
    gain = one["gain_fraction"]
    return f"{one['role']} ({format_change(gain)})" if gain else str(one["role"])


def _sentences(plan: Mapping[str, Any]) -> list[str]:
    """Say how many strategies cannot be told from the first, what they share, and what prices are behind money."""
    first, found = plan["alternatives"][0], []
    if first["like"] > 1:
        same = [f"{name} {value}" for name, value in first["traits"].items() if not _varies(value)]
        others = [f"{name} {value}" for name, value in first["traits"].items() if _varies(value)]
        odds = first["probability_best"]
        share = f"; the best is among them with {format_percent(odds, 0)}" if odds is not None and odds < 0.995 else ""
        found.append(
            f"{first['like']} simulated strategies lie within {format_percent(plan['twin_fraction'])} of the best, "
            f"which predictions cannot tell apart: all with {', '.join(same)}; they vary in "
            f"{', '.join(others) or 'nothing'}{share} (--full lists them)."
        )
    if any(name in MONEY or name in WHOLE_RUN for name in _columns(plan)):
        found.append(f"Prices: {plan['prices']}.")
    return found


def _varies(value: str) -> bool:
    return " to " in value or " or " in value


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


def _row(rank: str, one: Mapping[str, Any], shown: Sequence[str]) -> list[str]:
    return [rank, one["strategy"], *metric_cells(one["metrics"], shown)]
