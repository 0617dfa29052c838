"""Power, temperature, lost clock and energy of every case."""

from collections.abc import Sequence

from charllm.report.figure import Column, Figure
from charllm.report.page.bars import bar_options
from charllm.report.page.cases import StudiedCase, full_label, groups, in_common, select, title
from charllm.report.page.quantity import write_value
from charllm.report.page.strategies import multiples
from charllm.result.metrics import CAUSE_WORDS, CAUSES, quantity, selected
from charllm.units import PERCENT

LOST, HELD = selected("clock_loss_fraction", "throttled_time_fraction")
POWER = selected("power_mean_w", "power_peak_sensor_w", "temperature_peak_c", "temperature_spread_node_k")
ENERGY = selected("joules_per_token", "energy_per_step_j", "node_power_mean_w", "cluster_power_peak_w")


def case_power(cases: Sequence[StudiedCase], conditions: str = "") -> Figure:
    """Return power and temperature of every case."""
    question = "How far do power and temperature differ?"
    cap_w, slowdown_c = in_common(cases, "power_cap_w"), in_common(cases, "slowdown_c")
    told = [
        extremes(cases, "power_mean_w"),
        f"the cap of a GPU is {cap_w:g} W" if cap_w else "",
        extremes(cases, "temperature_peak_c"),
        f"GPUs slow down at {slowdown_c:g} C" if slowdown_c else "",
    ]
    return multiples(cases, POWER, "power", question, _sentence(told), conditions)


def case_energy(cases: Sequence[StudiedCase], conditions: str = "") -> Figure:
    """Return the energy of every case."""
    question = "What does a token cost in energy?"
    told = [
        extremes(cases, "joules_per_token"),
        "GPU boards only: CPUs, NICs and fans are in the power of a node",
    ]
    return multiples(cases, ENERGY, "energy", question, _sentence(told), conditions)


def _throttling_metric(cases: Sequence[StudiedCase]) -> str:
    """Return the clock that is lost to each cause, or the time it is held down where only that was read."""
    return LOST if any(case.values.get(f"{LOST}.{cause}") is not None for case in cases for cause in CAUSES) else HELD


def case_clock(cases: Sequence[StudiedCase], conditions: str = "") -> Figure:
    """Return the clock that each case loses, by cause."""
    question = "Why are GPUs throttled?"
    metric = _throttling_metric(cases)
    known = [case for case in cases if any(case.values.get(f"{metric}.{cause}") is not None for cause in CAUSES)]
    if not known:
        return Figure("clock", "stacked-bars", question, "", missing="No case has data on throttling.")
    shown, left_out = select(known)
    alone = len(groups(shown)) == 1
    rows = [
        (case, cause, case.values.get(f"{metric}.{cause}") or 0.0)
        for group in groups(shown).values()
        for case in group
        for cause in CAUSES
    ]
    columns = {
        "group": Column("model", [case.group for case, _, _ in rows]),
        "bar": Column("case", [full_label(case, alone) for case, _, _ in rows]),
        "part": Column("cause", [cause for _, cause, _ in rows]),
        "value": Column(quantity(metric).label, [loss / PERCENT for _, _, loss in rows], "%"),
    }
    options = bar_options({cause: CAUSE_WORDS[cause] for cause in CAUSES}, "value", "%", "cause", group="group")
    by_cause = {cause: max(case.values.get(f"{metric}.{cause}") or 0.0 for case in known) for cause in CAUSES}
    none = [CAUSE_WORDS[cause] for cause in CAUSES if by_cause[cause] == 0]
    told = [extremes(known, "clock_loss"), f"no case is throttled by {' or '.join(none)}" if none else ""]
    return Figure("clock", "stacked-bars", question, left_out + _sentence(told), columns, options, conditions)


def extremes(cases: Sequence[StudiedCase], metric: str) -> str:
    """Say between which values a metric lies, and of which cases; empty where it is not known."""
    known = [case for case in cases if case.values.get(metric) is not None]
    if not known:
        return ""
    low, high = (choose(known, key=lambda case: case.values[metric]) for choose in (min, max))
    shown = quantity(metric)
    if len(known) == 1 or low.values[metric] == high.values[metric]:
        return f"{shown.label} is {write_value(metric, low.values[metric])}"
    ends = [f"{write_value(metric, case.values[metric])} ({title(case)})" for case in (low, high)]
    return f"{shown.label} lies between {' and '.join(ends)}"


def _sentence(parts: Sequence[str]) -> str:
    told = "; ".join(part for part in parts if part)
    return f"{told[:1].upper()}{told[1:]}." if told else ""
