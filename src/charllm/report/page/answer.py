"""The answer above the figures: a few sentences, and at most six facts with their intervals."""

from collections.abc import Callable, Collection, Sequence
from textwrap import shorten

from charllm.report.figure import Fact
from charllm.report.page.view import RunView
from charllm.result.answers import (
    ONLY_MEMORY,
    UNKNOWN_SPEC,
    answer_clock,
    answer_gaps,
    answer_gpu_power,
    answer_memory,
    answer_pace,
    answer_throttling,
    describe_degrees,
    describe_spec,
    explanations,
    verdict,
    write_metric,
)
from charllm.result.description import describe_machine
from charllm.result.metrics import LABEL_WORDS, METRICS
from charllm.units import format_percent, format_seconds

BUSY = ("compute", "recompute", "optimizer")
"""Labels under which a GPU works."""
LARGE_FRACTION = 0.01
"""Share of the step from which a wait is worth a sentence."""
MOST_OF_THE_TIME = 0.5
LONGEST_TITLE = 100
LIMITED = {"power": "Power-limited", "thermal": "Limited by temperature", "brake": "Limited by a power brake"}


def title_of(run: RunView) -> str:
    """Name what was run, in a few words."""
    spec = run.result.spec
    try:
        job = f"{spec['model']['name']} on {spec['cluster']['name']}"
    except (KeyError, TypeError):
        kind, told = f"{run.result.origin.capitalize()} run", describe_spec(spec)
        return kind if told == UNKNOWN_SPEC else shorten(f"{kind}: {told}", LONGEST_TITLE, placeholder=" ...")
    return f"One rank of {job}" if run.result.origin == "emulated" else job


def _job(run: RunView) -> str:
    """Name model, GPUs and degrees of a run; the rank of an emulated one."""
    spec = run.result.spec
    try:
        cluster = spec["cluster"]
        job = f"{spec['model']['name']} on {describe_machine(cluster)}, {describe_degrees(spec)}"
    except (KeyError, TypeError):
        return f"{run.result.origin.capitalize()} run"
    rank = run.result.provenance.get("measurement", {}).get("rank")
    return f"Rank {rank} of {job}, emulated on one GPU" if run.result.origin == "emulated" else job


def answer_sentences(run: RunView) -> list[str]:
    """Say what was asked, what limits it, who is hot, what it waits for and what helps; then explain surprises."""
    if not run.has_times and run.result.metrics.get("fits") is False:
        return [f"{_job(run)}: {answer_memory(run.result)}.", *run.misfit, f"{ONLY_MEMORY.capitalize()}."]
    ignored = [f"It does not fit in memory, which was ignored. {told}" for told in run.misfit]
    sentences = (_time(run), *ignored, _power(run), _heat(run), _waits(run), _changes(run), _gaps(run))
    return [
        sentence
        for sentence in (*sentences, *(f"Explanation: {note}" for note in explanations(run.result)))
        if sentence
    ]


def _gaps(run: RunView) -> str:
    told = answer_gaps(run.result)
    return f"Not all of the time was read: {told}." if told else ""


def _time(run: RunView) -> str:
    result = run.result
    step = write_metric(result, "step_time_s")
    rates = [write_metric(result, name) for name in ("tokens_per_s_per_gpu", "mfu")]
    known = [text for text in (f"{step} a step{_range(run, 'step_time_s')}" if step else "", *rates) if text]
    return f"{_job(run)}: {', '.join(known) or 'step time not known, no steps were marked'}."


def _range(run: RunView, metric: str) -> str:
    ends = run.interval(metric)
    if ends is None:
        return ""
    return f" ({_join_ends(format_seconds(ends[0]), format_seconds(ends[1]))})"


def _join_ends(low: str, high: str) -> str:
    """Write an interval; the unit once where both ends have the same."""
    number, _, unit = low.partition(" ")
    return f"{number} to {high}" if high.endswith(f" {unit}") else f"{low} to {high}"


def _power(run: RunView) -> str:
    """Say what limits the clock, and the power."""
    power, clock = answer_gpu_power(run.result), answer_clock(run.result)
    shares = run.result.metrics.get("throttled_time_fraction") or {}
    held = [cause for cause, share in shares.items() if share is not None and share > MOST_OF_THE_TIME]
    head = LIMITED.get(held[0], "Power") if held else "Power"
    known = [text for text in (power, f"clock {clock}" if clock else "") if text]
    return f"{head}: {'; '.join(known)}." if known else ""


def _heat(run: RunView) -> str:
    rows = [row for row in run.result.gpus if row.get("temperature_peak_c") is not None]
    if not rows:
        return ""
    hottest = max(rows, key=lambda row: row["temperature_peak_c"])
    margin = write_metric(run.result, "margin_to_slowdown_k")
    return (
        f"Hottest GPU {hottest['temperature_peak_c']:.1f} C{f', {margin}' if margin else ''}: {run.gpu_name(hottest)}."
    )


def _waits(run: RunView) -> str:
    """Name the largest loss beside compute, and the bottleneck."""
    breakdown_s = run.result.metrics.get("breakdown_s")
    if not breakdown_s:
        return ""
    step_s = sum(breakdown_s.values())
    waits = {label: spent_s for label, spent_s in breakdown_s.items() if label not in BUSY}
    largest = max(waits, key=waits.__getitem__)
    share = waits[largest] / step_s
    text = (
        f"Largest loss beside compute: {LABEL_WORDS[largest]} ({format_percent(share)} of the step)."
        if share > LARGE_FRACTION
        else f"GPUs are busy {format_percent(1 - sum(waits.values()) / step_s)} of the time."
    )
    pace = answer_pace(run.result) if len(run.result.gpus) > 1 else ""
    return f"{text} Bottleneck: {pace}." if pace else text


def _changes(run: RunView) -> str:
    """Name the best single change; nothing where none was tried."""
    if "change" not in (run.table("best_changes") or {}):
        return ""
    best = next(iter(run.rows("best_changes")), None)
    if best is None:
        return "No single change that was tried is faster and fits in memory."
    return f"Best single change: {best['change']} (+{format_percent(best['gain_fraction'])} tokens/s)."


def answer_facts(run: RunView, figures: Collection[str]) -> list[Fact]:
    """Return the facts that are known, each with its interval and the one of these figures that explains it."""
    found = [make(run, figures) for make in FACTS]
    return [fact for fact in found if fact is not None]


def _fact(
    metric: str, links: Sequence[str], note: Callable[[RunView], str]
) -> Callable[[RunView, Collection[str]], Fact | None]:
    """Return how to make the fact of one metric, which the first of `links` that is on the page explains."""
    shown = METRICS[metric]

    def make(run: RunView, figures: Collection[str]) -> Fact | None:
        value = run.result.metrics.get(metric)
        if value is None:
            return None
        ends = run.interval(metric)
        interval = _join_ends(shown.write(ends[0]), shown.write(ends[1])) if ends else ""
        link = next((name for name in links if name in figures), "")
        return Fact(shown.title, shown.write(value), interval, link, note(run))

    return make


def _note(metric: str) -> Callable[[RunView], str]:
    return lambda run: write_metric(run.result, metric)


FACTS: Sequence[Callable[[RunView, Collection[str]], Fact | None]] = (
    _fact("step_time_s", ("seconds", "steps", "when"), _note("tokens_per_s")),
    _fact("tokens_per_s_per_gpu", ("seconds", "energy"), _note("mfu")),
    _fact("power_mean_w", ("power", "when"), _note("power_peak_sensor_w")),
    _fact("temperature_peak_c", ("heat",), _note("margin_to_slowdown_k")),
    _fact("clock_mean_hz", ("clock", "throttled", "when"), lambda run: answer_throttling(run.result)),
    _fact("memory_peak_bytes", ("memory",), lambda run: verdict(run.result)),
)
"""At most six."""
