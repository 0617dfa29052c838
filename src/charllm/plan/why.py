"""Why one strategy is better than another, in sentences with numbers from both runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from charllm.plan.candidate import Candidate
from charllm.plan.objectives import OBJECTIVES, Objective
from charllm.plan.strategy import name_strategy
from charllm.result.metric import metric_value
from charllm.timeline.labels import LABEL_WORDS
from charllm.units import GIB, MEGA, format_figure, format_percent, format_probability, format_seconds, format_si

LEAST_SHARE = 0.005
"""Parts of a step that differ by less than this share of it are left out."""
LEAST_CHANGE = 0.01
"""Clocks, powers and bytes that differ by less are left out."""
MOST_PARTS = 3
NEXT, OWN = "the next row", "your own strategy"


def explain_winner(
    winner: Candidate,
    others: Sequence[Candidate],
    objective: Objective = OBJECTIVES["throughput"],
    own: Candidate | None = None,
) -> list[str]:
    """Say why a strategy is the best: against the first of the others, and against the user's own."""
    rivals = [(NEXT, others[0])] if others else []
    rivals += [(OWN, own)] if own is not None and own.run != winner.run else []
    sentences = [sentence for word, rival in rivals for sentence in explain_better(winner, rival, objective, word)]
    return (
        [*sentences, _memory(winner)]
        if rivals
        else [f"No strategy was found that really differs from {name_strategy(winner.run)}.", _memory(winner)]
    )


def explain_better(winner: Candidate, rival: Candidate, objective: Objective, rival_word: str) -> list[str]:
    """Say by how much a strategy is better than a rival, where the seconds differ, and what lies behind it."""
    ours, theirs = winner.metrics, rival.metrics
    sentences = [_lead(winner, rival, objective, rival_word), _seconds(ours, theirs), _clock(ours, theirs),
                 _power(ours, theirs), _links(ours, theirs), _room(winner, rival, rival_word)]  # fmt: skip
    return [sentence for sentence in sentences if sentence]


def _lead(winner: Candidate, rival: Candidate, objective: Objective, rival_word: str) -> str:
    gain = objective.gain_fraction(winner.metrics, rival.metrics)
    values = [metric_value(one.metrics, objective.metric) for one in (winner, rival)]
    if gain is None or None in values:
        return f"{rival_word} ({name_strategy(rival.run)}) has no {objective.metric}."
    ours, theirs = (_value(objective.metric, value) for value in values)
    better = (
        f"{format_percent(abs(gain))} {'better' if gain >= 0 else 'worse'}"
        if gain < 1
        else f"{gain + 1:.2f} times better"
    )
    return (
        f"{name_strategy(winner.run)} is {better} in {objective.metric} than {rival_word}, "
        f"{name_strategy(rival.run)}: {ours} against {theirs}."
    )


def _seconds(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """Say which labels of the breakdown are shorter and which are longer; together they are the whole difference."""
    mine, other = ours.get("breakdown_s"), theirs.get("breakdown_s")
    if not mine or not other:
        return ""
    more_s = {label: mine[label] - other[label] for label in mine}
    least_s = LEAST_SHARE * other_s if (other_s := theirs["step_time_s"]) else 0.0
    ranked = sorted((pair for pair in more_s.items() if abs(pair[1]) > least_s), key=lambda pair: -abs(pair[1]))
    saved = [_part(label, -each_s, "less") for label, each_s in ranked if each_s < 0][:MOST_PARTS]
    lost = [_part(label, each_s, "more") for label, each_s in ranked if each_s > 0][:MOST_PARTS]
    times = f"Its step takes {format_seconds(ours['step_time_s'])} against {format_seconds(other_s)}"
    parts = ", but ".join(", ".join(side) for side in (saved, lost) if side)
    return f"{times}: {parts}." if parts else f"{times}, with the same parts."


def _part(label: str, seconds: float, word: str) -> str:
    return f"{format_seconds(seconds)} {word} {LABEL_WORDS[label]}"


def _clock(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    if not _differ(ours, theirs, "clock_mean_hz"):
        return ""
    held = [format_percent(share) for one in (ours, theirs)
            if (share := metric_value(one, "throttled_time_fraction.power")) is not None]  # fmt: skip
    throttled = f" (power-throttled {' against '.join(held)} of the time)" if len(held) == len((ours, theirs)) else ""
    clocks = " against ".join(f"{one['clock_mean_hz'] / MEGA:,.0f} MHz" for one in (ours, theirs))
    return f"Its GPUs run at {clocks} on average{throttled}."


def _power(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    if not _differ(ours, theirs, "tokens_per_j"):
        return ""
    watts = " against ".join(f"{one['power_mean_w']:.0f} W" for one in (ours, theirs))
    tokens = " against ".join(f"{one['tokens_per_j']:.3g}" for one in (ours, theirs))
    return f"A GPU draws {watts}, which gives {tokens} tokens per joule."


def _links(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """Say which kind of link carries a different load, the most used one of the two runs first."""
    names = [name for name in ("nic", "nvlink", "pcie") if _differ(ours, theirs, f"link_bytes.{name}")]
    if not names:
        return ""
    use = {name: [metric_value(one, f"link_utilization_fraction.{name}") for one in (ours, theirs)] for name in names}
    name = max(names, key=lambda each: max(share or 0.0 for share in use[each]))
    sent, busy = " against ".join(format_si(one["link_bytes"][name], "B") for one in (ours, theirs)), use[name]
    shares = " against ".join(format_percent(each) for each in busy if each is not None)
    used = f" ({shares} of what {LINK_WORDS[name]} can carry)" if None not in busy else ""
    return f"It sends {sent} a step over {LINK_WORDS[name]}{used}."


LINK_WORDS = {"nic": "NICs", "nvlink": "scale-up links", "pcie": "PCIe"}


def _room(winner: Candidate, rival: Candidate, rival_word: str) -> str:
    """Say where the rival does not fit, or has clearly less room."""
    if rival.metrics.get("fits") is False and winner.metrics.get("fits"):
        return f"It fits in memory, which {rival_word} does not."
    return ""


def _memory(winner: Candidate) -> str:
    metrics = winner.metrics
    need_gib, margin = metrics["memory_need_bytes"] / GIB, metrics["memory_margin_fraction"]
    return (
        f"It needs {need_gib:.1f} of {need_gib / (1 - margin):.1f} GiB on rank {metrics['memory_rank']} "
        f"({format_percent(margin)} free); probability of fitting: "
        f"{format_probability(metrics['memory_fit_probability'])}."
    )


def _differ(ours: Mapping[str, Any], theirs: Mapping[str, Any], name: str) -> bool:
    mine, other = metric_value(ours, name), metric_value(theirs, name)
    if mine is None or other is None:
        return False
    return abs(mine - other) > LEAST_CHANGE * max(abs(mine), abs(other))


def _value(metric: str, value: float | None) -> str:
    return format_figure(metric.partition(".")[0], value)
