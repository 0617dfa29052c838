"""What do the claims of the paper look like in its own study? Read off the cases, nothing is simulated here."""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from charllm.report.figure import Column, Figure
from charllm.report.page.cases import StudiedCase
from charllm.report.page.quantity import CLOCK_LOSS, PERCENT

PAPER = "charllm-ppt"
"""How the names of the paper's studies begin."""
HOLDS, PARTLY, FAILS = "holds", "partly", "does not hold"
LEAST_POINTS, LEAST_OVERLAP_POINTS, LEAST_PEAK_PERCENT = 0.5, 0.1, 0.5
LEAST_HOTTER_PERCENT, CLAIMED_HOTTER_PERCENT = 10.0, 27.0
"""Marks that decide about a claim, here and in reproduce/findings: points of clock, watts of the peak, degrees of rear
slots."""
DEGREES = ("parallelism.tp", "parallelism.pp", "parallelism.sp")
DEEP_FROM = 16
"""Stages of a deep pipeline."""


class Evidence(NamedTuple):
    """What the cases of a study say of a claim."""

    name: str
    """The claim in a few words."""
    claim: str
    verdict: str
    evidence: str


def claims(cases: Sequence[StudiedCase]) -> list[Evidence]:
    """List the claims of the paper that a study has the cases for."""
    ran = [case for case in cases if case.ran]
    return [found for check in CHECKS if (found := check(ran)) is not None]


def claims_figure(cases: Sequence[StudiedCase], conditions: str = "") -> Figure:
    """Return the paper's claims and what this study shows of each."""
    found = claims(cases)
    question = "What do the paper's claims look like here?"
    if not found:
        missing = "This study has no pair of cases that would show one of the paper's claims."
        return Figure("claims", "table", question, "", missing=missing)
    columns = {
        "claim": Column("claim", [each.claim for each in found]),
        "verdict": Column("in this study", [each.verdict for each in found]),
        "evidence": Column("evidence", [each.evidence for each in found]),
    }
    held = sum(each.verdict == HOLDS for each in found)
    message = f"{held} of {len(found)} claims hold in these cases. Nothing was fitted to any of them."
    return Figure("claims", "table", question, message, columns, {"search": False}, conditions)


def _rear_front(cases: Sequence[StudiedCase]) -> Evidence | None:
    gaps = {case.name: gap for case in cases if (gap := rear_gap(case)) is not None}
    if not gaps:
        return None
    percents = [percent for _, percent in gaps.values()]
    kelvins = [kelvin for kelvin, _ in gaps.values()]
    verdict = FAILS if max(percents) < LEAST_HOTTER_PERCENT else PARTLY
    if max(percents) >= CLAIMED_HOTTER_PERCENT:
        verdict = HOLDS
    return Evidence(
        "rear GPUs are hotter",
        "Rear GPUs of a node are up to 27 % hotter than front ones.",
        verdict,
        f"{_range(percents)} % hotter in degrees Celsius, {_range(kelvins)} K, in {len(gaps)} cases; part of it is "
        "assumed preheating by upstream GPUs",
    )


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


def _deep_pipelines(cases: Sequence[StudiedCase]) -> Evidence | None:
    plain = [case for case in cases if case.values.get("zero") != 3 and not _is_sparse(case)]
    points: dict[str, list[float]] = {}
    for listed in _alike(plain, DEGREES).values():
        deep = [case for case in listed if (case.values.get("pp") or 1) >= DEEP_FROM]
        shallow = [case for case in listed if (case.values.get("pp") or 1) < DEEP_FROM]
        if deep and shallow:
            widest = max(shallow, key=lambda case: case.values.get("tp") or 1)
            points.setdefault(widest.group, []).extend(_change((widest, case)) for case in deep)
    told = [f"{group}: {_range(found)} points of clock more than the widest tp" for group, found in points.items()]
    return _judged(
        "deep pipelines throttle more",
        "Deep pipelines (PP16 to 32) throttle more than tensor-parallel ones.",
        [point for found in points.values() for point in found],
        LEAST_POINTS,
        f"{'; '.join(told)}, all else being equal",
    )


def _heat(cases: Sequence[StudiedCase]) -> Evidence | None:
    lost = [case.values.get("clock_loss_fraction.thermal") for case in cases]
    points = [loss / PERCENT for loss in lost if loss is not None]
    if not points:
        return None
    hit = sum(loss > 0 for loss in points)
    verdict = HOLDS if hit == len(points) else PARTLY if hit else FAILS
    return Evidence(
        "GPUs lose clock to heat",
        "Air-cooled nodes lose clock to heat.",
        verdict,
        f"{hit} of {len(points)} cases lose clock to heat, at most {max(points):.2f} points",
    )


def _overlap(cases: Sequence[StudiedCase]) -> Evidence | None:
    pairs = pairs_apart_in(cases, "parallelism.overlap")
    points = [_loss(after) - _loss(before) for before, after in pairs]  # type: ignore[operator]
    degrees = [
        after.values["temperature_peak_c"] - before.values["temperature_peak_c"]
        for before, after in pairs
        if None not in (after.values.get("temperature_peak_c"), before.values.get("temperature_peak_c"))
    ]
    told = f"{_range(points)} points of clock, {_range(degrees)} K of peak temperature, in {len(pairs)} pairs"
    claim = "Overlap of computation and communication raises throttling and peak temperature."
    return _judged("overlap raises throttling", claim, points, LEAST_OVERLAP_POINTS, told)


def _microbatch(cases: Sequence[StudiedCase]) -> Evidence | None:
    pairs = pairs_apart_in(cases, "training.micro_batch_size")
    watts = [
        (after.values["power_peak_sensor_w"] / before.values["power_peak_sensor_w"] - 1) / PERCENT
        for before, after in pairs
        if before.values.get("power_peak_sensor_w") and after.values.get("power_peak_sensor_w")
    ]
    told = f"{_range(watts)} % of the peak of the smallest microbatch, in {len(watts)} pairs"
    return _judged(
        "larger microbatches raise peak power", "Larger microbatches raise peak power.", watts, LEAST_PEAK_PERCENT, told
    )


def _recompute(cases: Sequence[StudiedCase]) -> Evidence | None:
    pairs = pairs_apart_in(cases, "training.recompute")
    gpt = [_change(pair) for pair in pairs if "gpt3" in pair[0].group and (pair[0].values.get("pp") or 1) >= DEEP_FROM]
    llama = [_change(pair) for pair in pairs if "llama3-70b" in pair[0].group]
    if not gpt or not llama:
        return None
    hits = [change < 0 for change in gpt] + [change > 0 for change in llama]
    verdict = HOLDS if all(hits) else PARTLY if any(hits) else FAILS
    told = f"GPT3-175B {_range(gpt)}, Llama3-70B {_range(llama)} points of clock, in {len(pairs)} pairs"
    claim = "Recomputation lowers throttling of GPT3-175B on deep pipelines and raises it for Llama3-70B."
    return Evidence("recomputation moves throttling both ways", claim, verdict, told)


CHECKS: tuple[Callable[[Sequence[StudiedCase]], Evidence | None], ...] = (
    _rear_front, _deep_pipelines, _overlap, _microbatch, _recompute, _heat,
)  # fmt: skip


def pairs_apart_in(cases: Sequence[StudiedCase], field: str) -> list[tuple[StudiedCase, StudiedCase]]:
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
    if value is None:
        return 0, 0.0, ""
    return (1, float(value), "") if isinstance(value, int | float) else (2, 0.0, str(value))


def _judged(name: str, claim: str, effects: Sequence[float], least: float, evidence: str) -> Evidence | None:
    if not effects:
        return None
    seen = [effect > least for effect in effects]
    return Evidence(name, claim, HOLDS if all(seen) else PARTLY if any(seen) else FAILS, evidence)


def _change(pair: tuple[StudiedCase, StudiedCase]) -> float:
    return (_loss(pair[1]) or 0.0) - (_loss(pair[0]) or 0.0)


def _loss(case: StudiedCase) -> float | None:
    """Return the points of clock that a case loses."""
    loss = case.values.get(CLOCK_LOSS)
    return None if loss is None else float(loss) / PERCENT


def _is_sparse(case: StudiedCase) -> bool:
    return (case.values.get("ep") or 1) > 1


def _range(values: Sequence[float]) -> str:
    if not values:
        return "unknown"
    low, high = f"{min(values):.1f}", f"{max(values):.1f}"
    return low if low == high else f"{low} to {high}"
