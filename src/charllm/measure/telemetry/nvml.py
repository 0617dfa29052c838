"""NVIDIA GPUs through NVML (nvidia-ml-py), each quantity tried when the source is opened."""

import math
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any

from charllm.gpu.limits import LIMITS
from charllm.measure.quantities import QUANTITIES
from charllm.measure.telemetry.source import Capability, GpuIdentity, Reading, SourceFacts, TelemetryError
from charllm.units import GIGA, KIB, KILO, MEGA

ALL_LINKS = 0xFFFFFFFF
"""Scope that asks for the sum over all NVLinks; without it a field means link 0."""
MEMORY_SCOPE = 2
VALUE_MEMBERS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
"""NVML value type: member of the union that holds it."""

POWER_REASON, THERMAL_REASONS, BRAKE_REASONS, IDLE_REASON = 0x4, 0x20 | 0x40, 0x80 | 0x8, 0x1
"""Clock event reasons: software power cap; software and hardware thermal; power brake and other hardware slowdown."""

FIELDS: dict[str, tuple[str, int, float]] = {
    "power_instant_w": ("NVML_FI_DEV_POWER_INSTANT", 0, 1 / KILO),
    "power_average_w": ("NVML_FI_DEV_POWER_AVERAGE", 0, 1 / KILO),
    "memory_power_w": ("NVML_FI_DEV_POWER_AVERAGE", MEMORY_SCOPE, 1 / KILO),
    "memory_temperature_c": ("NVML_FI_DEV_MEMORY_TEMP", 0, 1.0),
    "pcie_sent_bytes": ("NVML_FI_DEV_PCIE_COUNT_TX_BYTES", 0, 1.0),
    "pcie_received_bytes": ("NVML_FI_DEV_PCIE_COUNT_RX_BYTES", 0, 1.0),
    "link_sent_bytes": ("NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX", ALL_LINKS, KIB),
    "link_received_bytes": ("NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX", ALL_LINKS, KIB),
}
"""Quantity read as a field: the field's name in the binding, its scope, and the factor to SI."""

VIOLATIONS = {"power_limited_s": 0, "thermally_limited_s": 1, "board_limited_s": 3}
GPM_METRICS = {"sm_active_fraction": 2, "tensor_active_fraction": 5, "dram_active_fraction": 10}

REASON_OF_ERROR = {
    "NVML_ERROR_NOT_SUPPORTED": "not_supported",
    "NVML_ERROR_INVALID_ARGUMENT": "not_supported",
    "NVML_ERROR_FUNCTION_NOT_FOUND": "not_supported",
    "NVML_ERROR_ARGUMENT_VERSION_MISMATCH": "not_supported",
    "NVML_ERROR_NO_PERMISSION": "no_permission",
    "NVML_ERROR_DRIVER_NOT_LOADED": "no_driver",
    "NVML_ERROR_UNINITIALIZED": "no_driver",
    "NVML_ERROR_GPU_IS_LOST": "lost",
    "NVML_ERROR_RESET_REQUIRED": "lost",
}
"""NVML's errors in words that hold for every vendor; any other is an error."""


def open_nvml(binding: Any = None) -> "Nvml":
    """Load the driver's library and look at every GPU; `binding` stands in for pynvml in tests."""
    nvml = load_binding() if binding is None else binding
    try:
        nvml.nvmlInit()
        return Nvml(nvml)
    except nvml.NVMLError as error:
        raise TelemetryError(f"no usable NVIDIA driver ({error})") from None


def load_binding() -> Any:
    """Return pynvml."""
    try:
        import pynvml
    except ImportError:
        raise TelemetryError("pynvml is not installed: pip install nvidia-ml-py") from None
    return pynvml


class Nvml:
    """NVML, initialised; reads by handle and turns every error into a reason."""

    def __init__(self, binding: Any) -> None:
        self._nvml = binding
        self._reasons = {
            getattr(binding, name): reason for name, reason in REASON_OF_ERROR.items() if hasattr(binding, name)
        }
        self._unreachable: dict[int, str] = {}
        self._handles = [self._reach(index) for index in range(binding.nvmlDeviceGetCount())]
        self._field_ids = {name: getattr(binding, FIELDS[name][0], None) for name in FIELDS}
        self._gpm: dict[int, _Gpm] = {}
        self._fault_counts: dict[int, _FaultCount] = {}
        self._readers: dict[str, Callable[[int], Reading]] = {
            "energy_j": self._energy,
            "temperature_c": self._temperature,
            "clock_hz": lambda gpu: self._clock(gpu, "NVML_CLOCK_SM"),
            "memory_clock_hz": lambda gpu: self._clock(gpu, "NVML_CLOCK_MEM"),
            "limits": self._limits,
            "margin_k": self._margin,
            "utilization_fraction": lambda gpu: self._call("nvmlDeviceGetUtilizationRates", gpu).gpu / 100,
            "memory_utilization_fraction": lambda gpu: self._call("nvmlDeviceGetUtilizationRates", gpu).memory / 100,
            "memory_used_bytes": lambda gpu: float(self._call("nvmlDeviceGetMemoryInfo", gpu).used),
            "power_limit_w": lambda gpu: self._call("nvmlDeviceGetEnforcedPowerLimit", gpu) / KILO,
            "ecc_errors": self._ecc_errors,
            "faults": self._faults,
            **{name: self._violation_reader(policy) for name, policy in VIOLATIONS.items()},
            **{name: self._gpm_reader(metric) for name, metric in GPM_METRICS.items()},
        }
        self.facts = self._probe()

    def read(self, gpu: int, quantities: tuple[str, ...]) -> list[Reading]:
        """Read quantities of one GPU: fields in one call, the rest one by one."""
        if gpu in self._unreachable:
            return [self._unreachable[gpu]] * len(quantities)
        asked_fields = [name for name in quantities if name in FIELDS and self._field_ids[name] is not None]
        fields = self._read_fields(gpu, asked_fields)
        return [fields[name] if name in fields else self._read_one(gpu, name) for name in quantities]

    def close(self) -> None:
        """Let go of the driver."""
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError:
            # A driver that is already gone has nothing left to let go of.
            return

    def _probe(self) -> SourceFacts:
        """Try every quantity on every GPU and keep what it cost."""
        gpus = tuple(self._identify(index) for index in range(len(self._handles)))
        capabilities = {identity.uuid: self._try_all(index) for index, identity in enumerate(gpus)}
        details = {
            "driver": _text(self._attempt("nvmlSystemGetDriverVersion")) or "unknown",
            "nvml": _text(self._attempt("nvmlSystemGetNVMLVersion")) or "unknown",
            "binding": _binding_version(),
        }
        return SourceFacts("nvml", gpus, capabilities, details)

    def _reach(self, index: int) -> Any:
        """Return a GPU's handle; one that is lost or forbidden is kept, with the reason."""
        try:
            return self._nvml.nvmlDeviceGetHandleByIndex(index)
        except self._nvml.NVMLError as error:
            self._unreachable[index] = self._reason(error)
            return None

    def _identify(self, index: int) -> GpuIdentity:
        """Name a GPU; where the driver does not, its number stands for it."""
        if index in self._unreachable:
            return GpuIdentity(f"gpu-{index}", "unknown", index)
        handle = self._handles[index]
        uuid = _text(self._attempt("nvmlDeviceGetUUID", handle)) or f"gpu-{index}"
        name = _text(self._attempt("nvmlDeviceGetName", handle)) or "unknown"
        pci = self._attempt("nvmlDeviceGetPciInfo", handle)
        return GpuIdentity(uuid, name, index, _text(getattr(pci, "busId", "")))

    def _try_all(self, gpu: int) -> dict[str, Capability]:
        found = {}
        for name in QUANTITIES:
            self.read(gpu, (name,))  # The first call of a kind is slow and says nothing about the next.
            start = time.perf_counter()
            (reading,) = self.read(gpu, (name,))
            call_s = time.perf_counter() - start
            missing = isinstance(reading, str)
            found[name] = Capability(not missing, str(reading) if missing else "", call_s)
        return found

    def _attempt(self, name: str, *arguments: Any) -> Any:
        """Call a function that may fail or that an old binding may lack: None then."""
        try:
            return getattr(self._nvml, name)(*arguments)
        except (self._nvml.NVMLError, AttributeError):
            return None

    def _call(self, name: str, gpu: int, *arguments: Any) -> Any:
        return getattr(self._nvml, name)(self._handles[gpu], *arguments)

    def _read_one(self, gpu: int, name: str) -> Reading:
        reader = self._readers.get(name)
        if reader is None:
            return "not_supported"
        try:
            return _checked(reader(gpu))
        except self._nvml.NVMLError as error:
            return self._reason(error)
        except AttributeError:
            # The binding is older than the call.
            return "not_supported"

    def _read_fields(self, gpu: int, names: list[str]) -> dict[str, Reading]:
        """Read fields in one call, honouring each one's own return code and type of value."""
        if not names:
            return {}
        asked = [(self._field_ids[name], FIELDS[name][1]) for name in names]
        try:
            values = self._nvml.nvmlDeviceGetFieldValues(self._handles[gpu], asked)
        except self._nvml.NVMLError as error:
            return dict.fromkeys(names, self._reason(error))
        except AttributeError:
            return dict.fromkeys(names, "not_supported")
        return {name: self._field(value, FIELDS[name][2]) for name, value in zip(names, values, strict=True)}

    def _field(self, value: Any, factor: float) -> Reading:
        if value.nvmlReturn != self._nvml.NVML_SUCCESS:
            return self._reason(self._nvml.NVMLError(value.nvmlReturn))
        member = VALUE_MEMBERS.get(value.valueType)
        return "error" if member is None else _checked(getattr(value.value, member) * factor)

    def _reason(self, error: Any) -> str:
        """Name an NVML error in words that hold for every vendor."""
        return self._reasons.get(getattr(error, "value", None), "error")

    def _energy(self, gpu: int) -> Reading:
        return float(self._call("nvmlDeviceGetTotalEnergyConsumption", gpu) / KILO)

    def _temperature(self, gpu: int) -> Reading:
        return float(self._call("nvmlDeviceGetTemperature", gpu, self._nvml.NVML_TEMPERATURE_GPU))

    def _clock(self, gpu: int, kind: str) -> Reading:
        return float(self._call("nvmlDeviceGetClockInfo", gpu, getattr(self._nvml, kind)) * MEGA)

    def _margin(self, gpu: int) -> Reading:
        margin = self._call("nvmlDeviceGetMarginTemperature", gpu)
        return float(getattr(margin, "marginTemperature", margin))

    def _limits(self, gpu: int) -> Reading:
        """Fold NVML's clock event reasons into LIMITS."""
        return fold_reasons(int(self._call("nvmlDeviceGetCurrentClocksEventReasons", gpu)))

    def _ecc_errors(self, gpu: int) -> Reading:
        nvml = self._nvml
        return float(
            self._call(
                "nvmlDeviceGetTotalEccErrors", gpu, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            )
        )

    def _faults(self, gpu: int) -> Reading:
        if gpu not in self._fault_counts:
            self._fault_counts[gpu] = _FaultCount(self._nvml, self._handles[gpu])
        return self._fault_counts[gpu].count()

    def _violation_reader(self, policy: int) -> Callable[[int], Reading]:
        return lambda gpu: self._call("nvmlDeviceGetViolationStatus", gpu, policy).violationTime / GIGA

    def _gpm_reader(self, metric: int) -> Callable[[int], Reading]:
        def read(gpu: int) -> Reading:
            if gpu not in self._gpm:
                self._gpm[gpu] = _Gpm(self._nvml, self._handles[gpu])
            return self._gpm[gpu].fraction(metric)

        return read


class _Gpm:
    """Hopper's activity metrics: shares of cycles between two samples of the driver, 0.1 s apart at least."""

    INTERVAL_S = 0.1

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        if not nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
            raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
        self._samples = [nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()]
        self._taken_s: float | None = None
        self._percents: dict[int, tuple[int, float]] = {}
        """Metric: its own return code, and its value."""

    def fraction(self, metric: int) -> Reading:
        """Return a metric over the time since the last sample, taking a new one when that is long enough ago."""
        if self._taken_s is None:
            self._nvml.nvmlGpmSampleGet(self._handle, self._samples[0])
            self._taken_s = time.monotonic()
        age_s = time.monotonic() - self._taken_s
        if not self._percents:
            time.sleep(max(0.0, self.INTERVAL_S - age_s))
        if not self._percents or age_s >= self.INTERVAL_S:
            self._advance()
        code, percent = self._percents[metric]
        if code != self._nvml.NVML_SUCCESS:
            raise self._nvml.NVMLError(code)
        return percent / 100

    def _advance(self) -> None:
        nvml = self._nvml
        nvml.nvmlGpmSampleGet(self._handle, self._samples[1])
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        request.sample1, request.sample2 = self._samples
        request.numMetrics = len(GPM_METRICS)
        for place, metric in enumerate(GPM_METRICS.values()):
            request.metrics[place].metricId = metric
        nvml.nvmlGpmMetricsGet(request)
        filled = list(request.metrics)[: len(GPM_METRICS)]
        self._percents = {
            metric: (entry.nvmlReturn, entry.value) for metric, entry in zip(GPM_METRICS.values(), filled, strict=True)
        }
        self._samples.reverse()
        self._taken_s = time.monotonic()


def fold_reasons(reasons: int) -> float:
    """Fold NVML's clock event reasons into LIMITS."""
    thermal = reasons & THERMAL_REASONS
    bits = LIMITS["idle"] if reasons & IDLE_REASON else 0
    bits |= LIMITS["power"] if reasons & POWER_REASON else 0
    bits |= LIMITS["thermal"] if thermal else 0
    # A hardware slowdown that is thermal is already counted.
    bits |= LIMITS["brake"] if reasons & 0x80 or (reasons & BRAKE_REASONS and not thermal) else 0
    known = IDLE_REASON | POWER_REASON | THERMAL_REASONS | BRAKE_REASONS
    return float(bits | (LIMITS["other"] if reasons & ~known else 0))


class _FaultCount:
    """Faults of one GPU (Xid events), counted since its events were first asked for."""

    MOST_AT_ONCE = 100
    """Events taken in one reading: a storm of them must not keep the sampler; the rest waits for the next."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self._events = nvml.nvmlEventSetCreate()
        self._registered = False
        self._faults = 0

    def count(self) -> Reading:
        """Take what the driver has reported since the last call, without waiting, and return how many in all."""
        if not self._registered:
            kind = self._nvml.nvmlEventTypeXidCriticalError
            self._nvml.nvmlDeviceRegisterEvents(self._handle, kind, self._events)
            self._registered = True
        for _ in range(self.MOST_AT_ONCE):
            try:
                self._nvml.nvmlEventSetWait_v2(self._events, 0)
            except self._nvml.NVMLError as error:
                if getattr(error, "value", None) == self._nvml.NVML_ERROR_TIMEOUT:
                    break
                raise
            self._faults += 1
        return float(self._faults)


def _checked(value: Reading) -> Reading:
    if isinstance(value, str):
        return value
    return float(value) if math.isfinite(value) else "not_finite"


def _binding_version() -> str:
    try:
        return metadata.version("nvidia-ml-py")
    except metadata.PackageNotFoundError:
        return "unknown"


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
