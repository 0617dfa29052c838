"""AMD GPUs through AMD SMI (the amdsmi package of ROCm), each quantity tried when the source is opened.

Most readings come from one table, the driver's GPU metrics (`amd_table.py`). A field that a GPU does not have is the
largest number of its type.

Meanings (ROCm/amdsmi, include/amd_smi/amdsmi.h): MI300 has `current_socket_power`, MI200 and older
`average_socket_power`, in watts; `temperature_edge` is what rocm-smi shows first where it is there (MI200), the hotspot
where it is not (MI300); clocks are one for each chiplet; xGMI counters are in KiB; the energy counter is in steps of
`counter_resolution` (15.259 uJ) and is compared with the power reading before it is believed (ROCm/amdsmi #38,
ml-energy/zeus #113). Power, energy and cap belong to a package (`amd_packages.py`); its devices share them evenly, so
that sums over GPUs are right. `amdsmi_get_gpu_pci_throughput` waits for a second inside the driver and newer GPUs do
not tell sent from received bytes: PCIe traffic is not read.

libamd_smi is not thread-safe before ROCm 7.2: one thread only.
"""

import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from charllm.measure.counters import Unwrapped
from charllm.measure.quantities import QUANTITIES
from charllm.measure.telemetry.amd_binding import FaultCount, binding_version, load_binding
from charllm.measure.telemetry.amd_energy import find_wrong_counters
from charllm.measure.telemetry.amd_limits import RESIDENCIES, TICKS, Residency, limits_from_bits
from charllm.measure.telemetry.amd_packages import Device, Package, board_of, group_packages
from charllm.measure.telemetry.amd_table import MetricsTable, Missing
from charllm.measure.telemetry.source import Capability, GpuIdentity, Reading, SourceFacts, TelemetryError
from charllm.units import KIB, KILO, MEGA, MICRO

COUNTER_RANGE = 2.0**32
"""Accumulators of older firmware have 32 bits, which an MI250 fills in two minutes."""
WATTS_BELOW = 1e4
"""A power cap above this is in microwatts, as the header says; some releases answer in watts."""
DEGREES_BELOW = 1e3
"""A temperature above this is in thousandths."""

REASON_OF_STATUS = {
    "INVAL": "not_supported",
    "NOT_SUPPORTED": "not_supported",
    "NOT_YET_IMPLEMENTED": "not_supported",
    "FAIL_LOAD_SYMBOL": "not_supported",
    "FILE_NOT_FOUND": "not_supported",
    "SETTING_UNAVAILABLE": "not_supported",
    "NO_PERM": "no_permission",
    "NOT_INIT": "no_driver",
    "DRIVER_NOT_LOADED": "no_driver",
    "NO_DRV": "no_driver",
    "NOT_FOUND": "lost",
    "UNEXPECTED_SIZE": "lost",
    "UNEXPECTED_DATA": "lost",
}
"""Status codes in words that hold for every vendor; any other is an error. The library turns EIO and ENXIO, which a
GPU that has left the bus answers, into the last two (rocm_smi/src/rocm_smi_utils.cc)."""


def open_amdsmi(binding: Any = None) -> "AmdSmi":
    """Load the library and look at every GPU; `binding` is the amdsmi package."""
    smi = load_binding() if binding is None else binding
    try:
        smi.amdsmi_init()
        return AmdSmi(smi)
    except smi.AmdSmiException as error:
        raise TelemetryError(f"no usable AMD driver ({_said(error)})") from None


class AmdSmi:
    """AMD SMI, initialised; reads by handle and turns every error into a reason."""

    def __init__(self, binding: Any) -> None:
        self._smi, wrapper = binding, binding.amdsmi_wrapper
        self._reasons = {
            getattr(wrapper, f"AMDSMI_STATUS_{name}"): reason
            for name, reason in REASON_OF_STATUS.items()
            if hasattr(wrapper, f"AMDSMI_STATUS_{name}")
        }
        self._handles = self._in_hip_order(binding.amdsmi_get_processor_handles())
        self._tables = [MetricsTable(wrapper, handle, self._reasons) for _, handle in self._handles]
        self._residencies = [Residency() for _ in self._handles]
        self._energy_counts = [Unwrapped(COUNTER_RANGE) for _ in self._handles]
        self._refused: dict[int, str] = {}
        self._faults = FaultCount(binding, [handle for _, handle in self._handles])
        self._thresholds: dict[int, dict[str, float]] = {}
        gpus = [self._identify(place) for place in range(len(self._handles))]
        self._packages = self._find_packages(gpus)
        self._boards = self._find_boards(gpus)
        self._readers: dict[str, Callable[[int], float]] = {
            "power_instant_w": lambda gpu: self._shared(gpu, self._power("current_socket_power")),
            "power_average_w": lambda gpu: self._shared(gpu, self._power("average_socket_power")),
            "energy_j": lambda gpu: self._shared(gpu, self._energy),
            "power_limit_w": lambda gpu: self._shared(gpu, self._power_cap),
            "temperature_c": self._temperature,
            "hotspot_c": lambda gpu: self._degrees(gpu, "temperature_hotspot"),
            "memory_temperature_c": self._memory_temperature,
            "margin_k": self._margin,
            "clock_hz": self._clock,
            "memory_clock_hz": lambda gpu: self._told(gpu, "current_uclk") * MEGA,
            "limits": self._limits,
            "power_limited_s": lambda gpu: self._limited(gpu, "power"),
            "thermally_limited_s": lambda gpu: self._limited(gpu, "thermal"),
            "utilization_fraction": lambda gpu: self._percent(gpu, "average_gfx_activity"),
            "memory_utilization_fraction": lambda gpu: self._percent(gpu, "average_umc_activity"),
            "link_sent_bytes": lambda gpu: self._link_bytes(gpu, "xgmi_write_data_acc"),
            "link_received_bytes": lambda gpu: self._link_bytes(gpu, "xgmi_read_data_acc"),
            "memory_used_bytes": self._memory_used,
            "ecc_errors": lambda gpu: self._call("amdsmi_get_gpu_total_ecc_count", gpu)["uncorrectable_count"],
            "faults": lambda gpu: self._faults.count(gpu),
        }
        leaders = list(dict.fromkeys(package.leader for package in self._packages))
        self._refused = find_wrong_counters(leaders, self._of_package)
        self.facts = self._probe(gpus)

    def read(self, gpu: int, quantities: tuple[str, ...]) -> list[Reading]:
        """Read quantities of one GPU."""
        return [self._read_one(gpu, name) for name in quantities]

    def close(self) -> None:
        """Let go of the driver."""
        with contextlib.suppress(self._smi.AmdSmiException):
            # A driver that is already gone has nothing left to let go of.
            self._smi.amdsmi_shut_down()

    def _in_hip_order(self, handles: Sequence[Any]) -> list[tuple[int, Any]]:
        """Return amd-smi's number and the handle of each GPU, in the order in which HIP numbers them.

        The two orders differ on some machines; visible devices and ranks go by HIP's. Where the library does not tell
        it, HIP's order is that of the kernel's compute nodes.
        """

        def order(entry: tuple[int, Any]) -> tuple[int, int]:
            number, handle = entry
            hip = self._attempt("amdsmi_get_gpu_enumeration_info", handle, default={}).get("hip_id")
            node = self._attempt("amdsmi_get_gpu_kfd_info", handle, default={}).get("node_id")
            known = next((value for value in (hip, node) if isinstance(value, int)), number)
            return known, number

        return sorted(enumerate(handles), key=order)

    def _identify(self, place: int) -> GpuIdentity:
        """Name a GPU; where the driver does not, its number stands for it."""
        number, handle = self._handles[place]
        pci = self._attempt("amdsmi_get_gpu_device_bdf", handle, default="")
        name = self._attempt("amdsmi_get_gpu_asic_info", handle, default={}).get("market_name", "unknown")
        # The one that HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES take.
        uuid = self._attempt("amdsmi_get_gpu_enumeration_info", handle, default={}).get("hip_uuid")
        uuid = uuid or self._attempt("amdsmi_get_gpu_device_uuid", handle, default="")
        return GpuIdentity(uuid or f"gpu-{number}", name, number, pci)

    def _find_packages(self, gpus: Sequence[GpuIdentity]) -> list[Package]:
        """Return the package of each GPU."""
        devices = [Device(gpu.pci, gpu.name, self._tells_power(place)) for place, gpu in enumerate(gpus)]
        found = {place: package for package in group_packages(devices) for place in package.members}
        return [found[place] for place in range(len(gpus))]

    def _find_boards(self, gpus: Sequence[GpuIdentity]) -> list[Package]:
        """Return, for each GPU, the partitions that share its metrics table: itself, where it is not split."""
        boards: dict[str, list[int]] = {}
        for place, gpu in enumerate(gpus):
            boards.setdefault(board_of(gpu.pci) or str(place), []).append(place)
        found = {place: places for places in boards.values() for place in places}
        return [Package(self._leader_of(found[place]), tuple(found[place])) for place in range(len(gpus))]

    def _leader_of(self, places: Sequence[int]) -> int:
        return next((place for place in places if self._packages[place].leader == place), places[0])

    def _tells_power(self, place: int) -> bool:
        """Tell whether a device shows power of its own: no running GPU draws nothing."""
        for name in ("current_socket_power", "average_socket_power"):
            with contextlib.suppress(Missing):
                if self._tables[place].value(name) > 0:
                    return True
        return False

    def _probe(self, gpus: Sequence[GpuIdentity]) -> SourceFacts:
        """Try every quantity on every GPU and keep what it cost."""
        named = [self._in_package(place, gpu, gpus) for place, gpu in enumerate(gpus)]
        # Partitions of one GPU may share a UUID; rows of a record are told apart by it.
        repeated = {uuid for uuid, count in Counter(gpu.uuid for gpu in named).items() if count > 1}
        named = [gpu._replace(uuid=f"{gpu.uuid}@{gpu.pci}") if gpu.uuid in repeated else gpu for gpu in named]
        capabilities = {gpu.uuid: self._try_all(place) for place, gpu in enumerate(named)}
        return SourceFacts("amdsmi", tuple(named), capabilities, self._details(named))

    def _in_package(self, place: int, gpu: GpuIdentity, gpus: Sequence[GpuIdentity]) -> GpuIdentity:
        package = self._packages[place]
        return gpu._replace(package=gpus[package.leader].pci) if len(package.members) > 1 else gpu

    def _details(self, gpus: Sequence[GpuIdentity]) -> dict[str, str]:
        first = self._handles[0][1] if self._handles else None
        version = self._attempt("amdsmi_get_lib_version", default={})
        found = {
            "driver": str(
                self._attempt("amdsmi_get_gpu_driver_info", first, default={}).get("driver_version", "unknown")
            ),
            "amdsmi": ".".join(str(version.get(part, "?")) for part in ("major", "minor", "release")),
            "binding": binding_version(),
            "metrics_table": ",".join(table.revision() for table in self._tables),
            "partitions": ",".join(self._partition(place) for place in range(len(gpus))),
        }
        shared = [f"GPU {place}" for place, gpu in enumerate(gpus) if gpu.package]
        if shared:
            found["shared_power"] = (
                f"{', '.join(shared)}: each has an even share of its package's power, energy and cap"
            )
        if self._refused:
            found["energy_counter"] = "; ".join(self._refused.values())
        return found

    def _partition(self, place: int) -> str:
        handle = self._handles[place][1]
        modes = ("amdsmi_get_gpu_compute_partition", "amdsmi_get_gpu_memory_partition")
        return "/".join(self._attempt(mode, handle, default="") or "none" for mode in modes)

    def _try_all(self, gpu: int) -> dict[str, Capability]:
        found = {}
        for name in QUANTITIES:
            self.read(gpu, (name,))  # The first call of a kind is slow and says nothing about the next.
            self._tables[self._boards[gpu].leader].forget()
            start = time.perf_counter()
            (reading,) = self.read(gpu, (name,))
            call_s = time.perf_counter() - start
            missing = isinstance(reading, str)
            found[name] = Capability(not missing, str(reading) if missing else "", call_s)
        return found

    def _read_one(self, gpu: int, name: str) -> Reading:
        reader = self._readers.get(name)
        if reader is None:
            return "not_supported"
        try:
            value = float(reader(gpu))
        except Missing as missing:
            return str(missing)
        except self._smi.AmdSmiException as error:
            return self._reasons.get(getattr(error, "err_code", None), "error")
        except (AttributeError, TypeError, KeyError):
            # The binding is older than the call, or answers "N/A" where a number is.
            return "not_supported"
        return value if math.isfinite(value) else "not_finite"

    def _attempt(self, name: str, *arguments: Any, default: Any) -> Any:
        """Call a function that may fail or that an old binding may lack."""
        try:
            return getattr(self._smi, name)(*arguments)
        except (self._smi.AmdSmiException, AttributeError, ValueError):
            return default

    def _call(self, name: str, gpu: int, *arguments: Any) -> Any:
        return getattr(self._smi, name)(self._handles[gpu][1], *arguments)

    def _told(self, gpu: int, field: str) -> float:
        """Return a field of the metrics table."""
        return self._tables[self._boards[gpu].leader].value(field)

    def _all_told(self, gpu: int, field: str) -> list[float]:
        """Return those entries of a list in the metrics table that are there."""
        return self._tables[self._boards[gpu].leader].values(field)

    def _shared(self, gpu: int, read: Callable[[int], float]) -> float:
        """Return a device's even share of what its package reads."""
        package = self._packages[gpu]
        return read(package.leader) / len(package.members)

    def _power(self, field: str) -> Callable[[int], float]:
        def read(leader: int) -> float:
            watts = self._tables[leader].value(field)
            if watts == 0:
                raise Missing("implausible")
            return watts

        return read

    def _power_cap(self, leader: int) -> float:
        cap = self._call("amdsmi_get_power_cap_info", leader)["power_cap"]
        if not cap:
            raise Missing("not_supported")
        return float(cap if cap < WATTS_BELOW else cap * MICRO)

    def _energy(self, leader: int) -> float:
        if leader in self._refused:
            raise Missing("implausible")
        answer = self._call("amdsmi_get_energy_count", leader)
        # Before ROCm 6.4 it is called power, too.
        count = answer["energy_accumulator"] if "energy_accumulator" in answer else answer["power"]
        return self._energy_counts[leader].add(float(count)) * float(answer["counter_resolution"]) * MICRO

    def _of_package(self, leader: int, name: str) -> float | None:
        """Read what a whole package shows, or None."""
        reading = self._read_one(leader, name)
        return None if isinstance(reading, str) else reading * len(self._packages[leader].members)

    def _degrees(self, gpu: int, field: str) -> float:
        degrees = self._told(gpu, field)
        if degrees == 0:
            raise Missing("not_supported")
        return degrees

    def _temperature(self, gpu: int) -> float:
        try:
            return self._degrees(gpu, "temperature_edge")
        except Missing:
            return self._degrees(gpu, "temperature_hotspot")

    def _memory_temperature(self, gpu: int) -> float:
        try:
            return self._degrees(gpu, "temperature_mem")
        except Missing:
            return max(self._all_told(gpu, "temperature_hbm"))

    def _margin(self, gpu: int) -> float:
        """Return the distance to the nearest temperature at which the driver slows the GPU down."""
        if gpu not in self._thresholds:
            self._thresholds[gpu] = self._slowdown_thresholds(gpu)
        now = {"HOTSPOT": self._degrees(gpu, "temperature_hotspot"), "VRAM": self._memory_temperature(gpu)}
        margins = [limit - now[sensor] for sensor, limit in self._thresholds[gpu].items()]
        if not margins:
            raise Missing("not_supported")
        return min(margins)

    def _slowdown_thresholds(self, gpu: int) -> dict[str, float]:
        """Return the critical temperatures, which amd-smi shows as those of slowdown."""
        found = {}
        for sensor in ("HOTSPOT", "VRAM"):
            with contextlib.suppress(self._smi.AmdSmiException, AttributeError):
                kind = self._smi.AmdSmiTemperatureType[sensor]
                degrees = self._call("amdsmi_get_temp_metric", gpu, kind, self._smi.AmdSmiTemperatureMetric.CRITICAL)
                if degrees > 0:
                    found[sensor] = degrees if degrees < DEGREES_BELOW else degrees / KILO
        return found

    def _clock(self, gpu: int) -> float:
        """Return the mean clock of the chiplets."""
        clocks = self._all_told(gpu, "current_gfxclks") or [self._told(gpu, "current_gfxclk")]
        return sum(clocks) / len(clocks) * MEGA

    def _percent(self, gpu: int, field: str) -> float:
        percent = self._told(gpu, field)
        if percent > 100:
            raise Missing("not_supported")
        return percent / 100

    def _link_bytes(self, gpu: int, field: str) -> float:
        """Return a device's share of the bytes over all xGMI links."""
        counts = self._all_told(gpu, field)
        if not counts:
            raise Missing("not_supported")
        return sum(counts) * KIB / len(self._boards[gpu].members)

    def _memory_used(self, gpu: int) -> float:
        return float(self._call("amdsmi_get_gpu_memory_usage", gpu, self._smi.AmdSmiMemoryType.VRAM))

    def _limits(self, gpu: int) -> float:
        try:
            return self._residency(gpu).limits()
        except Missing:
            return self._throttle_bits(gpu)

    def _throttle_bits(self, gpu: int) -> float:
        """Return the causes that MI200 shows; of older tables only that there is one."""
        try:
            return limits_from_bits(int(self._told(gpu, "indep_throttle_status")))
        except Missing:
            return limits_from_bits(1 << 63 if self._told(gpu, "throttle_status") else 0)

    def _limited(self, gpu: int, limit: str) -> float:
        return self._residency(gpu).limited_s[limit]

    def _residency(self, gpu: int) -> Residency:
        """Return the residencies of a GPU, brought up to now."""
        counts = {TICKS: self._told(gpu, TICKS)}
        for name in (name for names in RESIDENCIES.values() for name in names):
            with contextlib.suppress(Missing):
                counts[name] = self._told(gpu, name)
        residency = self._residencies[gpu]
        residency.add(counts, self._tables[self._boards[gpu].leader].read_s)
        return residency


def _said(error: Any) -> str:
    """Return an error of the library in one line."""
    return " ".join(str(error).split())
