"""What a page shows that other rooms compute: changes that were tried, published rows, constants, other preheating."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


class TriedChange(Protocol):
    """What a page needs of one change that was simulated (analysis/advice.py)."""

    @property
    def asked(self) -> str:
        """How to ask for it."""

    @property
    def step_time_s(self) -> float:
        """Step time with it."""

    @property
    def gain_fraction(self) -> float:
        """Tokens a second gained."""

    @property
    def memory_need_bytes(self) -> float:
        """Device memory with it."""

    @property
    def fits(self) -> bool:
        """Whether it fits in memory."""

    @property
    def needs(self) -> str:
        """What it needs where it does not fit."""

    @property
    def tokens_per_j_fraction(self) -> float | None:
        """Tokens a joule gained."""

    @property
    def temperature_peak_k(self) -> float | None:
        """Hottest GPU against the run as it is."""

    @property
    def of_conditions(self) -> bool:
        """Whether it changes power, clock or air and not the job."""


class PublishedRow(Protocol):
    """What a page needs of a published run and its held-out prediction (evaluate/predictions.py)."""

    @property
    def id(self) -> str:
        """Its id in the table of published runs."""

    @property
    def source(self) -> str:
        """Who published it."""

    @property
    def kind(self) -> str:
        """dense, moe or lora."""

    @property
    def gpu(self) -> str:
        """Its GPU."""

    @property
    def model(self) -> str:
        """Its model."""

    @property
    def host(self) -> str:
        """tuned or untuned."""

    @property
    def predicted_s(self) -> float:
        """Step time predicted without its model family."""

    @property
    def measured_s(self) -> float:
        """Step time as published."""


class OtherPreheating(Protocol):
    """What a page needs of a run simulated with other preheating of rear GPUs (analysis/advice.py)."""

    @property
    def factor(self) -> float:
        """Times the assumed preheating."""

    @property
    def temperature_peak_c(self) -> float:
        """Hottest GPU with it."""

    @property
    def step_time_s(self) -> float:
        """Step time with it."""


class Assumption(Protocol):
    """A constant of the simulator itself (evaluate/constants.py)."""

    @property
    def name(self) -> str:
        """Its name in the code."""

    @property
    def value(self) -> str:
        """Its value."""

    @property
    def origin(self) -> str:
        """measured, published, derived, chosen, assumed or fitted."""

    @property
    def text(self) -> str:
        """What it means and where it comes from."""


@dataclass(frozen=True)
class Computed:
    """All of it for one run; what is empty was not computed, and `reasons` say why."""

    changes: Sequence[TriedChange] = ()
    warm_up: Mapping[str, Sequence[float | None]] | None = None
    """Lowest, mean and highest power, temperature and clock from a cold start on (simulate/cold.py)."""
    preheating: Sequence[OtherPreheating] = ()
    published: Sequence[PublishedRow] = ()
    constants: Sequence[Assumption] = ()
    reasons: Mapping[str, str] | None = None
    """Name of a field: why it is empty."""

    def why_not(self, field: str) -> str:
        """Say why something was not computed."""
        usual = "it needs more simulations than this page runs; `charllm report` computes it"
        return (self.reasons or {}).get(field, usual)
