"""Claims of the paper (claims.toml), and the rule that decides about each: set before any run.

`reproduce` judges its findings by these rules, the page of a study its cases: the same numbers give the same verdict.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import exp, expm1, log, log1p
from statistics import median
from typing import Any, NamedTuple

from charllm.result.differences import ANY, PEAK_TEMPERATURE, find_error, half_width
from charllm.result.uncertainty import errors

HOLDS, FAILS, UNDECIDED = "holds", "fails", "undecided at this accuracy"
HEADLINES: dict[str, Callable[[Iterable[float]], float]] = {"median": median, "largest": max, "smallest": min}
DEEP_FROM = 16
"""Stages of a deep pipeline."""
HEAT_LOSS_FRACTION = 1e-3
"""A loss of clock to heat above this is shown as one."""


class Scale(NamedTuple):
    """Effects in the unit of a claim as logarithms of ratios, or kelvin, and back."""

    to_log: Callable[[float], float]
    from_log: Callable[[float], float]


SCALES = {
    "%": Scale(lambda effect: log1p(effect / 100), lambda size: 100 * expm1(size)),
    "% less": Scale(lambda effect: log1p(-effect / 100), lambda size: -100 * expm1(size)),
    "times": Scale(log, exp),
    "points": Scale(lambda effect: effect / 100, lambda size: 100 * size),
    "K": Scale(float, float),
}
"""Unit of an effect: how it is written as errors of differences are. A point of clock is 1 % of the requested one."""
LEVEL = "one run"
"""Kind of change of a claim about a single run: its error is that of a prediction, not of a difference."""


class Accuracy(NamedTuple):
    """Which differences the effects of a claim are, so that the model's error is known for them."""

    quantity: str
    change: str
    scale: str
    """A key of SCALES."""

    def around(self, effect: float) -> tuple[float, float]:
        """Return the ends between which the measured effect lies in nine of ten pairs."""
        scale = SCALES[self.scale]
        size = scale.to_log(effect)
        ends = [scale.from_log(size + sign * self.half_width(size)) for sign in (-1, 1)]
        return min(ends), max(ends)

    def half_width(self, size: float) -> float:
        """Return half the width of the interval of an effect that is written as errors are."""
        if self.change == LEVEL:
            bounds = errors()["h200"][LEVELS[self.quantity]]
            return max(-float(bounds["low"]), float(bounds["high"]))
        return half_width(find_error(self.quantity, self.change), size)

    @property
    def words(self) -> str:
        """Say how large the error is, and what it rests on."""
        if self.change == LEVEL:
            rows = errors()["h200"][LEVELS[self.quantity]]["rows"]
            return f"error of the {self.quantity} of one run ({rows} runs on H200 boards)"
        error = find_error(self.quantity, self.change)
        kind = error["change"] if error["change"] != ANY else "any change, for want of pairs of this kind"
        return f"error of a difference in {self.quantity} by {kind} ({error['pairs']} measured pairs)"


LEVELS = {PEAK_TEMPERATURE: "temperature_peak_c"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A claim as a number for each configuration, positive where the claim is seen."""

    name: str
    text: str
    unit: str
    """Unit of the effect, and against what it is measured."""
    least: float = 0.0
    """An effect above this shows the claim."""
    size: float | None = None
    """What the headline has to reach for the claim at the size that the paper gives; None: it gives none."""
    headline: str = "median"
    """Which of the effects stands for all: a key of HEADLINES."""
    of: str = "most"
    """How many configurations the claim is about: a key of ENOUGH."""
    accuracy: Accuracy | None = None
    """None: no error is known of this kind of effect."""
    answer: str = ""
    """What was measured or published about the same effect, with its source."""
    why: str = ""
    """The mechanism in one line, whatever the verdict."""
    is_thermal: bool = False
    """Whether it rests on temperatures or on clocks, so that cooling, caps and silicon decide about it."""
    note: str = ""
    """How the comparison is made, and the mechanism behind it in full."""
    circular: str = ""
    """Why a verdict is no evidence: a constant that was derived from this very claim."""

    @property
    def rule(self) -> str:
        """Say when it holds, in words."""
        size = f", and the {self.headline} effect reaches {self.size:g}" if self.size is not None else ""
        return (
            f"holds if {SHOWN[self.of]} an effect that exceeds {self.least:g} by more than its error{size}; fails if "
            f"that is excluded by more than the error; else {UNDECIDED}"
        )

    def around(self, effect: float) -> tuple[float, float]:
        """Return the ends between which the measured effect may lie; the effect itself where no error is known."""
        return self.accuracy.around(effect) if self.accuracy is not None else (effect, effect)


@cache
def read_claims() -> dict[str, Claim]:
    """Return the claims of the paper by their names on the command line."""
    text = files("charllm.report").joinpath("claims.toml").read_text(encoding="utf-8")
    return {name: _read_claim(name, entry) for name, entry in tomllib.loads(text).items()}


def _read_claim(name: str, entry: dict[str, Any]) -> Claim:
    accuracy = entry.pop("accuracy", None)
    return Claim(name=name, accuracy=accuracy and Accuracy(*accuracy), **entry)


SHOWN = {
    "all": "every configuration shows", "most": "more than half of the configurations show",
    "some": "at least one configuration shows",
}  # fmt: skip


def _at_least(needed: Callable[[int], int]) -> Callable[[int, int, int], str]:
    """Return the rule that needs some of all configurations."""

    def decide(shown: int, denied: int, count: int) -> str:
        return HOLDS if shown >= needed(count) else FAILS if count - denied < needed(count) else UNDECIDED

    return decide


ENOUGH = {
    "all": _at_least(lambda count: count),
    "most": _at_least(lambda count: count // 2 + 1),
    "some": _at_least(lambda _count: 1),
}
"""How many configurations a claim is about ("always", in general, "can" or "up to"): the verdict on how many show it,
how many exclude it, and how many there are."""


class Verdict(NamedTuple):
    """What the effects say of a claim."""

    verdict: str
    effect: float | None
    """The headline; None where no configuration could be run."""
    supporting: list[str]
    against: list[str]
    open: Sequence[str] = ()
    """Configurations whose effect is within its error of what decides."""
    ends: tuple[float, float] | None = None
    """Between these the measured headline lies in nine of ten pairs; None where no error is known."""


def judge(
    claim: Claim, effects: Mapping[str, float | None], ranges: Mapping[str, Sequence[float] | None] | None = None
) -> Verdict:
    """Apply the rule of a claim to the effects of its configurations.

    `ranges` are intervals over unknown conditions, which stand for the error where none is known.
    """
    known = {name: effect for name, effect in effects.items() if effect is not None}
    if not known:
        return Verdict(UNDECIDED, None, [], [])
    ends = {name: _ends(claim, effect, (ranges or {}).get(name)) for name, effect in known.items()}
    shown = [name for name, (low, _high) in ends.items() if low > claim.least]
    denied = [name for name, (_low, high) in ends.items() if high <= claim.least]
    headline = HEADLINES[claim.headline](known.values())
    found = [ENOUGH[claim.of](len(shown), len(denied), len(known))]
    around = tuple(HEADLINES[claim.headline](end) for end in zip(*ends.values(), strict=True))
    if claim.size is not None:
        is_known = claim.accuracy is not None or ranges
        reached = HOLDS if around[0] >= claim.size else FAILS if around[1] < claim.size else UNDECIDED
        found.append(reached if is_known else UNDECIDED)
    verdict = FAILS if FAILS in found else UNDECIDED if UNDECIDED in found else HOLDS
    told = None if claim.accuracy is None else (around[0], around[1])
    return Verdict(verdict, headline, shown, denied, [name for name in known if name not in {*shown, *denied}], told)


def _ends(claim: Claim, effect: float, otherwise: Sequence[float] | None) -> tuple[float, float]:
    if claim.accuracy is None and otherwise is not None:
        return otherwise[0], otherwise[1]
    return claim.around(effect)


def past_a_point(effects: Callable[[int, int], float | None], sizes: int) -> float | None:
    """Return the effect of growing past the point at which it is largest: the least of all sizes beyond that point.

    `effects` gives what a size does against a smaller one, by their places in order of size.
    """
    points = []
    for point in range(sizes - 1):
        beyond = [effects(size, point) for size in range(point + 1, sizes)]
        if None in beyond:
            return None
        points.append(min(one for one in beyond if one is not None))
    return max(points, default=None)


def overlap_acts(*, tp: int, dp: int, is_sparse: bool, is_fsdp: bool) -> bool:
    """Tell whether the artifact's overlap flags change anything in a run.

    They overlap tensor-parallel messages, and gradients of dense models; under FSDP NeMo switches them off.
    """
    return not is_fsdp and (tp > 1 or (dp > 1 and not is_sparse))
