"""A stand-in for pynvml whose functions answer from the real capture, and into which faults can be injected.

Constants, errors and structures are pynvml's own, so that codes, unions and value types are the real ones.
"""

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pynvml

from charllm.gpu.limits import LIMITS
from charllm.measure.telemetry.nvml import FIELDS, GPM_METRICS, VIOLATIONS
from charllm.units import GIGA, KILO, MEGA
from tests.measure.replayed import STEPS_S, recording

MIG_REFUSES = (
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetMarginTemperature",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetViolationStatus",
    "nvmlDeviceGetTotalEccErrors",
    "nvmlGpmSampleGet",
    "nvmlDeviceRegisterEvents",
)
"""What a GPU cut into slices does not answer as a whole."""
REASON_BITS = {"idle": 0x1, "power": 0x4, "thermal": 0x20, "brake": 0x80}


class Handle(NamedTuple):
    """What NVML hands out for a GPU."""

    place: int


class EventSet(NamedTuple):
    """What NVML hands out for events."""

    number: int


class StandIn:
    """NVML on a machine with some GPUs, each showing what the capture shows at `at_s`."""

    def __init__(self, gpus: int = 1, at_s: float = STEPS_S[1] - 1.0) -> None:
        self.gpus, self.at_s = gpus, at_s
        self.mig = False
        self.failures: dict[str, int] = {}
        """Function: the code it fails with."""
        self.answers: dict[str, Any] = {}
        """Function: what it answers instead."""
        self.removed: set[str] = set()
        """Functions and constants that this binding is too old for."""
        self.lost: set[int] = set()
        self.fields: dict[int, tuple[int, str, Any]] = {}
        """Field: value type, member and value that it answers instead."""
        self.field_failures: dict[int, int] = {}
        self.gpm_failures: dict[int, int] = {}
        self.gpm_values: dict[int, float] = {}
        self.pending: Counter[int] = Counter()
        """GPU: faults that nobody has taken yet."""
        self.calls: Counter[str] = Counter()
        self.asked_fields: list[tuple[int, int]] = []
        self._watched: dict[EventSet, int] = {}
        self._functions: dict[str, Callable[..., Any]] = {
            "nvmlInit": lambda: None,
            "nvmlShutdown": lambda: None,
            "nvmlSystemGetDriverVersion": lambda: b"580.159.04",
            "nvmlSystemGetNVMLVersion": lambda: "13.580.159.04",
            "nvmlDeviceGetCount": lambda: self.gpus,
            "nvmlDeviceGetHandleByIndex": Handle,
            "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle.place:04d}".encode(),
            "nvmlDeviceGetName": lambda _: "NVIDIA H200",
            "nvmlDeviceGetPciInfo": lambda handle: SimpleNamespace(busId=f"00000000:0{handle.place}:00.0".encode()),
            "nvmlDeviceGetTotalEnergyConsumption": lambda _: round(self._shown("energy_j") * KILO),
            "nvmlDeviceGetTemperature": lambda _, _kind: int(self._shown("temperature_c")),
            "nvmlDeviceGetClockInfo": self._clock,
            "nvmlDeviceGetCurrentClocksEventReasons": lambda _: self._event_reasons(),
            "nvmlDeviceGetMarginTemperature": lambda _: int(self._shown("margin_k")),
            "nvmlDeviceGetUtilizationRates": self._utilization,
            "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(used=int(self._shown("memory_used_bytes"))),
            "nvmlDeviceGetEnforcedPowerLimit": lambda _: round(self._shown("power_limit_w") * KILO),
            "nvmlDeviceGetTotalEccErrors": lambda _, _kind, _counter: int(self._shown("ecc_errors")),
            "nvmlDeviceGetViolationStatus": self._violation,
            "nvmlDeviceGetFieldValues": self._field_values,
            "nvmlGpmQueryDeviceSupport": lambda _: SimpleNamespace(isSupportedDevice=1),
            "nvmlGpmSampleAlloc": lambda: pynvml.c_nvmlGpmSample_t(),
            "nvmlGpmSampleGet": lambda _, sample: sample,
            "nvmlGpmMetricsGet": self._gpm_metrics,
            "nvmlEventSetCreate": lambda: EventSet(self.calls["nvmlEventSetCreate"]),
            "nvmlDeviceRegisterEvents": self._register,
            "nvmlEventSetWait_v2": self._wait,
        }

    @property
    def functions(self) -> tuple[str, ...]:
        return tuple(self._functions)

    def __getattr__(self, name: str) -> Any:
        value = getattr(pynvml, name)
        if name in self.removed or (name.startswith("nvml") and callable(value) and name not in self._functions):
            raise AttributeError(f"the binding has no {name}")
        return (lambda *arguments: self._answer(name, arguments)) if name in self._functions else value

    def _answer(self, name: str, arguments: tuple[Any, ...]) -> Any:
        self.calls[name] += 1
        if name in self.failures:
            raise pynvml.NVMLError(self.failures[name])
        if any(isinstance(one, Handle) and one.place in self.lost for one in arguments):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        if self.mig and name in MIG_REFUSES:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return self.answers[name] if name in self.answers else self._functions[name](*arguments)

    def _shown(self, quantity: str) -> float:
        """The capture's last reading before `at_s`; what it does not have is not supported."""
        times, values = recording().known(0, quantity)
        if not len(times):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return float(values[max(0, int(np.searchsorted(times, self.at_s, side="right")) - 1)])

    def _clock(self, _handle: Handle, kind: int) -> int:
        names = {pynvml.NVML_CLOCK_SM: "clock_hz", pynvml.NVML_CLOCK_MEM: "memory_clock_hz"}
        return round(self._shown(names[kind]) / MEGA)

    def _event_reasons(self) -> int:
        bits = int(self._shown("limits"))
        return sum(reason for name, reason in REASON_BITS.items() if bits & LIMITS[name])

    def _utilization(self, _handle: Handle) -> SimpleNamespace:
        names = {"gpu": "utilization_fraction", "memory": "memory_utilization_fraction"}
        return SimpleNamespace(**{key: round(self._shown(name) * 100) for key, name in names.items()})

    def _violation(self, _handle: Handle, policy: int) -> SimpleNamespace:
        (name,) = (name for name, number in VIOLATIONS.items() if number == policy)
        return SimpleNamespace(violationTime=round(self._shown(name) * GIGA))

    def _field_values(self, _handle: Handle, asked: list[tuple[int, int]]) -> list[Any]:
        self.asked_fields += asked
        return [self._field_value(field, scope) for field, scope in asked]

    def _field_value(self, field: int, scope: int) -> Any:
        found = pynvml.c_nvmlFieldValue_t(fieldId=field, scopeId=scope)
        found.nvmlReturn = self.field_failures.get(field, pynvml.NVML_SUCCESS)
        if field in self.fields:
            found.valueType, member, value = self.fields[field]
            setattr(found.value, member, value)
            return found
        (name,) = (n for n, (word, s, _) in FIELDS.items() if (getattr(pynvml, word), s) == (field, scope))
        try:
            value = self._shown(name) / FIELDS[name][2]
        except pynvml.NVMLError as error:
            found.nvmlReturn = error.value
            return found
        found.valueType, found.value.ullVal = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, round(value)
        return found

    def _gpm_metrics(self, request: Any) -> Any:
        names = {metric: name for name, metric in GPM_METRICS.items()}
        for entry in request.metrics[: request.numMetrics]:
            entry.nvmlReturn = self.gpm_failures.get(entry.metricId, pynvml.NVML_SUCCESS)
            entry.value = self.gpm_values.get(entry.metricId, self._shown(names[entry.metricId]) * 100)
        return request

    def _register(self, handle: Handle, kinds: int, events: EventSet) -> None:
        assert kinds == pynvml.nvmlEventTypeXidCriticalError
        assert events not in self._watched
        self._watched[events] = handle.place

    def _wait(self, events: EventSet, timeout_ms: int) -> SimpleNamespace:
        assert timeout_ms == 0, "the sampler must not wait"
        gpu = self._watched[events]
        if gpu in self.lost:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        if not self.pending[gpu]:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        self.pending[gpu] -= 1
        return SimpleNamespace(device=Handle(gpu), eventType=pynvml.nvmlEventTypeXidCriticalError, eventData=79)
