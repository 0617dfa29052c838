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

    def shown(self) -> str:
        """Return the setting with its line and reason, as warnings and errors show it."""
        line = "" if self.line is None else f" (line {self.line})"
        return f"{self.text}{line}{f': {self.reason}' if self.reason else ''}"


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
    small: tuple[Setting, ...] = ()
    """Known to change the result a little in a way that is not modelled: a warning each."""
    notes: tuple[str, ...] = ()
    """What the reader had to assume: a warning each."""
    nodes: int | None = None
    """Nodes that the file starts the job on."""
    gpus_per_node: int | None = None
    microbatches: int | None = None
    """Microbatches of each replica in a step, where the file states them and no global batch."""

    def warnings(self) -> list[str]:
        """Return what a user must know about this reading, one sentence a line."""
        found = [f"not understood and not used: {setting.shown()}" for setting in self.not_understood]
        found += [f"not modelled, small effect: {setting.shown()}" for setting in self.small]
        return [*found, *self.notes]
