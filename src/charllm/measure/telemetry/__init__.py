"""Where readings come from. Adding a source: its own file, and one line in SOURCES."""

from collections.abc import Callable
from functools import partial
from importlib import import_module

from charllm.errors import SpecError, unknown_name
from charllm.measure.telemetry.source import Reading, Source, SourceFacts, TelemetryError


def _open(name: str, detail: str) -> Source:
    """Open a source of a file of this folder; its library is imported only now."""
    opened: Source = getattr(import_module(f"{__name__}.{name}"), f"open_{name}")(*filter(None, (detail,)))
    return opened


SOURCES: dict[str, Callable[[str], Source]] = {
    **{name: partial(_open, name) for name in ("nvml", "amdsmi", "replay")},
    "none": lambda _detail: open_none(),
}
"""Name: what opens it, given the text after the colon in ``replay:FILE``."""


def open_source(asked: str) -> Source:
    """Open a telemetry source by name; ``auto`` takes the first that works, none at worst."""
    name, _colon, detail = asked.partition(":")
    if name == "auto":
        return _open_auto()
    if name not in SOURCES:
        raise unknown_name("--telemetry", name, ("auto", *SOURCES))
    if name == "replay" and not detail:
        raise SpecError("--telemetry", asked, "replay:FOLDER, a recording to replay")
    return SOURCES[name](detail)


def _open_auto() -> Source:
    reasons = []
    for name in ("nvml", "amdsmi"):
        try:
            return SOURCES[name]("")
        except TelemetryError as error:
            reasons.append(f"{name}: {error}")
    return open_none("; ".join(reasons))


class NoTelemetry:
    """A source without GPUs."""

    def __init__(self, reason: str) -> None:
        self.facts = SourceFacts("none", (), details={"reason": reason} if reason else {})

    def read(self, _gpu: int, quantities: tuple[str, ...]) -> list[Reading]:
        """Return no reading."""
        return ["not_supported"] * len(quantities)

    def close(self) -> None:
        """Nothing to let go of."""


def open_none(reason: str = "") -> NoTelemetry:
    """Open the source that reads nothing, noting why nothing better was found."""
    return NoTelemetry(reason)
