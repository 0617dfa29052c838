"""What a foreign file says: the request it makes, and every setting of it that the request does not hold."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a foreign file, as the file writes it."""

    name: str
    text: str
    """Name and value as written, e.g. ``--optimizer-cpu-offload`` or ``model.use_flash_attention: false``."""
    line: int | None = None
    reason: str = ""
    """Why it is not used, where that is known."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A foreign file, read. Every setting is used in `request`, known to have no effect, or listed here."""

    request: dict[str, Any]
    not_understood: tuple[Setting, ...] = ()
    """Names that no table of this reader knows: a warning each."""
    unmodelled: tuple[Setting, ...] = ()
    """Known to change the result in a way that is not modelled: refused unless the user allows it."""
    missing: dict[str, str] = field(default_factory=dict)
    """Field of the request that the file leaves open: what to add, e.g. ``--set model.vocab=N``."""
