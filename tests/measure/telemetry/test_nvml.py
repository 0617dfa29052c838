"""NVML behind a stand-in binding: values in SI, errors as reasons, and never a crash or a made-up number."""

import math
import sys
import time
from typing import Any

import pynvml
import pytest

from charllm.gpu.limits import LIMITS
from charllm.measure.quantities import BEATS, QUANTITIES
from charllm.measure.telemetry import open_source
from charllm.measure.telemetry.nvml import ALL_LINKS, FIELDS, GPM_METRICS, Nvml, _Gpm, open_nvml
from charllm.measure.telemetry.source import REASONS, Reading, TelemetryError
from tests.measure.nvml_stand_in import MIG_REFUSES, StandIn
from tests.measure.replayed import recording

EVERYTHING = tuple(QUANTITIES)
NOT_IN_CAPTURE = {"link_sent_bytes", "link_received_bytes", "hotspot_c"}
ERROR_CODES = sorted({value for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_")})
NEEDED = {"nvmlInit", "nvmlShutdown", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"}
"""Functions that every binding has had from the beginning."""


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples of activity may follow each other at once, so that no reading is an old one."""
    monkeypatch.setattr(_Gpm, "INTERVAL_S", 0.0)


def read_all(source: Nvml, gpu: int = 0) -> dict[str, Reading]:
    return dict(zip(EVERYTHING, source.read(gpu, EVERYTHING), strict=True))


def opened(**faults: Any) -> tuple[StandIn, Nvml]:
    binding = StandIn()
    for name, value in faults.items():
        setattr(binding, name, value)
    return binding, open_nvml(binding)


def reasons_of(readings: dict[str, Reading]) -> dict[str, str]:
    return {name: value for name, value in readings.items() if isinstance(value, str)}


@pytest.mark.parametrize("at_s", [30.0, 40.0, 46.5, 50.0])
def test_every_quantity_of_the_capture_is_read_in_si(at_s: float) -> None:
    _, source = opened(at_s=at_s)
    readings = read_all(source)
    assert set(reasons_of(readings)) == NOT_IN_CAPTURE
    for name in set(QUANTITIES) - NOT_IN_CAPTURE - {"faults"}:
        times, values = recording().known(0, name)
        shown = values[times <= at_s][-1]
        # Fractions are whole per cent in some calls, and counters whole units in all.
        assert readings[name] == pytest.approx(shown, rel=1e-6, abs=1e-6), name
    assert readings["faults"] == 0.0


def test_readings_come_in_the_order_they_were_asked_for() -> None:
    _, source = opened()
    readings = read_all(source)
    for names in (*BEATS.values(), tuple(reversed(EVERYTHING)), ()):
        assert source.read(0, names) == [readings[name] for name in names]


def test_fields_are_read_in_one_call() -> None:
    binding, source = opened()
    binding.calls.clear()
    source.read(0, BEATS["fast"])
    assert binding.calls["nvmlDeviceGetFieldValues"] == 1


@pytest.mark.parametrize(
    ("kind", "member", "value"),
    [
        (pynvml.NVML_VALUE_TYPE_DOUBLE, "dVal", 250_500.5),
        (pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, "uiVal", 4_000_000_000),
        (pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG, "ulVal", 4_000_000_001),
        (pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, "ullVal", 2**60),
        (pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG, "sllVal", -5),
        (pynvml.NVML_VALUE_TYPE_SIGNED_INT, "siVal", -7),
        (pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT, "usVal", 65_000),
    ],
)
def test_a_field_is_read_as_the_type_it_says(kind: int, member: str, value: float) -> None:
    binding, source = opened()
    binding.fields[pynvml.NVML_FI_DEV_POWER_INSTANT] = (kind, member, value)
    assert source.read(0, ("power_instant_w",)) == [pytest.approx(value / 1e3)]


def test_a_field_of_an_unknown_type_is_an_error() -> None:
    binding, source = opened()
    binding.fields[pynvml.NVML_FI_DEV_POWER_INSTANT] = (99, "uiVal", 5)
    assert source.read(0, ("power_instant_w",)) == ["error"]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (pynvml.NVML_ERROR_NOT_SUPPORTED, "not_supported"),
        (pynvml.NVML_ERROR_INVALID_ARGUMENT, "not_supported"),
        (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, "not_supported"),
        (pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH, "not_supported"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "no_permission"),
        (pynvml.NVML_ERROR_UNINITIALIZED, "no_driver"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "no_driver"),
        (pynvml.NVML_ERROR_GPU_IS_LOST, "lost"),
        (pynvml.NVML_ERROR_RESET_REQUIRED, "lost"),
        (pynvml.NVML_ERROR_TIMEOUT, "error"),
        (pynvml.NVML_ERROR_UNKNOWN, "error"),
    ],
)
def test_an_error_is_a_reason_in_words_of_every_vendor(code: int, reason: str) -> None:
    binding, source = opened()
    binding.failures["nvmlDeviceGetTemperature"] = code
    binding.field_failures[pynvml.NVML_FI_DEV_POWER_INSTANT] = code
    binding.gpm_failures[GPM_METRICS["sm_active_fraction"]] = code
    wanted = ("temperature_c", "power_instant_w", "sm_active_fraction")
    assert source.read(0, wanted) == [reason, reason, reason]
    # What is asked for in the same call is not touched.
    assert all(isinstance(value, float) for value in source.read(0, ("power_average_w", "tensor_active_fraction")))


@pytest.mark.parametrize("code", ERROR_CODES)
def test_whatever_fails_every_reading_is_a_number_or_a_reason(code: int) -> None:
    binding, source = opened()
    for name in set(binding.functions) - {"nvmlInit"}:
        binding.failures[name] = code
    readings = read_all(source)
    # A driver that says "timeout" to the question for events says that there were none.
    expected = set(QUANTITIES) - ({"faults"} if code == pynvml.NVML_ERROR_TIMEOUT else set())
    assert set(reasons_of(readings)) == expected
    assert set(reasons_of(readings).values()) <= set(REASONS)
    source.close()


def test_a_gpu_that_is_lost_while_it_is_read_is_lost() -> None:
    binding, source = opened(gpus=2)
    assert isinstance(source.read(1, ("temperature_c",))[0], float)
    binding.lost.add(1)
    assert set(read_all(source, gpu=1).values()) - {"not_supported"} == {"lost"}
    assert set(reasons_of(read_all(source, gpu=0))) == NOT_IN_CAPTURE


def test_a_gpu_that_cannot_be_reached_does_not_hide_the_others() -> None:
    class Forbidden(StandIn):
        def __getattr__(self, name: str) -> Any:
            reach = super().__getattr__(name)
            return self.refuse_second if name == "nvmlDeviceGetHandleByIndex" else reach

        def refuse_second(self, index: int) -> Any:
            if index == 1:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)
            return super().__getattr__("nvmlDeviceGetHandleByIndex")(index)

    source = open_nvml(Forbidden(gpus=3))
    assert [identity.uuid for identity in source.facts.gpus] == ["GPU-0000", "gpu-1", "GPU-0002"]
    assert set(read_all(source, gpu=1).values()) == {"no_permission"}
    assert source.facts.capabilities["gpu-1"]["energy_j"].reason == "no_permission"
    assert isinstance(source.read(2, ("energy_j",))[0], float)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_not_finite(value: float) -> None:
    binding, source = opened()
    binding.fields[pynvml.NVML_FI_DEV_POWER_INSTANT] = (pynvml.NVML_VALUE_TYPE_DOUBLE, "dVal", value)
    binding.gpm_values[GPM_METRICS["sm_active_fraction"]] = value
    binding.answers["nvmlDeviceGetTotalEnergyConsumption"] = value
    wanted = ("power_instant_w", "sm_active_fraction", "energy_j")
    assert source.read(0, wanted) == ["not_finite"] * 3


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_DRIVER_NOT_LOADED, pynvml.NVML_ERROR_LIBRARY_NOT_FOUND])
def test_without_a_driver_there_is_no_source(code: int) -> None:
    binding = StandIn()
    binding.failures["nvmlInit"] = code
    with pytest.raises(TelemetryError, match=r"no usable NVIDIA driver \(.*(Not Loaded|Not Found)\)"):
        open_nvml(binding)


def test_a_driver_that_refuses_to_count_is_no_source() -> None:
    binding = StandIn()
    binding.failures["nvmlDeviceGetCount"] = pynvml.NVML_ERROR_NO_PERMISSION
    with pytest.raises(TelemetryError, match="Insufficient Permissions"):
        open_nvml(binding)


def test_without_the_binding_its_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(TelemetryError, match="pip install nvidia-ml-py"):
        open_nvml()
    assert "nvidia-ml-py" in open_source("auto").facts.details["reason"]


def test_a_gpu_cut_into_slices_says_what_it_does_not_tell() -> None:
    binding, source = opened(mig=True)
    missing = reasons_of(read_all(source))
    assert set(missing.values()) == {"not_supported"}
    assert {"energy_j", "clock_hz", "utilization_fraction", "sm_active_fraction", "faults", "limits"} <= set(missing)
    assert isinstance(source.read(0, ("memory_used_bytes",))[0], float)
    found = source.facts.capabilities["GPU-0000"]
    assert {name for name, one in found.items() if not one.supported} == set(missing)
    assert {one.reason for one in found.values() if not one.supported} == {"not_supported"}
    # Asking again and again takes no more of the driver's memory.
    before = (binding.calls["nvmlGpmSampleAlloc"], binding.calls["nvmlEventSetCreate"])
    read_all(source)
    assert before == (binding.calls["nvmlGpmSampleAlloc"], binding.calls["nvmlEventSetCreate"]) == (2, 1)


@pytest.mark.parametrize("name", [name for name in StandIn().functions if name not in NEEDED])
def test_a_binding_without_a_function_is_an_old_binding(name: str) -> None:
    _, source = opened(removed={name})
    missing = reasons_of(read_all(source))
    assert set(missing.values()) == {"not_supported"}
    assert source.facts.gpus[0].number == 0
    assert (set(missing) == NOT_IN_CAPTURE) == (name.startswith("nvmlSystem") or name in IDENTITY)


IDENTITY = ("nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetPciInfo")


def test_a_field_the_binding_does_not_know_is_not_supported() -> None:
    _, source = opened(removed={"NVML_FI_DEV_POWER_INSTANT"})
    assert source.read(0, ("power_instant_w",)) == ["not_supported"]
    assert isinstance(source.read(0, ("power_average_w",))[0], float)


def test_links_are_asked_for_all_together_and_counted_in_bytes() -> None:
    binding, source = opened()
    sent, received = pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX
    assert {scope for field, scope in binding.asked_fields if field in (sent, received)} == {ALL_LINKS}
    binding.fields[sent] = (pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, "ullVal", 3)
    assert source.read(0, ("link_sent_bytes", "link_received_bytes")) == [3 * 1024, "not_supported"]


def test_power_of_the_memory_is_asked_for_in_its_own_scope() -> None:
    binding, source = opened()
    binding.asked_fields.clear()
    source.read(0, ("power_average_w", "memory_power_w"))
    power = pynvml.NVML_FI_DEV_POWER_AVERAGE
    assert binding.asked_fields == [(power, 0), (power, FIELDS["memory_power_w"][1])]


@pytest.mark.parametrize(
    ("reasons", "bits"),
    [
        (0x0, 0),
        (0x1, LIMITS["idle"]),
        (0x4, LIMITS["power"]),
        (0x20, LIMITS["thermal"]),
        (0x40, LIMITS["thermal"]),
        (0x80, LIMITS["brake"]),
        (0x8, LIMITS["brake"]),
        (0x8 | 0x40, LIMITS["thermal"]),
        (0x8 | 0x80 | 0x40, LIMITS["thermal"] | LIMITS["brake"]),
        (0x2, LIMITS["other"]),
        (0x10 | 0x4, LIMITS["other"] | LIMITS["power"]),
        (1 << 40, LIMITS["other"]),
    ],
)
def test_clock_reasons_become_limits(reasons: int, bits: int) -> None:
    binding, source = opened()
    binding.answers["nvmlDeviceGetCurrentClocksEventReasons"] = reasons
    assert source.read(0, ("limits",)) == [float(bits)]


def test_activity_is_of_the_time_between_two_samples_that_are_far_enough_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    binding, source = opened()
    monkeypatch.setattr(_Gpm, "INTERVAL_S", 60.0)
    before = source.read(0, tuple(GPM_METRICS))
    taken = binding.calls["nvmlGpmSampleGet"]
    binding.gpm_values = dict.fromkeys(GPM_METRICS.values(), 50.0)
    assert source.read(0, tuple(GPM_METRICS)) == before
    assert binding.calls["nvmlGpmSampleGet"] == taken
    monkeypatch.setattr(_Gpm, "INTERVAL_S", 0.0)
    assert source.read(0, tuple(GPM_METRICS)) == [0.5, 0.5, 0.5] != before
    assert binding.calls["nvmlGpmSampleGet"] > taken


def test_the_first_activity_waits_for_its_second_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Gpm, "INTERVAL_S", 0.1)
    start_s = time.monotonic()
    opened()
    assert 0.1 <= time.monotonic() - start_s < 5.0


def test_a_gpu_without_activity_metrics_says_so() -> None:
    binding = StandIn()
    binding.answers["nvmlGpmQueryDeviceSupport"] = pynvml.c_nvmlGpmSupport_t(isSupportedDevice=0)
    assert open_nvml(binding).read(0, tuple(GPM_METRICS)) == ["not_supported"] * 3
    assert binding.calls["nvmlGpmSampleAlloc"] == 0


def test_faults_are_counted_for_the_gpu_that_has_them() -> None:
    binding, source = opened(gpus=2)
    assert [source.read(gpu, ("faults",)) for gpu in (0, 1)] == [[0.0], [0.0]]
    binding.pending[1] = 2
    assert [source.read(gpu, ("faults",)) for gpu in (0, 1)] == [[0.0], [2.0]]
    binding.pending[1] = 1
    assert source.read(1, ("faults",)) == [3.0]
    assert source.read(1, ("faults",)) == [3.0]
    assert binding.calls["nvmlEventSetCreate"] == 2


def test_a_storm_of_faults_does_not_keep_the_sampler() -> None:
    binding, source = opened()
    binding.pending[0] = 250
    counts = [source.read(0, ("faults",))[0] for _ in range(4)]
    assert counts == [100.0, 200.0, 250.0, 250.0]


@pytest.mark.parametrize("name", ["nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2"])
@pytest.mark.parametrize(
    ("code", "reason"),
    [(pynvml.NVML_ERROR_NOT_SUPPORTED, "not_supported"), (pynvml.NVML_ERROR_NO_PERMISSION, "no_permission")],
)
def test_faults_that_cannot_be_asked_for_are_missing_and_not_nought(name: str, code: int, reason: str) -> None:
    _, source = opened(failures={name: code})
    assert source.read(0, ("faults",)) == [reason]
    assert source.facts.capabilities["GPU-0000"]["faults"].reason == reason


def test_the_probe_keeps_what_each_gpu_can_tell_and_what_it_cost() -> None:
    _, source = opened(gpus=2)
    facts = source.facts
    assert facts.name == "nvml"
    assert facts.details["driver"] == "580.159.04"
    assert facts.details["binding"][0].isdigit()
    assert [(one.uuid, one.name, one.number, one.pci) for one in facts.gpus] == [
        ("GPU-0000", "NVIDIA H200", 0, "00000000:00:00.0"), ("GPU-0001", "NVIDIA H200", 1, "00000000:01:00.0"),
    ]  # fmt: skip
    for found in facts.capabilities.values():
        assert set(found) == set(QUANTITIES)
        assert {name for name, one in found.items() if not one.supported} == NOT_IN_CAPTURE
        assert all(one.call_s > 0 for one in found.values())


def test_a_machine_without_gpus_is_a_source_without_gpus() -> None:
    _, source = opened(gpus=0)
    assert (source.facts.gpus, source.facts.capabilities) == ((), {})


def test_a_driver_that_is_gone_can_still_be_closed() -> None:
    binding, source = opened()
    source.close()
    assert binding.calls["nvmlShutdown"] == 1
    binding.failures["nvmlShutdown"] = pynvml.NVML_ERROR_UNINITIALIZED
    source.close()


def test_a_quantity_that_nvml_does_not_have_is_not_supported() -> None:
    _, source = opened()
    assert source.read(0, ("humidity_fraction",)) == ["not_supported"]


def test_the_stand_in_refuses_on_slices_only_what_it_has() -> None:
    assert set(MIG_REFUSES) <= set(StandIn().functions)
    assert all(hasattr(pynvml, name) for name in StandIn().functions)
