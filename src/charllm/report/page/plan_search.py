"""How was it found? How many strategies there are, and how many of them were evaluated and simulated."""

from charllm.report.figure import Column, Figure
from charllm.report.page.planned import PlanView
from charllm.report.page.quantity import write_percent

COUNTED = {
    "pruned_memory": ("may not fit", "strategies that may need more memory than a GPU has, or than a limit allows"),
    "pruned_bound": ("ruled out", "strategies whose bound shows that at least as many others are better"),
    "priced": ("evaluated", "strategies whose step time was computed at one solved clock, without heat"),
    "simulated": ("simulated", "evaluated strategies that were simulated in full: clocks, power and heat"),
}
"""Count of a plan: its name on the page, and what it counts."""


def counts_figure(plan: PlanView) -> Figure:
    """Return how many strategies were considered, evaluated and simulated."""
    question, counts = "How many strategies were considered?", plan.table["counts"]
    if not counts.get("visited"):
        return Figure("counts", "table", question, "", missing="The plan did not count its strategies.")
    visited, known = counts["visited"], [name for name in COUNTED if counts.get(name) is not None]
    columns = {
        "how": Column("strategies", ["valid", *(COUNTED[name][0] for name in known)]),
        "count": Column("count", [visited, *(counts[name] for name in known)]),
        "share": Column("share of all", ["100 %", *(_share(counts[name], visited) for name in known)]),
        "meaning": Column("meaning", [_valid(counts.get("pruned_invalid")), *(COUNTED[name][1] for name in known)]),
    }
    return Figure("counts", "table", question, tell_counts(plan), columns)


def _valid(invalid: int | None) -> str:
    more = f"; {invalid:,} further combinations of degrees are no run" if invalid else ""
    return f"strategies of the space{more}"


def _share(count: int, whole: int) -> str:
    return "0 %" if not count else write_percent(count / whole) if count / whole >= 5e-4 else "< 0.1 %"


def tell_counts(plan: PlanView) -> str:
    """Say how many strategies were considered in how many seconds."""
    counts, seconds = plan.table["counts"], plan.table.get("elapsed_s")
    took = f" in {seconds:.3g} s" if seconds else ""
    return (
        f"All {counts['visited']:,} valid strategies were considered{took}: {counts['priced']:,} were evaluated "
        f"and {counts['simulated']:,} simulated in full; the others may not fit or cannot be among the best."
    )


def rejected_figure(plan: PlanView) -> Figure | None:
    """Return how many simulated strategies break each limit; None where there are no limits."""
    rejected = plan.table.get("rejected") or {}
    if not rejected:
        return None
    columns = {
        "limit": Column("limit", list(rejected)),
        "count": Column("simulated strategies that break it", list(rejected.values())),
    }
    worst = max(rejected, key=lambda limit: rejected[limit])
    message = (
        f"{worst} leaves out most: {rejected[worst]} of {plan.table['counts']['simulated']} simulated strategies."
        if rejected[worst]
        else "Every simulated strategy keeps every limit."
    )
    return Figure("rejected", "table", "What do the limits leave out?", message, columns)
