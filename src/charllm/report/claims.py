"""Claims of the paper, and the rule that decides about each: set before any run, and written here alone.

`reproduce` judges its findings by these rules, the page of a study its cases: the same numbers give the same verdict.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

HOLDS, PARTLY, FAILS = "holds", "partly", "does not hold"
HEADLINES: dict[str, Callable[[Iterable[float]], float]] = {"median": median, "largest": max, "smallest": min}
DEEP_FROM = 16
"""Stages of a deep pipeline."""
LARGE_MICROBATCH = 4
"""Sequences of a large microbatch, compared with one of 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A claim as a number for each configuration, positive where the claim is seen."""

    name: str
    text: str
    unit: str
    """Unit of the effect, and against what it is measured."""
    least: float
    """An effect above this shows the claim."""
    size: float | None = None
    """What the headline has to reach for the claim at the size that the paper gives; None: it gives none."""
    headline: str = "median"
    """Which of the effects stands for all: a key of HEADLINES."""
    some: bool = False
    """Whether the claim is about some configurations ("up to", "can"), not about all."""

    @property
    def rule(self) -> str:
        """Say when it holds, in words."""
        which = "at least one configuration shows" if self.some else "every configuration shows"
        size = f" and the {self.headline} effect reaches {self.size:g}" if self.size is not None else ""
        misses = [*([] if self.some else ["only some do"]), *([] if self.size is None else ["the size is missed"])]
        partly = f"; partly if {' or '.join(misses)}" if misses else ""
        return f"holds if {which} an effect above {self.least:g}{size}{partly}"


class Verdict(NamedTuple):
    """What the effects say of a claim."""

    verdict: str
    effect: float | None
    """The headline; None where no configuration could be run."""
    supporting: list[str]
    against: list[str]


def judge(claim: Claim, effects: Mapping[str, float | None]) -> Verdict:
    """Apply the rule of a claim to the effects of its configurations."""
    known = {name: effect for name, effect in effects.items() if effect is not None}
    if not known:
        return Verdict(FAILS, None, [], [])
    seen = [name for name, effect in known.items() if effect > claim.least]
    headline = HEADLINES[claim.headline](known.values())
    large = claim.size is None or headline >= claim.size
    enough = bool(seen) if claim.some else len(seen) == len(known)
    verdict = HOLDS if enough and large else PARTLY if seen else FAILS
    return Verdict(verdict, headline, seen, [name for name in known if name not in seen])


def overlap_acts(*, tp: int, dp: int, is_sparse: bool, is_fsdp: bool) -> bool:
    """Tell whether the artifact's overlap flags change anything in a run.

    They overlap tensor-parallel messages, and gradients of dense models; under FSDP NeMo switches them off.
    """
    return not is_fsdp and (tp > 1 or (dp > 1 and not is_sparse))


REAR_FRONT = Claim(
    name="rear-front",
    text="Rear GPUs of a node are up to 27 % hotter than front GPUs.",
    unit="% hotter (C), mean of rear slots against mean of front slots",
    least=10.0,
    size=27.0,
    headline="largest",
)
LOST_TO_HEAT = Claim(
    name="throttling-by-heat",
    text="GPUs of air-cooled nodes are thermally throttled.",
    unit="% of clock lost to thermal throttling",
    least=0.1,
)
DEEP_PIPELINES = Claim(
    name="deep-pipelines",
    text="Deep pipelines (PP16 to PP32) throttle more than tensor parallelism.",
    unit="points of clock lost beyond TP8 of the same model",
    least=0.5,
)
OVERLAP_TEMPERATURE = Claim(
    name="overlap-temperature",
    text="Compute-communication overlap always raises peak temperature.",
    unit="K hotter at the hottest GPU than without overlap",
    least=0.25,
)
OVERLAP_THROTTLING = Claim(
    name="overlap-throttling",
    text="Compute-communication overlap increases throttling.",
    unit="points of clock lost beyond the run without overlap",
    least=0.1,
)
MICROBATCH_PEAKS = Claim(
    name="microbatch-peaks",
    text="Larger microbatches raise peak power, even where throughput does not rise.",
    unit="% higher peak power (25 ms average) than with microbatch 1",
    least=0.5,
)
MICROBATCH_THROTTLING = Claim(
    name="microbatch-throttling",
    text="Larger microbatches increase throttling.",
    unit="points of clock lost beyond microbatch 1",
    least=0.1,
)
RECOMPUTE = Claim(
    name="recompute",
    text="Activation recomputation reduces throttling of GPT3-175B on deep pipelines and increases it for Llama3-70B.",
    unit="points of clock, positive in the claimed direction",
    least=0.1,
)
