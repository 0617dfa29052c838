"""What the page of a run shows beyond its result: changes, a warm-up, other preheating, published runs, constants."""

from collections.abc import Sequence

from charllm.analysis.advice import Effect, list_changes, simulate_changes, vary_preheating
from charllm.evaluate.constants import list_constants
from charllm.evaluate.predictions import load_predictions
from charllm.report.page.computed import Computed
from charllm.simulate.cold import tabulate_warm_up
from charllm.simulate.predict import Simulation
from charllm.simulate.work import estimate_rounds_s
from charllm.tracking import Track, untracked

WARM_UP_S = 300.0
"""Length of a warm-up: ten times what a heat sink takes."""
LONGEST_WARM_UP_S, MOST_MOMENTS = 5.0, 60
"""A warm-up that is estimated to take longer is left out; it is simulated at so many moments, as a rule."""
NOT_FITTING = "a run that does not fit in memory has no step time (see --ignore-memory)"


def compute_page(found: Simulation, changes: Sequence[Effect]) -> Computed:
    """Return everything for the page of a simulation, with the changes that were simulated already."""
    fitting = found.timed is not None
    warm_up, why_not = _warm_up(found)
    no_change = "every change is invalid or takes too long to simulate" if fitting else NOT_FITTING
    return Computed(
        changes,
        warm_up,
        vary_preheating(found.step.run) if fitting else (),
        load_predictions(),
        list_constants(),
        {"warm_up": why_not, "changes": no_change},
    )


def compute_without_simulation(reason: str) -> Computed:
    """Return what a page shows of a run that is not simulated again, and why the rest is missing."""
    return Computed(
        published=load_predictions(),
        constants=list_constants(),
        reasons=dict.fromkeys(("changes", "warm_up", "preheating"), reason),
    )


def compute_changes(found: Simulation, track: Track = untracked) -> list[Effect]:
    """Simulate every single change of a run; nothing where it has no step time."""
    if found.timed is None:
        return []
    run, tried = found.step.run, list_changes(found.step.run)
    return list(simulate_changes(run, found.result.metrics, track(iter(tried), len(tried), "changes")))


def _warm_up(found: Simulation) -> tuple[dict[str, list[float | None]] | None, str]:
    """Return the warm-up of a run, or None and why not."""
    simulated = found.simulated
    if simulated is None:
        return None, NOT_FITTING
    conditions = found.step.run.conditions
    if conditions.steps is not None or conditions.seconds_s is not None:
        return None, "the run itself begins with a cold start; its metrics are means over it"
    estimate_s = estimate_rounds_s(simulated.machine, MOST_MOMENTS)
    if estimate_s > LONGEST_WARM_UP_S:
        return None, f"it would take about {estimate_s:.0f} s to simulate (charllm simulate --seconds 300)"
    return tabulate_warm_up(simulated.machine, WARM_UP_S), ""
