"""How was it found? How many strategies there are, and how each was decided."""

from charllm.report.figure import Column, Figure
from charllm.report.page.planned import PlanView
from charllm.report.page.quantity import write_percent

DECIDED = {
    "pruned_memory": ("do not fit", "strategies that need more memory than a GPU has, or than a limit allows"),
    "pruned_bound": (
        "cannot be among the best",
        "strategies whose bound shows that at least as many others are better",
    ),
    "priced": ("priced", "strategies whose step time was computed at one solved clock, without heat"),
    "simulated": ("simulated", "priced strategies that the coupled simulator decided among: clocks, power and heat"),
}
"""Count of a plan: its name on the page, and what it counts."""


def counts_figure(plan: PlanView) -> Figure:
    """Return how many strategies were visited, and how each was decided."""
    question, counts = "How many strategies were decided, and how?", plan.table["counts"]
    if not counts.get("visited"):
        return Figure("counts", "table", question, "", missing="The plan did not count its strategies.")
    visited, known = counts["visited"], [name for name in DECIDED if counts.get(name) is not None]
    columns = {
        "how": Column("strategies", ["valid", *(DECIDED[name][0] for name in known)]),
        "count": Column("count", [visited, *(counts[name] for name in known)]),
        "share": Column("share of all", ["100 %", *(_share(counts[name], visited) for name in known)]),
        "meaning": Column("meaning", [_valid(counts.get("pruned_invalid")), *(DECIDED[name][1] for name in known)]),
    }
    return Figure("counts", "table", question, tell_counts(plan), columns)


def _valid(invalid: int | None) -> str:
    more = f"; {invalid:,} further combinations of degrees are no run" if invalid else ""
    return f"strategies of the space{more}"


def _share(count: int, whole: int) -> str:
    return "0 %" if not count else write_percent(count / whole) if count / whole >= 5e-4 else "< 0.1 %"


def tell_counts(plan: PlanView) -> str:
    """Say how many strategies were decided in how many seconds."""
    counts, seconds = plan.table["counts"], plan.table.get("elapsed_s")
    took = f" in {seconds:.3g} s" if seconds else ""
    return (
        f"All {counts['visited']:,} valid strategies were decided{took}: {counts['priced']:,} were priced and "
        f"{counts['simulated']:,} simulated in full; the rest does not fit or cannot be among the best."
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
