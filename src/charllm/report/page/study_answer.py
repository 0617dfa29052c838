"""The answer of a study in words: who wins and why, what does not fit, how far power and heat differ."""

from collections.abc import Sequence

from charllm.report.claims import HEAT_LOSS_FRACTION
from charllm.report.figure import Fact
from charllm.report.page.case_links import axis_uses
from charllm.report.page.case_seconds import largest_part, parts_s
from charllm.report.page.cases import StudiedCase, groups, rank_metric, ranked, title
from charllm.report.page.claims import claims
from charllm.report.page.predictions import told_errors
from charllm.report.page.quantity import write_list, write_number, write_percent, write_ratio, write_slower, write_value
from charllm.report.page.strategies import shorten
from charllm.result.differences import UNMEASURABLE, difference
from charllm.result.metrics import LABEL_WORDS, LABELS, quantity
from charllm.units import PERCENT, format_percent, format_si

MOST_GROUPS = 6
"""Models that the answer speaks of; the figures have all."""
MOST_FACTS = 6
CLOSE_FRACTION = 0.02
"""Steps of tokens nearer than this are taken as the same."""
LEVEL_RATIO = 1.0005
"""Cases nearer than this are called equally fast."""
LONGEST_REASON = 200
LARGE_FRACTION = 0.25
"""Share of the fastest step that is worth a word where it is lost."""
LOST = tuple(label for label in LABELS if label not in ("compute", "recompute"))


def answer(cases: Sequence[StudiedCase]) -> list[str]:
    """Return the sentences above the first figure: what is fastest, what is most efficient, how hot it becomes."""
    return [sentence for sentence in (_lead(groups(cases), cases), _efficiency(cases), _heat(cases)) if sentence]


def further(everything: Sequence[StudiedCase], about: str, is_paper: bool) -> list[str]:
    """Return the sentences below it: each model's cases, what has no result, clocks, errors, claims, the study."""
    cases = [case for case in everything if not case.is_prediction]
    by_group = groups(cases)
    sentences = [_winner(group, listed) for group, listed in list(by_group.items())[:MOST_GROUPS]]
    if len(by_group) > MOST_GROUPS:
        sentences.append(f"The other {len(by_group) - MOST_GROUPS} models are in the figures below.")
    sentences += [_rejected(cases), _throttling(cases), told_errors(everything)]
    if is_paper:
        sentences.append(_claims(cases))
    sentences.append(" ".join([f"The study: {about}" if about else "", _counts(cases)]).strip())
    return [sentence for sentence in sentences if sentence]


def _lead(by_group: dict[str, list[StudiedCase]], cases: Sequence[StudiedCase]) -> str:
    """Name the fastest case of each model."""
    best = [(group, order[0].label) for group, listed in by_group.items() if (order := ranked(listed))]
    if not best:
        return f"None of {len(cases):,} cases has a result."
    if len(cases) == 1:
        return f"One case: {best[0][1]}."
    if len(best) == 1:
        where = f" for {best[0][0]}" if len(by_group) > 1 else ""
        return f"Of {len(cases):,} cases, {best[0][1]} is fastest{where}."
    told = write_list([f"{label} for {group}" for group, label in best], MOST_GROUPS)
    return f"Of {len(cases):,} cases, fastest are {told}."


def facts(cases: Sequence[StudiedCase]) -> list[Fact]:
    """Return the best case of each model, the hottest one, the one that loses most clock, and how many are rejected."""
    metric = rank_metric(cases)
    by_group = groups(cases)
    last = [*_extreme("Hottest GPU", cases, "temperature_peak_c", "power")]
    last += _extreme("Largest clock loss", cases, "clock_loss", "clock")
    rejected = [case for case in cases if not case.ran]
    if rejected:
        last.append(Fact("Cases without a result", f"{len(rejected):,} of {len(cases):,}", link="rejected"))
    found = []
    for group, listed in by_group.items():
        order = ranked(listed)
        if order:
            best = order[0]
            label = f"Fastest for {group}" if len(by_group) > 1 else "Fastest case"
            note = write_value(metric, best.values[metric])
            found.append(Fact(label, best.label, interval=_interval(best, metric), link="strategies", note=note))
    return [*found[: MOST_FACTS - min(len(last), 2)], *last][:MOST_FACTS]


def _interval(case: StudiedCase, metric: str) -> str:
    low, high = case.values.get(f"{metric}.interval") or (None, None)
    if low is None or high is None:
        return ""
    shown = quantity(metric)
    return f"{write_number(low / shown.scale)} to {write_value(metric, high)}"


def _extreme(label: str, cases: Sequence[StudiedCase], metric: str, link: str) -> list[Fact]:
    known = [case for case in cases if case.values.get(metric) is not None]
    if not known:
        return []
    most = max(known, key=lambda case: case.values[metric])
    value = write_value(metric, most.values[metric])
    return [Fact(label, value, interval=_interval(most, metric), link=link, note=title(most))]


def _counts(cases: Sequence[StudiedCase]) -> str:
    """Say how many cases there are, and how many of them have no result."""
    origins = {origin: sum(case.origin == origin and case.ran for case in cases) for origin in _origins(cases)}
    told = [f"{count:,} {origin}" for origin, count in origins.items() if count]
    for verdict in ("does not fit", "invalid", "failed"):
        count = sum(case.verdict == verdict for case in cases)
        if count:
            told.append(f"{count:,} {'do not fit' if verdict == 'does not fit' and count > 1 else verdict}")
    plural = "case" if len(cases) == 1 else "cases"
    return f"{len(cases):,} {plural}: {', '.join(told)}." if told else f"{len(cases):,} {plural}, none with a result."


def _origins(cases: Sequence[StudiedCase]) -> list[str]:
    return list(dict.fromkeys(case.origin for case in cases))


def _winner(group: str, cases: Sequence[StudiedCase]) -> str:
    """Say which case of a model is fastest, by how much, and what the slower ones spend their time on."""
    order = ranked(cases)
    metric = rank_metric(cases)
    if not order:
        return f"{group}: {'its only case has no' if len(cases) == 1 else f'none of {len(cases)} cases has a'} result."
    best = order[0]
    seconds = best.values.get("step_time_s")
    rate = write_value(metric, best.values[metric])
    step = f", {write_number(seconds)} s a step" if seconds and metric != "step_time_s" else ""
    head = f"{group}: {best.label} is fastest with {rate}{step}{_limit(best)}"
    if len(order) == 1:
        return f"{head}; no other case has a result." if len(cases) > 1 else f"{head}."
    told = _behind(order[1], best, metric)
    if len(order) > 2:
        told += f". Slowest is {_behind(order[-1], best, metric)}"
    return f"{head}. Next is {told}."


def _behind(case: StudiedCase, best: StudiedCase, metric: str) -> str:
    """Say how far a case is behind the best one, and what for."""
    values = best.values[metric], case.values[metric]
    ratio = max(values) / min(values) if min(values) > 0 else float("inf")
    if ratio < LEVEL_RATIO:
        return f"{case.label}, equally fast"
    reason = why_slower(case, best)
    unsure = f" ({UNMEASURABLE})" if is_unmeasurable(case, best, metric) else ""
    return f"{case.label}, {write_slower(ratio)}{unsure}{f': {reason}' if reason else ''}"


def is_unmeasurable(case: StudiedCase, other: StudiedCase, metric: str, least: float = 0.0) -> bool:
    """Tell whether a metric of predicted cases differs by no more than its error; of others, by less than `least`."""
    value, before = case.values[metric], other.values[metric]
    if case.origin == other.origin == "simulated":
        names = {**other.settings, **case.settings}
        changed = {name: (other.settings.get(name), case.settings.get(name)) for name in names}
        apart = {name: values for name, values in changed.items() if values[0] != values[1]}
        found = difference(metric, before, value, apart)
        if found is not None:
            return not found.is_clear
    return bool(abs(value - before) < least)


def _limit(case: StudiedCase) -> str:
    """Say what even the best case loses most of its time to, where that is much."""
    lost = largest_part(case, LOST)
    if lost is None or lost[1] < LARGE_FRACTION:
        return ""
    return f", although {LABEL_WORDS[lost[0]]} takes {write_percent(lost[1])} of its step"


def why_slower(case: StudiedCase, best: StudiedCase) -> str:
    """Say what a case spends more time on than the best one for the same tokens on as many GPUs."""
    parts, others = parts_s(case), parts_s(best)
    tokens = case.tokens_per_step, best.tokens_per_step
    gpus = case.gpus, best.gpus
    if not parts or not others or None in tokens or None in gpus:
        return ""
    factor = (tokens[1] or 1.0) / (tokens[0] or 1.0) * (gpus[0] or 1.0) / (gpus[1] or 1.0)
    more = {label: parts.get(label, 0.0) * factor - others.get(label, 0.0) for label in LABELS}
    label = max(more, key=lambda label: more[label])
    if more[label] <= 0:
        return ""
    for_same = "" if abs(factor - 1) < CLOSE_FRACTION else " for the same tokens"
    spent_s, others_s = parts.get(label, 0.0) * factor, others.get(label, 0.0)
    told = f"{LABEL_WORDS[label]} takes {write_number(spent_s)} s instead of {write_number(others_s)} s{for_same}"
    share = parts.get(label, 0.0) / case.values["step_time_s"]
    return f"{told}, {write_percent(share)} of its step{_sent(case, label)}" if share > LARGE_FRACTION else told


def _sent(case: StudiedCase, label: str) -> str:
    """Say what is sent in the time of an axis, and how fast, where both are known."""
    use = next((use for use in axis_uses([case]) if f"{use.axis}_exposed" == label), None)
    if use is None:
        return ""
    sent_bytes = case.values[f"axis_bytes.{use.axis}"]
    return f" ({format_si(sent_bytes, 'B')} in all, {format_si(use.bytes_per_s, 'B/s')} a GPU)"


def _rejected(cases: Sequence[StudiedCase]) -> str:
    """Say what does not fit and why, and what is wrong with the other rejected cases."""
    told = []
    for verdict, words in (
        ("does not fit", "not fit in memory"),
        ("invalid", "not form a valid run"),
        ("failed", "not finish"),
    ):
        listed = [case for case in cases if case.verdict == verdict]
        if listed:
            names = write_list([title(case) for case in listed], 4)
            do = "does" if len(listed) == 1 else "do"
            reason = shorten(listed[0].message.removeprefix("memory: "), LONGEST_REASON).rstrip(".")
            first = f"; the first: {reason}" if len(listed) > 1 else f": {reason}"
            told.append(f"{names} {do} {words}{first if reason else ''}.")
    return " ".join(told)


def _efficiency(cases: Sequence[StudiedCase]) -> str:
    """Say whether the fastest case of each model is also the one with most tokens per joule."""
    exceptions, same = [], 0
    for group, listed in groups(cases).items():
        known = [case for case in ranked(listed) if case.values.get("tokens_per_j") is not None]
        if len(known) < 2:
            continue
        best = max(known, key=lambda case: case.values["tokens_per_j"])
        if best is known[0]:
            same += 1
            continue
        gain = best.values["tokens_per_j"] / known[0].values["tokens_per_j"]
        exceptions.append(f"{group}, where {best.label} gives {write_ratio(gain)} more tokens per joule")
    if not exceptions:
        return "The fastest case of each model also gives most tokens per joule." if same else ""
    if not same:
        return f"The fastest is not the most efficient for {write_list(exceptions, 4)}."
    return f"The fastest case also gives most tokens per joule, except for {write_list(exceptions, 4)}."


def _heat(cases: Sequence[StudiedCase]) -> str:
    """Say how far power and temperature differ between cases."""
    known = [case for case in cases if case.values.get("power_mean_w") is not None]
    if not known:
        return ""
    low, high = (choose(known, key=lambda case: case.values["power_mean_w"]) for choose in (min, max))
    text = (
        f"Mean power per GPU ranges from {low.values['power_mean_w']:.0f} W ({title(low)}) to "
        f"{high.values['power_mean_w']:.0f} W ({title(high)})"
        if low is not high
        else f"Mean power per GPU is {low.values['power_mean_w']:.0f} W"
    )
    hot = [case for case in known if case.values.get("temperature_peak_c") is not None]
    if hot:
        most = max(hot, key=lambda case: case.values["temperature_peak_c"])
        margin = most.values.get("margin_to_slowdown_k")
        limit = "" if margin is None else f", {abs(margin):.1f} K {'below' if margin >= 0 else 'above'} slowdown"
        text += f"; the hottest GPU reaches {most.values['temperature_peak_c']:.1f} C ({title(most)}){limit}"
    return f"{text}."


def _throttling(cases: Sequence[StudiedCase]) -> str:
    """Say how much clock is lost, and to which cause."""
    known = [case for case in cases if case.values.get("clock_loss") is not None]
    if not known:
        return ""
    most = max(known, key=lambda case: case.values["clock_loss"])
    if most.values["clock_loss"] < PERCENT / 10:
        return "No case is throttled."
    least = min(known, key=lambda case: case.values["clock_loss"])
    mark = HEAT_LOSS_FRACTION / PERCENT
    hot = [case for case in known if (case.values.get("clock_loss_fraction.thermal") or 0.0) > mark * PERCENT]
    heat = f"{len(hot) or 'none'} of {len(known)} cases lose more than {mark:g} % to heat"
    least_text = format_percent(least.values["clock_loss"]).removesuffix(" %")
    return (
        f"Throttling costs between {least_text} and {format_percent(most.values['clock_loss'])} of the clock "
        f"(most: {title(most)}), {heat}."
    )


def _claims(cases: Sequence[StudiedCase]) -> str:
    found = claims(cases)
    if not found:
        return ""
    told = write_list([f"{each.name} ({each.verdict})" for each in found], 8)
    return f"Claims of the paper that this study can show: {told}."
