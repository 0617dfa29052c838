"""Limits of GPUs through their vendor's library: read, set, put back; and the same as commands.

Source: NVML API reference (nvmlDeviceSetPowerManagementLimit, nvmlDeviceSetGpuLockedClocks); AMD SMI Python API
(amdsmi_set_power_cap, amdsmi_set_gpu_clk_limit).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol

from charllm.errors import SpecError
from charllm.measure.telemetry.amd_binding import load_binding as load_amdsmi
from charllm.measure.telemetry.nvml import load_binding
from charllm.measure.telemetry.source import TelemetryError
from charllm.units import KILO, MEGA


@dataclass(frozen=True, slots=True)
class Limits:
    """What is to hold on every GPU; None: left as it is."""

    power_w: float | None = None
    clock_hz: float | None = None


@dataclass(frozen=True, slots=True)
class Before:
    """What a GPU has before it is limited: the power limit to go back to, and the range that it takes."""

    vendor: str
    uuid: str
    number: int
    power_w: float
    least_w: float
    most_w: float

    def as_table(self) -> dict[str, Any]:
        """Return it as a plain table."""
        return asdict(self)


class Board(Protocol):
    """The GPUs of one vendor on this machine."""

    def look(self) -> list[Before]:
        """Return what each GPU has now."""

    def set_power(self, uuid: str, power_w: float) -> None:
        """Set the power limit of a GPU."""

    def set_clock(self, uuid: str, clock_hz: float | None) -> None:
        """Hold the clock of a GPU below a limit; None: as the driver likes."""


class Nvidia:
    """NVIDIA GPUs."""

    def __init__(self) -> None:
        self._nvml = load_binding()
        try:
            self._nvml.nvmlInit()
            count = self._nvml.nvmlDeviceGetCount()
            handles = [self._nvml.nvmlDeviceGetHandleByIndex(place) for place in range(count)]
            self._handles = {_text(self._nvml.nvmlDeviceGetUUID(handle)): handle for handle in handles}
        except self._nvml.NVMLError as error:
            raise TelemetryError(f"no usable NVIDIA driver ({error})") from None

    def look(self) -> list[Before]:
        """Return what each GPU has now."""
        return [self._look(number, uuid) for number, uuid in enumerate(self._handles)]

    def _look(self, number: int, uuid: str) -> Before:
        handle = self._handles[uuid]
        try:
            least, most = self._nvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)
            now = self._nvml.nvmlDeviceGetPowerManagementLimit(handle)
        except self._nvml.NVMLError as error:
            raise TelemetryError(f"GPU {number}: its power limit cannot be read ({error})") from None
        return Before("nvidia", uuid, number, now / KILO, least / KILO, most / KILO)

    def set_power(self, uuid: str, power_w: float) -> None:
        """Set the power limit of a GPU."""
        self._do("nvmlDeviceSetPowerManagementLimit", uuid, round(power_w * KILO))

    def set_clock(self, uuid: str, clock_hz: float | None) -> None:
        """Hold the clock of a GPU below a limit; None: as the driver likes."""
        if clock_hz is None:
            self._do("nvmlDeviceResetGpuLockedClocks", uuid)
        else:
            self._do("nvmlDeviceSetGpuLockedClocks", uuid, 0, round(clock_hz / MEGA))

    def _do(self, name: str, uuid: str, *values: int) -> None:
        try:
            getattr(self._nvml, name)(self._handles[uuid], *values)
        except self._nvml.NVMLError as error:
            raise TelemetryError(f"{uuid}: {name}: {error}; limits are set by root") from None


class Amd:
    """AMD GPUs."""

    def __init__(self) -> None:
        self._smi = load_amdsmi()
        try:
            self._smi.amdsmi_init()
            handles = self._smi.amdsmi_get_processor_handles()
            self._handles = {str(self._smi.amdsmi_get_gpu_device_uuid(handle)): handle for handle in handles}
        except Exception as error:
            raise TelemetryError(f"no usable AMD driver ({error})") from None

    def look(self) -> list[Before]:
        """Return what each GPU has now; the driver tells power in microwatts."""
        return [self._look(number, uuid) for number, uuid in enumerate(self._handles)]

    def _look(self, number: int, uuid: str) -> Before:
        try:
            told = self._smi.amdsmi_get_power_cap_info(self._handles[uuid])
        except Exception as error:
            raise TelemetryError(f"GPU {number}: its power limit cannot be read ({error})") from None
        now, least, most = (told[name] / MEGA for name in ("power_cap", "min_power_cap", "max_power_cap"))
        return Before("amd", uuid, number, now, least, most)

    def set_power(self, uuid: str, power_w: float) -> None:
        """Set the power limit of a GPU."""
        self._do("amdsmi_set_power_cap", uuid, 0, round(power_w * MEGA))

    def set_clock(self, uuid: str, clock_hz: float | None) -> None:
        """Hold the clock of a GPU below a limit; None: as the driver likes."""
        if clock_hz is None:
            self._do("amdsmi_set_gpu_perf_level", uuid, self._smi.AmdSmiDevPerfLevel.AUTO)
        else:
            self._do("amdsmi_set_gpu_clk_limit", uuid, "sclk", "max", round(clock_hz / MEGA))

    def _do(self, name: str, uuid: str, *values: Any) -> None:
        try:
            getattr(self._smi, name)(self._handles[uuid], *values)
        except Exception as error:
            raise TelemetryError(f"{uuid}: {name}: {error}; limits are set by root") from None


BOARDS: dict[str, type[Nvidia] | type[Amd]] = {"nvidia": Nvidia, "amd": Amd}


class Found(NamedTuple):
    """GPUs whose limits can be set."""

    board: Board
    gpus: list[Before]


def find_board() -> Found:
    """Return the GPUs of this machine, of the first vendor whose driver answers."""
    reasons = []
    for vendor, opened in BOARDS.items():
        try:
            board = opened()
            return Found(board, board.look())
        except TelemetryError as error:
            reasons.append(f"{vendor}: {error}")
    raise TelemetryError("no GPU whose limits can be set: " + "; ".join(reasons))


def check_limits(limits: Limits, gpus: Sequence[Before]) -> None:
    """Refuse a power limit that a GPU does not take."""
    for gpu in gpus:
        if limits.power_w is not None and not gpu.least_w <= limits.power_w <= gpu.most_w:
            raise SpecError("--power", limits.power_w, f"{gpu.least_w:g} to {gpu.most_w:g} W, the range of {gpu.uuid}")


def apply_limits(board: Board, limits: Limits, gpus: Sequence[Before]) -> None:
    """Set the limits of GPUs."""
    for gpu in gpus:
        if limits.power_w is not None:
            board.set_power(gpu.uuid, limits.power_w)
        if limits.clock_hz is not None:
            board.set_clock(gpu.uuid, limits.clock_hz)


def restore_limits(board: Board, limits: Limits, gpus: Sequence[Before]) -> list[str]:
    """Put back what GPUs had, each whatever befell the others; returns what could not be put back."""
    failed = []
    for gpu in gpus:
        try:
            if limits.power_w is not None:
                board.set_power(gpu.uuid, gpu.power_w)
            if limits.clock_hz is not None:
                board.set_clock(gpu.uuid, None)
        except TelemetryError as error:
            failed.append(str(error))
    return failed


def as_commands(limits: Limits, gpus: Sequence[Before], *, back: bool = False) -> list[str]:
    """Write what is done as commands of the vendor's own tool."""
    found = []
    for gpu in gpus:
        power_w = gpu.power_w if back else limits.power_w
        amd = gpu.vendor == "amd"
        if limits.power_w is not None and power_w is not None:
            found.append(f"amd-smi set -g {gpu.number} --power-cap {power_w:.0f}" if amd
                         else f"nvidia-smi -i {gpu.uuid} -pl {power_w:.0f}")  # fmt: skip
        if limits.clock_hz is not None:
            mhz = f"{limits.clock_hz / MEGA:.0f}"
            held = (
                f"amd-smi set -g {gpu.number} --clk-limit sclk max {mhz}"
                if amd
                else f"nvidia-smi -i {gpu.uuid} -lgc 0,{mhz}"
            )
            free = f"amd-smi set -g {gpu.number} --perf-level AUTO" if amd else f"nvidia-smi -i {gpu.uuid} -rgc"
            found.append(free if back else held)
    return found


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
