"""Where readings come from. Adding a source: its own file, and one line in SOURCES."""

from collections.abc import Callable

from charllm.errors import SpecError, unknown_name
from charllm.measure.telemetry.source import Source


def _open_nvml(_detail: str) -> Source:
    from charllm.measure.telemetry.nvml import open_nvml

    return open_nvml()


def _open_amdsmi(_detail: str) -> Source:
    from charllm.measure.telemetry.amdsmi import open_amdsmi

    return open_amdsmi()


def _open_replay(detail: str) -> Source:
    from charllm.measure.telemetry.replay import open_replay

    return open_replay(detail)


def _open_none(_detail: str) -> Source:
    from charllm.measure.telemetry.none import open_none

    return open_none()


SOURCES: dict[str, Callable[[str], Source]] = {
    "nvml": _open_nvml, "amdsmi": _open_amdsmi, "replay": _open_replay, "none": _open_none,
}  # fmt: skip
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
    from charllm.measure.telemetry.none import open_none
    from charllm.measure.telemetry.source import TelemetryError

    reasons = []
    for name, open_it in (("nvml", _open_nvml), ("amdsmi", _open_amdsmi)):
        try:
            return open_it("")
        except TelemetryError as error:
            reasons.append(f"{name}: {error}")
    return open_none("; ".join(reasons))
