"""No telemetry: a machine without a GPU still runs commands and keeps their marks."""

from charllm.measure.telemetry.source import Reading, SourceFacts


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
