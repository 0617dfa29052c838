"""The settings of a measurement: how a run is recorded, and how often its command is run."""

from dataclasses import dataclass
from typing import TypedDict

from charllm.errors import SpecError
from charllm.profile import DEFAULT_FIRST, ProfiledSteps, parse_profile
from charllm.spec.fields import count, flag, line, number
from charllm.spec.flags import check_flags

LOOPBACK = "127.0.0.1"
AFTER_S = 1.0
"""Recorded after a job, so that the energy counter is seen past its end: an H200 is asked for it within 0.9 s."""
COUNTERS_S = 0.09
"""How often counters are read beside a trace: those of a Hopper board advance every 0.1 s."""
LONGEST_WAIT_S, MOST_STEPS = 86_400.0, 100_000_000
TELEMETRY_FLAG = "--telemetry auto|nvml|amdsmi|replay:FOLDER|none"


def parse_address(text: str) -> tuple[str, int]:
    """Read `[HOST:]PORT`; without a host only this machine is answered."""
    host, _colon, port = text.rpartition(":")
    if not port.isdecimal() or not 0 <= int(port) <= 65535:
        raise SpecError("--prometheus", text, "[HOST:]PORT, such as 9400 or 0.0.0.0:9400; port 0: any free port")
    return host.removeprefix("[").removesuffix("]") or LOOPBACK, int(port)


def check_host(asked: str) -> tuple[str, str]:
    """Split what was asked for into a word and a file, or refuse it."""
    name, _colon, detail = asked.partition(":") if isinstance(asked, str) else ("", "", "")
    if name not in ("auto", "none", "redfish") or (name == "redfish") != bool(detail):
        raise SpecError("--host", asked, "auto, none or redfish:FILE")
    return name, detail


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureSettings:
    """How a run is recorded."""

    rate_hz: float = number("readings per second", 0.1, 1000, 100.0)
    telemetry: str = line("source of the readings", "auto", flag=TELEMETRY_FLAG)
    host: str = line(
        "readings of CPUs, memory, NICs, disks and sensors of the machine, once per second",
        "auto", flag="--host auto|none|redfish:FILE",
    )  # fmt: skip
    idle_s: float = number("idle seconds recorded before the command", 0, LONGEST_WAIT_S, 2.0)
    cooldown_s: float = number("seconds recorded after the command", 0, LONGEST_WAIT_S, AFTER_S)
    watch: bool = flag("show power, clock and temperature while it runs", False)
    prometheus: str | None = line(
        "serve metrics for Prometheus while it runs (default host 127.0.0.1)", None, flag="--prometheus [HOST:]PORT"
    )
    profile: str | None = line(
        "record a Kineto trace of this many steps that the command marks (charllm.mark.step), after the first FIRST "
        f"(default {DEFAULT_FIRST}); counters are then read at each of their steps",
        None, flag="--profile STEPS[@FIRST]",
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_flags(self)
        check_host(self.host)
        if self.prometheus is not None:
            parse_address(self.prometheus)
        _ = self.profiled

    @property
    def profiled(self) -> ProfiledSteps | None:
        """Steps to record a Kineto trace of."""
        return None if self.profile is None else parse_profile(self.profile)

    @property
    def counters_s(self) -> float | None:
        """How often counters are read: with a trace beside them at each of their steps, else as cheaply as can be."""
        return COUNTERS_S if self.profile else None


AS_USUAL = MeasureSettings()


class MeasureKeywords(TypedDict, total=False):
    """Keywords of `MeasureSettings`, with the types of their values."""

    rate: float
    telemetry: str
    host: str
    idle: float
    cooldown: float
    watch: bool
    prometheus: str | int | None
    profile: str | int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSettings:
    """How often a measured command is run, and whether at all."""

    repeats: int = count("number of times to run the command", 1, 1000, 1)
    preflight: bool = flag("check the machine first; run nothing if a check fails", False)
