"""Which of the paper's claims does a study show? Read off its cases, judged by the rules of report/claims.py."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from charllm.report.claims import DEEP_FROM, HOLDS, Claim, judge, overlap_acts, past_a_point, read_claims
from charllm.report.figure import Column, Figure
from charllm.report.page.cases import StudiedCase, title
from charllm.report.page.quantity import write_number
from charllm.units import PERCENT

PAPER = "charllm-ppt"
"""How the names of the paper's studies begin."""
DEGREES = ("parallelism.tp", "parallelism.pp", "parallelism.sp")
OVERLAP, RECOMPUTED, MICROBATCH = "parallelism.overlap", "training.recompute", "training.micro_batch_size"

Pair = tuple[StudiedCase, StudiedCase]
"""A case without something, or with less of it, and the same case with it."""
Effect = Callable[[StudiedCase, StudiedCase], float | None]


class Evidence(NamedTuple):
    """What the cases of a study say of a claim."""

    name: str
    """As in the findings of `charllm reproduce`."""
    claim: str
    verdict: str
    evidence: str


def claims(cases: Sequence[StudiedCase]) -> list[Evidence]:
    """List the claims of the paper that a study has the cases for."""
    ran = [case for case in cases if case.ran]
    read = {read_claims()[name]: effects_of(ran) for name, effects_of in CHECKS.items()}
    return [
        _judge(claim, effects) for claim, effects in read.items() if any(one is not None for one in effects.values())
    ]


def claims_figure(cases: Sequence[StudiedCase], conditions: str = "") -> Figure:
    """Return the paper's claims and what this study shows of each."""
    found = claims(cases)
    question = "Which of the paper's claims does this study show?"
    if not found:
        missing = "This study has no pair of cases that would show one of the paper's claims."
        return Figure("claims", "table", question, "", missing=missing)
    columns = {
        "claim": Column("claim", [each.claim for each in found]),
        "verdict": Column("in this study", [each.verdict for each in found]),
        "evidence": Column("evidence", [each.evidence for each in found]),
    }
    held = sum(each.verdict == HOLDS for each in found)
    message = (
        f"{held} of {len(found)} claims hold in these cases, by the rules of `charllm reproduce charllm-ppt`. Cases "
        "that do not fit in memory are left out. No constant is fitted to a claim."
    )
    return Figure("claims", "table", question, message, columns, {"search": False}, conditions)


def _judge(claim: Claim, effects: Mapping[str, float | None]) -> Evidence:
    found = judge(claim, effects)
    known = [effect for effect in effects.values() if effect is not None]
    ends = dict.fromkeys(write_number(end) for end in (min(known), max(known)))
    told = f"{len(found.supporting)} of {len(known)} configurations show it: {' to '.join(ends)} {claim.unit}"
    unclear = f", {len(found.open)} are within the error" if found.open else ""
    return Evidence(claim.name, claim.text, found.verdict, f"{told}{unclear}; it {claim.rule}")


def _deep_pairs(cases: Sequence[StudiedCase]) -> list[Pair]:
    """Return every deep pipeline beside the widest tensor parallelism, all else equal."""
    found = []
    for listed in _alike(_dense(cases), DEGREES).values():
        deep = [case for case in listed if (case.values.get("pp") or 1) >= DEEP_FROM]
        shallow = [case for case in listed if (case.values.get("pp") or 1) < DEEP_FROM]
        if shallow:
            widest = max(shallow, key=lambda case: case.values.get("tp") or 1)
            found += [(widest, case) for case in deep]
    return found


def _overlap_pairs(cases: Sequence[StudiedCase]) -> list[Pair]:
    """Return runs without and with overlap, where its flags act."""
    return [pair for pair in pairs_apart_in(cases, OVERLAP) if _overlap_acts(pair[1])]


def _overlap_acts(case: StudiedCase) -> bool:
    tp, pp = (case.values.get(name) or 1 for name in ("tp", "pp"))
    dp = round((case.gpus or 0) / (tp * pp)) or 1
    return overlap_acts(tp=tp, dp=dp, is_sparse=_is_sparse(case), is_fsdp=_is_fsdp(case))


def microbatch_groups(cases: Sequence[StudiedCase]) -> list[list[StudiedCase]]:
    """Return the cases of strategies other than FSDP that differ in their microbatch alone, in its order."""
    groups = _alike([case for case in cases if not _is_fsdp(case)], (MICROBATCH,)).values()
    return [sorted(listed, key=lambda case: _order(case.settings.get(MICROBATCH))) for listed in groups]


def _past(effect: Effect) -> Callable[[Sequence[StudiedCase]], dict[str, float | None]]:
    def effects(cases: Sequence[StudiedCase]) -> dict[str, float | None]:
        return {title(listed[0]): _past_a_point(effect, listed) for listed in microbatch_groups(cases)}

    return effects


def _past_a_point(effect: Effect, listed: Sequence[StudiedCase]) -> float | None:
    return past_a_point(lambda size, point: effect(listed[point], listed[size]), len(listed))


def _recompute_pairs(cases: Sequence[StudiedCase]) -> list[Pair]:
    """Return runs without and with recomputation: deep pipelines of GPT3-175B, and Llama3-70B."""
    pairs = pairs_apart_in(_dense(cases), RECOMPUTED)
    return [pair for pair in pairs if _is_deep_gpt(pair[0]) or "llama3-70b" in pair[0].group]


PAIRS: dict[str, Callable[[Sequence[StudiedCase]], list[Pair]]] = {
    "deep-pipelines": _deep_pairs,
    "overlap-temperature": _overlap_pairs,
    "overlap-throttling": _overlap_pairs,
    "recompute": _recompute_pairs,
}
"""Claim about a change: the pairs of cases that it is judged by."""


def _of_pairs(claim: str, effect: Effect) -> Callable[[Sequence[StudiedCase]], dict[str, float | None]]:
    return lambda cases: {title(after): effect(before, after) for before, after in PAIRS[claim](cases)}


def _more_lost(before: StudiedCase, after: StudiedCase) -> float | None:
    losses = _loss(before), _loss(after)
    return None if losses[0] is None or losses[1] is None else losses[1] - losses[0]


def _as_claimed(before: StudiedCase, after: StudiedCase) -> float | None:
    more = _more_lost(before, after)
    return None if more is None else -more if _is_deep_gpt(before) else more


def _hotter(before: StudiedCase, after: StudiedCase) -> float | None:
    degrees_c = [case.values.get("temperature_peak_c") for case in (before, after)]
    return None if None in degrees_c else float(degrees_c[1]) - float(degrees_c[0])  # type: ignore[arg-type]


def _higher_peak(before: StudiedCase, after: StudiedCase) -> float | None:
    watts = [case.values.get("power_peak_sensor_w") for case in (before, after)]
    return None if None in watts or not watts[0] else (watts[1] / watts[0] - 1) / PERCENT


def _burstier(before: StudiedCase, after: StudiedCase) -> float | None:
    names = ("power_peak_sensor_w", "power_mean_w")
    peaks, means = ([case.values.get(name) for case in (before, after)] for name in names)
    if None in (*peaks, *means) or not peaks[0] or not all(means):
        return None
    return float(peaks[1] / peaks[0] * means[0] / means[1] - 1) / PERCENT


def _rear_front(cases: Sequence[StudiedCase]) -> dict[str, float | None]:
    gaps = {title(case): rear_gap(case) for case in _recomputed(cases)}
    return {name: None if gap is None else gap[1] for name, gap in gaps.items()}


def _lost_to_heat(cases: Sequence[StudiedCase]) -> dict[str, float | None]:
    margins_k = {title(case): case.values.get("margin_to_slowdown_k") for case in _recomputed(cases)}
    return {name: None if margin_k is None else -margin_k for name, margin_k in margins_k.items()}


CHECKS: dict[str, Callable[[Sequence[StudiedCase]], Mapping[str, float | None]]] = {
    "rear-front": _rear_front,
    "deep-pipelines": _of_pairs("deep-pipelines", _more_lost),
    "overlap-temperature": _of_pairs("overlap-temperature", _hotter),
    "overlap-throttling": _of_pairs("overlap-throttling", _more_lost),
    "microbatch-bursts": _past(_burstier),
    "microbatch-peaks": _past(_higher_peak),
    "microbatch-throttling": _past(_more_lost),
    "recompute": _of_pairs("recompute", _as_claimed),
    "throttling-by-heat": _lost_to_heat,
}
"""Claim: its effects in the cases of a study."""


def rear_gap(case: StudiedCase) -> tuple[float, float] | None:
    """Return by how many kelvin, and by how many per cent of degrees Celsius, GPUs behind others are hotter."""
    view = case.open_view()
    upstream = view.cluster.node.upstream if view is not None and view.cluster is not None else ()
    if view is None or not upstream:
        return None
    rear: list[float] = []
    front: list[float] = []
    for row in view.result.gpus:
        degrees, slot = row.get("temperature_mean_c"), row.get("slot")
        if degrees is not None and isinstance(slot, int) and slot < len(upstream):
            (rear if upstream[slot] >= 0 else front).append(degrees)
    if not rear or not front:
        return None
    gap = fmean(rear) - fmean(front)
    return gap, gap / fmean(front) / PERCENT


def pairs_apart_in(cases: Sequence[StudiedCase], field: str) -> list[Pair]:
    """Return pairs of cases that differ in one setting only, the first of each as without it or with its least."""
    found = []
    for listed in _alike(cases, (field,)).values():
        order = sorted(listed, key=lambda case: _order(case.settings.get(field)))
        found += [(order[0], case) for case in order[1:]]
    return found


def _alike(cases: Sequence[StudiedCase], fields: Sequence[str]) -> dict[Any, list[StudiedCase]]:
    """Return the cases that know their clock loss in groups that differ in nothing but these settings."""
    found: dict[Any, list[StudiedCase]] = {}
    for case in cases:
        rest = frozenset((name, str(value)) for name, value in case.settings.items() if name not in fields)
        if _loss(case) is not None:
            found.setdefault((case.group, rest), []).append(case)
    return found


def _order(value: Any) -> tuple[int, float, str]:
    """Sort settings: not set, then numbers, then texts and lists."""
    if value is None or value in ("none", []):
        return 0, 0.0, ""
    return (1, float(value), "") if isinstance(value, int | float) else (2, 0.0, str(value))


def _loss(case: StudiedCase) -> float | None:
    """Return the points of clock that a case loses."""
    loss = case.values.get("clock_loss")
    return None if loss is None else float(loss) / PERCENT


def _recomputed(cases: Sequence[StudiedCase]) -> list[StudiedCase]:
    """Return those of them with recomputation, which fit on every cluster."""
    return [case for case in _dense(cases) if _order(case.settings.get(RECOMPUTED))[0]]


def _dense(cases: Sequence[StudiedCase]) -> list[StudiedCase]:
    """Return dense model-parallel cases without overlap, with microbatches of 1."""
    return [
        case
        for case in cases
        if not _is_fsdp(case)
        and not _is_sparse(case)
        and not _order(case.settings.get(OVERLAP))[0]
        and (case.settings.get(MICROBATCH) or 1) == 1
    ]


def _is_sparse(case: StudiedCase) -> bool:
    return (case.values.get("ep") or 1) > 1


def _is_fsdp(case: StudiedCase) -> bool:
    return case.values.get("zero") == 3


def _is_deep_gpt(case: StudiedCase) -> bool:
    return "gpt3-175b" in case.group and (case.values.get("pp") or 1) >= DEEP_FROM
