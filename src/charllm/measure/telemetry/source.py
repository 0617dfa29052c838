"""The one small interface that every source of readings has."""

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from charllm.errors import CharllmError

Reading = float | str
"""A number, or the reason why there is none (a word of REASONS)."""

REASONS = (
    "not_supported", "not_recorded", "no_permission", "no_driver", "lost", "not_finite", "implausible", "stale",
    "error",
)  # fmt: skip
"""not_recorded: a converted source does not have it; implausible: contradicts another reading; stale: said by a service
that has been silent since."""


class TelemetryError(CharllmError):
    """A source that cannot be used: no driver, no permission, nothing to read."""

    exit_code = 2


class GpuIdentity(NamedTuple):
    """Which GPU a reading is of, whatever its number is today."""

    uuid: str
    name: str
    number: int
    """The one the driver gives it."""
    pci: str = ""
    package: str = ""
    """PCI address of the device whose power sensor and cap this GPU shares with others; empty where it has its own."""


@dataclass(frozen=True, slots=True)
class Capability:
    """Whether a GPU can tell a quantity, as found by trying."""

    supported: bool
    reason: str = ""
    call_s: float = 0.0
    """What one reading cost when it was tried."""


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """What a source found when it was opened."""

    name: str
    gpus: tuple[GpuIdentity, ...]
    capabilities: dict[str, dict[str, Capability]] = field(default_factory=dict)
    """GPU uuid: quantity: capability."""
    details: dict[str, str] = field(default_factory=dict)
    """Versions and notes for the record."""


class Source(Protocol):
    """Reads quantities of GPUs; missing readings come as their reason, never as a number."""

    @property
    def facts(self) -> SourceFacts:
        """What was found when the source was opened."""

    def read(self, gpu: int, quantities: tuple[str, ...]) -> list[Reading]:
        """Read quantities of the GPU with this place in `facts.gpus`."""

    def close(self) -> None:
        """Let go of the driver."""
