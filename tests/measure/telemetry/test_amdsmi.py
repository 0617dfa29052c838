"""AMD GPUs through the real amdsmi package, with only its C library replaced."""

import ctypes
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from charllm.gpu.limits import LIMITS
from charllm.measure.quantities import BEATS, QUANTITIES
from charllm.measure.telemetry import amd_energy, amd_table, amdsmi, open_source
from charllm.measure.telemetry.amdsmi import AmdSmi, open_amdsmi
from charllm.measure.telemetry.source import REASONS, Reading, TelemetryError
from tests.measure.amdsmi_stand_in import SCENARIO_VARIABLE, play, rocm, wrapper_symbols

EVERYTHING = tuple(QUANTITIES)
NEVER = {
    "board_limited_s", "memory_power_w", "pcie_sent_bytes", "pcie_received_bytes", "sm_active_fraction",
    "tensor_active_fraction", "dram_active_fraction",
}  # fmt: skip
NO_PERM, NOT_YET_IMPLEMENTED, BUSY = 10, 3, 30

Opener = Callable[..., AmdSmi]


class HandClock:
    """One clock for the GPUs and for who reads them; it moves where it is waited for, and by a little at each look."""

    def __init__(self) -> None:
        self._now_s = ctypes.c_double.in_dll(ctypes.CDLL(str(rocm() / "lib" / "libamd_smi.so")), "stand_in_clock_s")
        self._now_s.value = 1000.0

    def monotonic(self) -> float:
        self._now_s.value += 1e-5
        return self._now_s.value

    def perf_counter(self) -> float:
        return self.monotonic()

    def sleep(self, seconds_s: float) -> None:
        self._now_s.value += seconds_s

    def let_go(self) -> None:
        self._now_s.value = -1.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[HandClock]:
    by_hand = HandClock()
    for module in (amd_energy, amd_table, amdsmi):
        monkeypatch.setattr(module, "time", by_hand)
    yield by_hand
    by_hand.let_go()


@pytest.fixture
def scenario(tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the stand-in reads what it plays."""
    monkeypatch.setenv("ROCM_PATH", str(rocm()))
    monkeypatch.setenv(SCENARIO_VARIABLE, str(tmp_path / "scenario"))
    return tmp_path / "scenario"


@pytest.fixture
def opened(scenario: Path) -> Opener:
    def open_one(*failures: tuple[str, int], **settings: float | str) -> AmdSmi:
        play(scenario, *failures, **settings)
        return open_amdsmi()

    return open_one


def read_all(source: AmdSmi, gpu: int = 0) -> dict[str, Reading]:
    return dict(zip(EVERYTHING, source.read(gpu, EVERYTHING), strict=True))


def missing(readings: dict[str, Reading]) -> set[str]:
    return {name for name, value in readings.items() if isinstance(value, str)}


def number(source: AmdSmi, gpu: int, name: str) -> float:
    (reading,) = source.read(gpu, (name,))
    assert isinstance(reading, float), reading
    return reading


def test_the_stand_in_has_the_layout_of_the_wrapper(opened: Opener) -> None:
    opened()
    from amdsmi import amdsmi_wrapper

    list_layout = amdsmi_wrapper._libraries["libamd_smi.so"].stand_in_layout
    list_layout.restype = ctypes.c_char_p
    lines = [line.split() for line in list_layout().decode().splitlines()]
    assert len(lines) > 20
    for name, offset, size in lines:
        structure, _, field = name.partition(".")
        found = getattr(amdsmi_wrapper, structure)
        if field:
            place = getattr(found, field)
            assert (place.offset, place.size) == (int(offset), int(size)), name
        else:
            assert ctypes.sizeof(found) == int(size), name


def test_an_mi300x_is_read_in_si(opened: Opener) -> None:
    source = opened(model="mi300x", gpus=8, watts=400, power_share=0.25)
    readings = read_all(source, 3)
    assert missing(readings) == NEVER | {"power_average_w"}
    assert readings["power_instant_w"] == 400.0
    assert readings["temperature_c"] == readings["hotspot_c"] == 63.0
    assert readings["memory_temperature_c"] == 48.0
    assert readings["margin_k"] == 100.0 - 63.0
    assert readings["clock_hz"] == pytest.approx(1.435e9)
    assert readings["memory_clock_hz"] == pytest.approx(1.3e9)
    assert readings["utilization_fraction"] == 0.97
    assert readings["memory_utilization_fraction"] == 0.41
    assert readings["memory_used_bytes"] == 4 * 2**30
    assert readings["power_limit_w"] == pytest.approx(750.0)
    assert readings["link_sent_bytes"] == 28_000 * 1024
    assert readings["link_received_bytes"] == 56_000 * 1024
    assert readings["ecc_errors"] == 3.0
    assert readings["faults"] == 0.0


def test_an_mi250_shows_averaged_power_and_the_edge(opened: Opener) -> None:
    readings = read_all(opened(model="mi250", gpus=2, watts=360))
    assert missing(readings) == NEVER | {
        "power_instant_w", "power_limited_s", "thermally_limited_s", "link_sent_bytes", "link_received_bytes",
    }  # fmt: skip
    assert readings["temperature_c"] == 45.0
    assert readings["hotspot_c"] == 60.0
    assert readings["clock_hz"] == pytest.approx(1.5e9)


def test_power_energy_and_cap_of_a_package_are_counted_once(opened: Opener, clock: HandClock) -> None:
    source = opened(model="mi250", gpus=8, watts=480)
    assert [gpu.package for gpu in source.facts.gpus[:4]] == ["0000:c1:00.0"] * 2 + ["0000:c9:00.0"] * 2
    for name, total in (("power_average_w", 4 * 480.0), ("power_limit_w", 4 * 500.0)):
        assert sum(number(source, gpu, name) for gpu in range(8)) == pytest.approx(total)
    before = [number(source, gpu, "energy_j") for gpu in range(8)]
    clock.sleep(0.05)
    grown = sum(number(source, gpu, "energy_j") for gpu in range(8)) - sum(before)
    assert grown == pytest.approx(4 * 480.0 * 0.05, rel=0.01)
    # Temperatures and clocks are each die's own.
    assert [number(source, gpu, "temperature_c") for gpu in range(4)] == [45.0, 46.0, 47.0, 48.0]
    assert "even share" in source.facts.details["shared_power"]


def test_partitions_of_one_gpu_share_its_table(opened: Opener) -> None:
    source = opened(model="cpx", gpus=8, watts=640, shared_uuid=1)
    assert {gpu.package for gpu in source.facts.gpus} == {"0000:05:00.0"}
    assert len({gpu.uuid for gpu in source.facts.gpus}) == 8
    assert sum(number(source, gpu, "power_instant_w") for gpu in range(8)) == pytest.approx(640.0)
    assert sum(number(source, gpu, "link_sent_bytes") for gpu in range(8)) == pytest.approx(28_000 * 1024)
    assert {number(source, gpu, "temperature_c") for gpu in range(8)} == {60.0}
    assert source.facts.details["partitions"].split(",") == ["CPX/NPS1"] * 8


@pytest.mark.parametrize(
    ("bits", "limits"),
    [
        (0, []),
        (1 << 0, ["power"]),
        (1 << 7, ["power"]),
        (1 << 16, ["other"]),
        (1 << 36, ["thermal"]),
        (1 << 47, ["thermal"]),
        (1 << 57, ["other"]),
        (1 << 0 | 1 << 34, ["power", "thermal"]),
    ],
)
def test_bits_of_an_mi250_are_limits(opened: Opener, bits: int, limits: list[str]) -> None:
    source = opened(model="mi250", gpus=2, throttle=bits)
    assert number(source, 0, "limits") == sum(LIMITS[name] for name in limits)


def test_the_share_of_readings_with_a_limit_is_the_share_of_time(opened: Opener, clock: HandClock) -> None:
    source = opened(model="mi300x", gpus=1, power_share=0.3, thermal_share=0.1)
    counted, shown = number(source, 0, "power_limited_s"), []
    begun_s = clock.monotonic()
    while clock.monotonic() - begun_s < 0.4:
        shown.append(int(number(source, 0, "limits")))
        clock.sleep(0.002)
    limited_s = number(source, 0, "power_limited_s") - counted
    assert limited_s == pytest.approx(0.3 * 0.4, abs=0.03)
    for limit, share in (("power", 0.3), ("thermal", 0.1)):
        assert sum(bits & LIMITS[limit] > 0 for bits in shown) / len(shown) == pytest.approx(share, abs=0.08)


@pytest.mark.parametrize("factor", [0.0, 0.2, 6.5])
def test_an_energy_counter_that_disagrees_with_power_is_refused(opened: Opener, factor: float) -> None:
    source = opened(model="mi300x", gpus=2, energy_factor=factor)
    assert source.read(1, ("energy_j",)) == ["implausible"]
    assert re.search(r"GPU 0: the energy counter grew by \d+ W while the sensor showed 400 W",
                     source.facts.details["energy_counter"])  # fmt: skip
    assert not source.facts.capabilities[source.facts.gpus[0].uuid]["energy_j"].supported


def test_an_energy_counter_that_wraps_goes_on_growing(opened: Opener, clock: HandClock) -> None:
    # A second before its 32 bits are full, half of which the first look takes.
    start = 2**32 - 1.0 * 400 / 15.259e-6
    source = opened(model="mi300x", gpus=1, energy_bits=32, energy_start=start)
    counts = [number(source, 0, "energy_j")]
    while len(counts) < 120:
        clock.sleep(0.01)
        counts.append(number(source, 0, "energy_j"))
    steps = [after - before for before, after in itertools.pairwise(counts)]
    assert min(steps) > 0
    assert max(steps) < 400 * 0.02
    assert counts[-1] > 2**32 * 15.259e-6


def test_a_power_cap_in_watts_is_read_as_watts(opened: Opener) -> None:
    assert number(opened(power_cap_watts=1), 0, "power_limit_w") == 750.0


def test_gpus_come_in_the_order_of_hip(opened: Opener) -> None:
    source = opened(model="mi300x", gpus=4, hip_reversed=1)
    assert [gpu.number for gpu in source.facts.gpus] == [3, 2, 1, 0]
    assert source.facts.gpus[0].pci == "0000:65:00.0"
    assert number(source, 0, "temperature_c") == 63.0
    # A library that does not number them for HIP tells the kernel's order.
    older = opened(("amdsmi_get_gpu_enumeration_info", NOT_YET_IMPLEMENTED), gpus=4, hip_reversed=1)
    assert [gpu.number for gpu in older.facts.gpus] == [3, 2, 1, 0]
    assert older.facts.gpus[0].uuid == "03ff740f-0000-1000-80aa-3a1f65fce003"


@pytest.mark.parametrize(
    ("function", "quantities"),
    [
        ("amdsmi_get_energy_count", {"energy_j"}),
        ("amdsmi_get_power_cap_info", {"power_limit_w"}),
        ("amdsmi_get_gpu_memory_usage", {"memory_used_bytes"}),
        ("amdsmi_get_gpu_total_ecc_count", {"ecc_errors"}),
        ("amdsmi_get_temp_metric", {"margin_k"}),
        ("amdsmi_init_gpu_event_notification", {"faults"}),
        ("amdsmi_get_gpu_event_notification", {"faults"}),
    ],
)
@pytest.mark.parametrize(
    ("status", "reason"), [(NO_PERM, "no_permission"), (NOT_YET_IMPLEMENTED, "not_supported"), (BUSY, "error")]
)
def test_a_function_that_fails_hides_only_its_own_quantities(
    opened: Opener, function: str, quantities: set[str], status: int, reason: str
) -> None:
    readings = read_all(opened((function, status), model="mi300x", gpus=1))
    assert missing(readings) == NEVER | {"power_average_w"} | quantities
    # Thresholds that cannot be read are thresholds that are not there.
    expected = "not_supported" if quantities == {"margin_k"} else reason
    assert {readings[name] for name in quantities} == {expected}


@pytest.mark.parametrize("status", [1, 2, 10, 14, 30, 31, 34, 42, 43, 4294967295])
def test_whatever_the_table_answers_every_reading_is_a_number_or_a_reason(opened: Opener, status: int) -> None:
    source = opened(("amdsmi_get_gpu_metrics_info", status), gpus=2)
    readings = read_all(source)
    assert {"power_instant_w", "temperature_c", "clock_hz", "limits"} <= missing(readings)
    assert all(isinstance(value, float) or value in REASONS for value in readings.values())


def test_a_lost_gpu_does_not_hide_the_others(opened: Opener) -> None:
    source = opened(model="mi300x", gpus=4, lost=2)
    assert len(source.facts.gpus) == 4
    assert set(read_all(source, 2).values()) - {"not_supported"} == {"lost"}
    assert missing(read_all(source, 3)) == NEVER | {"power_average_w"}


def test_a_reset_is_a_fault_of_its_gpu(opened: Opener) -> None:
    source = opened(model="mi300x", gpus=4, fault=2)
    # Whoever asks takes the events of all GPUs.
    assert [number(source, gpu, "faults") for gpu in (3, 0, 1, 2)] == [0.0, 0.0, 0.0, 1.0]


def test_without_a_driver_the_request_is_wrong(scenario: Path) -> None:
    play(scenario, no_driver=1)
    with pytest.raises(TelemetryError, match=r"no usable AMD driver \(.*DRIVER_NOT_LOADED") as caught:
        open_amdsmi()
    assert caught.value.exit_code == 2


def test_a_machine_without_gpus_is_a_source_without_gpus(opened: Opener) -> None:
    assert opened(gpus=0).facts.gpus == ()


def test_auto_takes_amd_where_there_is_no_nvidia_driver(scenario: Path) -> None:
    play(scenario, gpus=1)
    assert open_source("auto").facts.name == "amdsmi"


def test_the_probe_keeps_versions_capabilities_and_costs(opened: Opener) -> None:
    facts = opened(model="mi300x", gpus=2).facts
    assert facts.details["driver"] == "6.14.14"
    assert facts.details["amdsmi"] == "26.0.2"
    assert facts.details["binding"][0].isdigit()
    assert facts.details["metrics_table"] == "1.8,1.8"
    for found in facts.capabilities.values():
        assert {name for name, one in found.items() if not one.supported} == NEVER | {"power_average_w"}
        assert all(one.call_s > 0 for one in found.values())


def test_a_beat_reads_the_table_once(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    source = opened(model="mi300x", gpus=1)
    table = source._tables[0]
    calls = []
    real = table._wrapper.amdsmi_get_gpu_metrics_info

    def count(*arguments: Any) -> Any:
        calls.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(table._wrapper, "amdsmi_get_gpu_metrics_info", count)
    table.forget()
    source.read(0, BEATS["fast"])
    assert len(calls) == 1


@pytest.mark.parametrize("name", ["amdsmi_get_energy_count", "amdsmi_get_gpu_total_ecc_count", "AmdSmiMemoryType"])
def test_an_older_package_lacks_only_what_it_does_not_know(
    opened: Opener, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    opened(gpus=1)
    import amdsmi

    monkeypatch.delattr(amdsmi, name)
    readings = read_all(open_amdsmi())
    assert len(missing(readings) - NEVER - {"power_average_w"}) == 1


def _message(environment: dict[str, str]) -> str:
    """Open the source in a process of its own, for the package looks for its library once; nothing goes to stdout."""
    code = "from charllm.measure.telemetry.amdsmi import open_amdsmi\nopen_amdsmi()"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.stdout == ""
    return done.stderr.splitlines()[-1]


def test_a_missing_library_is_said_in_one_line(tmp_path: Path) -> None:
    assert "libamd_smi.so was not found" in _message({"ROCM_PATH": str(tmp_path)})


def test_a_library_older_than_the_package_is_said_in_one_line() -> None:
    older = rocm(("amdsmi_get_gpu_enumeration_info",))
    assert "amdsmi_get_gpu_enumeration_info" in wrapper_symbols()
    message = _message({"ROCM_PATH": str(older)})
    assert "newer than libamd_smi.so, which has no amdsmi_get_gpu_enumeration_info" in message
