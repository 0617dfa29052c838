"""Every source reads small trees of files in the kernel's formats."""

import os
import time
from contextlib import closing
from pathlib import Path

import pytest

from charllm.errors import SpecError
from charllm.measure.host import SOURCES, find_host
from charllm.measure.host.record import HostWriter, read_host
from charllm.measure.host.source import HostSource, Roots
from charllm.measure.telemetry.source import REASONS, Reading
from tests.measure.host.machine import MEMINFO, STAT, add_port, add_rapl, build, write

GIB = 2**30


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    return build(tmp_path)


def read(source: HostSource) -> dict[str, Reading]:
    return dict(zip(source.columns, source.read(), strict=True))


def test_rapl_is_energy_of_packages_and_memory_once(roots: Roots) -> None:
    assert read(SOURCES["rapl"](roots)) == {
        "cpu_energy_j:0": 1.0, "memory_energy_j:0": 0.5, "cpu_energy_j:1": 1.0, "memory_energy_j:1": 0.5,
    }  # fmt: skip


def test_rapl_goes_on_over_the_end_of_its_range(roots: Roots) -> None:
    add_rapl(roots, "intel-rapl:0", "package-0", 262_143_000_000)
    source = SOURCES["rapl"](roots)
    before = read(source)["cpu_energy_j:0"]
    add_rapl(roots, "intel-rapl:0", "package-0", 1_000_000)
    after = read(source)["cpu_energy_j:0"]
    assert isinstance(before, float)
    assert isinstance(after, float)
    assert after - before == pytest.approx(1.32885)


def test_rapl_of_root_alone_is_no_permission(roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def refuse(path: Path, *rest: int) -> int:
        if str(path).endswith("energy_uj"):
            raise PermissionError(13, "Permission denied")
        return real(path, *rest)

    monkeypatch.setattr("charllm.measure.host.source.os.open", refuse)
    assert set(read(SOURCES["rapl"](roots)).values()) == {"no_permission"}


def test_cpu_load_is_the_busy_share_since_the_last_reading(roots: Roots) -> None:
    source = SOURCES["cpu"](roots)
    assert source.facts == {"cpus": 2, "cpu_model": "AMD EPYC 9654 96-Core Processor"}
    # 300 ticks pass: 75 of user time, 200 idle, 25 waiting for a disk.
    write(roots.proc / "stat", STAT.replace("cpu  1000 100 400 8000 500", "cpu  1075 100 400 8200 525"))
    readings = read(source)
    assert readings["cpu_load_fraction"] == pytest.approx(0.25)
    assert readings["runnable_tasks"] == 3.0
    assert readings["cpu_clock_hz"] == pytest.approx(2.400001e9)
    assert readings["cpu_pressure_s"] == readings["io_pressure_s"] == 2.5
    assert read(source)["cpu_load_fraction"] == "stale"


def test_memory_in_use_leaves_out_what_is_available(roots: Roots) -> None:
    source = SOURCES["memory"](roots)
    assert source.facts == {"memory_bytes": 264_048_092 * 1024}
    assert read(source) == {
        "memory_used_bytes": 100_000_000 * 1024, "swap_used_bytes": 1024 * 1024,
        "numa_used_bytes:0": 64_048_092 * 1024, "numa_foreign_pages:0": 12.0,
    }  # fmt: skip
    write(roots.proc / "meminfo", MEMINFO.replace("MemAvailable", "Something"))
    assert read(source)["memory_used_bytes"] == "not_supported"


def test_rdma_counts_words_of_four_bytes(roots: Roots) -> None:
    source = SOURCES["rdma"](roots)
    readings = read(source)
    assert readings["nic_sent_bytes:mlx5_0/1"] == 4000.0
    assert readings["nic_received_bytes:mlx5_1/1"] == 12_000.0
    assert readings["nic_errors:mlx5_0/1"] == 2.0
    assert readings["nic_retries:mlx5_0/1"] == 7.0
    assert readings["nic_link_downs:mlx5_0/1"] == 1.0
    assert readings["nic_up:mlx5_0/1"] == 1.0
    assert source.facts["rdma"]["mlx5_0/1"] == {
        "rate_bytes_per_s": 25e9, "state": "ACTIVE", "link": "InfiniBand",
    }  # fmt: skip


def test_a_port_that_cannot_send_is_seen(roots: Roots) -> None:
    write(roots.sys / "class/infiniband/mlx5_0/ports/1/counters/port_xmit_wait", "125")
    readings = read(SOURCES["rdma"](roots))
    assert readings["nic_wait_ticks:mlx5_0/1"] == 125.0
    assert readings["nic_wait_ticks:mlx5_1/1"] == "not_supported"


def test_a_port_that_goes_down_is_seen(roots: Roots) -> None:
    source = SOURCES["rdma"](roots)
    write(roots.sys / "class/infiniband/mlx5_0/ports/1/state", "1: DOWN")
    assert read(source)["nic_up:mlx5_0/1"] == 0.0


def test_a_slow_port_of_32_bits_goes_on_over_its_end(roots: Roots) -> None:
    port = add_port(roots, "mlx4_0", "40 Gb/sec (4X QDR)")
    write(port / "counters" / "port_xmit_data", 2**32 - 1000)
    source = SOURCES["rdma"](roots)
    before = read(source)["nic_sent_bytes:mlx4_0/1"]
    write(port / "counters" / "port_xmit_data", 500)
    after = read(source)["nic_sent_bytes:mlx4_0/1"]
    assert isinstance(before, float)
    assert isinstance(after, float)
    assert after - before == 1500 * 4


def test_a_fast_port_of_32_bits_is_refused_once_it_goes_round(roots: Roots) -> None:
    port = add_port(roots, "mlx4_0", "100 Gb/sec (4X EDR)")
    source = SOURCES["rdma"](roots)
    assert read(source)["nic_sent_bytes:mlx4_0/1"] == 4000.0
    write(port / "counters" / "port_xmit_data", 10)
    assert read(source)["nic_sent_bytes:mlx4_0/1"] == "implausible"
    assert read(source)["nic_received_bytes:mlx4_0/1"] == 12_000.0


def test_a_counter_that_stays_at_its_end_is_refused(roots: Roots) -> None:
    port = add_port(roots, "mlx4_0", "40 Gb/sec (4X QDR)")
    write(port / "counters" / "port_xmit_data", 2**32 - 1)
    source = SOURCES["rdma"](roots)
    read(source)
    assert read(source)["nic_sent_bytes:mlx4_0/1"] == "implausible"


def test_a_wide_counter_that_is_reset_goes_on(roots: Roots) -> None:
    port = add_port(roots, "mlx5_9")
    write(port / "counters" / "port_xmit_data", 2**40)
    source = SOURCES["rdma"](roots)
    read(source)
    write(port / "counters" / "port_xmit_data", 100)
    assert read(source)["nic_sent_bytes:mlx5_9/1"] == (2**40 + 100) * 4


def test_counters_in_words_are_not_supported(roots: Roots) -> None:
    port = add_port(roots, "irdma0", "100 Gb/sec (4X EDR)")
    write(port / "counters" / "port_xmit_data", "N/A (no PMA)")
    assert read(SOURCES["rdma"](roots))["nic_sent_bytes:irdma0/1"] == "not_supported"


def test_ethernet_is_read_where_hardware_is_and_not_over_infiniband(roots: Roots) -> None:
    source = SOURCES["ethernet"](roots)
    assert read(source) == {
        "ethernet_sent_bytes:eth0": 7000.0, "ethernet_received_bytes:eth0": 9000.0,
        "ethernet_sent_dropped:eth0": 0.0, "ethernet_received_dropped:eth0": 1.0,
    }  # fmt: skip
    assert source.facts == {"ethernet": {"eth0": {"rate_bytes_per_s": 25e9 / 8}}}


def test_disks_are_counted_without_partitions_and_loops(roots: Roots) -> None:
    assert read(SOURCES["disk"](roots)) == {
        "disk_read_bytes": 4_643_973 * 512.0, "disk_written_bytes": 39_451_633 * 512.0, "disk_busy_s": 222.766,
    }  # fmt: skip


def test_sensors_of_the_machine_are_told_from_those_of_cards(roots: Roots) -> None:
    assert read(SOURCES["hwmon"](roots)) == {
        "cpu_temperature_c:Package_id_0-hwmon0": 61.0, "fan_hz:SYS_FAN_1": 90.0, "inlet_c:Inlet_Temp": 24.5,
        "system_power_w:acpi": 5200.0,
    }  # fmt: skip


SENSOR = """Inlet Temp       | 23.000     | degrees C  | ok    | na        | -7.000    | 3.000     | 38.000
Exhaust Temp     | 41.000     | degrees C  | ok    | na        | 0.000     | 0.000     | 70.000
Fan1 RPM         | 7200.000   | RPM        | ok    | na        | 360.000   | 600.000   | na
Fan2 RPM         | na         |            | na    | na        | 360.000   | 600.000   | na
PSU Redundancy   | 0x0        | discrete   | 0x0180| na        | na        | na        | na
"""
DCMI = """
    Instantaneous power reading:                  {watts} Watts
    Minimum during sampling period:               110 Watts
    Power reading state is:                   activated
"""


def add_ipmi(roots: Roots, folder: Path, seconds_s: float = 0.0) -> Roots:
    """A management controller whose ipmitool answers after a while."""
    write(roots.dev / "ipmi0", "")
    write(folder / "sensor.txt", SENSOR)
    write(folder / "power.txt", DCMI.format(watts=5100))
    tool = folder / "ipmitool"
    answers = f'case "$1" in sensor) cat {folder}/sensor.txt;; dcmi) cat {folder}/power.txt;; esac'
    tool.write_text(f"#!/bin/sh\nsleep {seconds_s}\n{answers}\n")
    tool.chmod(0o755)
    return roots._replace(ipmitool=str(tool))


def test_the_management_controller_tells_inlet_fans_and_power(
    roots: Roots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("charllm.measure.host.ipmi.PERIOD_S", 0.05)
    source = SOURCES["ipmi"](add_ipmi(roots, tmp_path))
    assert read(source) == {"inlet_c:Inlet_Temp": 23.0, "fan_hz:Fan1_RPM": 120.0, "system_power_w:dcmi": 5100.0}
    write(tmp_path / "power.txt", DCMI.format(watts=6200))
    deadline_s = time.monotonic() + 120
    while read(source)["system_power_w:dcmi"] != 6200.0:
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    source.close()


def test_a_slow_management_controller_does_not_keep_the_sampler(
    roots: Roots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("charllm.measure.host.ipmi.PERIOD_S", 0.0)
    asked = add_ipmi(roots, tmp_path)
    source = SOURCES["ipmi"](asked)
    add_ipmi(roots, tmp_path, seconds_s=100.0)
    start_s = time.perf_counter()
    for _ in range(5):
        assert read(source)["inlet_c:Inlet_Temp"] == 23.0
    source.close()
    assert time.perf_counter() - start_s < 20.0


def test_without_a_device_or_its_tool_nothing_is_asked(roots: Roots, tmp_path: Path) -> None:
    assert SOURCES["ipmi"](roots).columns == ()
    with_tool = add_ipmi(roots, tmp_path)
    assert SOURCES["ipmi"](with_tool._replace(ipmitool=None)).columns == ()
    assert SOURCES["ipmi"](with_tool._replace(dev=tmp_path / "nothing")).columns == ()


OLD_REDFISH = """[
 {"@odata.type": "#Thermal.v1_0_2.Thermal",
  "Temperatures": [{"Name": "System Board Inlet Temp", "PhysicalContext": "SystemBoard", "ReadingCelsius": 22},
                   {"Name": "Sensor 2", "PhysicalContext": "Intake", "ReadingCelsius": 23.5},
                   {"Name": "CPU1 Temp", "PhysicalContext": "CPU", "ReadingCelsius": 61}],
  "Fans": [{"FanName": "Fan1A", "Reading": 9000, "ReadingUnits": "RPM"},
           {"Name": "Fan2", "Reading": 40, "ReadingUnits": "Percent"}]},
 {"@odata.type": "#Power.v1_4_0.Power", "PowerControl": [{"PowerConsumedWatts": 5321}]}
]"""
NEW_REDFISH = """[{"@odata.type": "#EnvironmentMetrics.v1_3_0.EnvironmentMetrics", "PowerWatts": {"Reading": 6000.5}},
 {"@odata.type": "#ThermalMetrics.v1_0_0.ThermalMetrics", "TemperatureSummaryCelsius": {"Intake": {"Reading": 26}}}]"""


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (OLD_REDFISH, {"inlet_c:System_Board_Inlet_Temp": 22.0, "inlet_c:Sensor_2": 23.5, "fan_hz:Fan1A": 150.0,
                       "system_power_w:redfish": 5321.0}),
        (NEW_REDFISH, {"system_power_w:redfish": 6000.5, "inlet_c:Intake": 26.0}),
    ],
)  # fmt: skip
def test_redfish_is_read_old_and_new(tmp_path: Path, roots: Roots, answer: str, found: dict[str, float]) -> None:
    write(tmp_path / "redfish.json", answer)
    assert read(SOURCES["redfish"](roots._replace(redfish=tmp_path / "redfish.json"))) == found


def test_a_redfish_file_is_read_again_when_it_is_written_and_stale_when_it_is_not(tmp_path: Path, roots: Roots) -> None:
    path = tmp_path / "redfish.json"
    write(path, NEW_REDFISH)
    source = SOURCES["redfish"](roots._replace(redfish=path))
    write(path, NEW_REDFISH.replace("6000.5", "7000"))
    os.utime(path, (time.time() - 10, time.time() - 10))
    assert read(source)["system_power_w:redfish"] == 7000.0
    write(path, "[{")
    assert read(source)["system_power_w:redfish"] == 7000.0
    write(path, NEW_REDFISH)
    os.utime(path, (time.time() - 1000, time.time() - 1000))
    assert set(read(source).values()) == {"stale"}


@pytest.mark.parametrize("text", ["", "{}", "[1, 2]", '{"Temperatures": 5}'])
def test_a_redfish_file_that_tells_nothing_is_refused(tmp_path: Path, text: str) -> None:
    write(tmp_path / "redfish.json", text)
    with pytest.raises(SpecError, match="--host redfish"):
        find_host(f"redfish:{tmp_path / 'redfish.json'}", Roots())
    with pytest.raises(SpecError, match="--host redfish"):
        find_host(f"redfish:{tmp_path / 'nothing.json'}", Roots())


@pytest.mark.parametrize("asked", ["", "all", "redfish", "redfish:", "none:x", "auto:/sys"])
def test_what_cannot_be_asked_for_is_refused(asked: str) -> None:
    with pytest.raises(SpecError, match=r"--host: .*auto, none or redfish:FILE"):
        find_host(asked)


def test_none_reads_nothing_and_auto_everything_that_is_there(roots: Roots, tmp_path: Path) -> None:
    assert find_host("none", roots) == {}
    assert list(find_host("auto", roots)) == ["rapl", "cpu", "memory", "rdma", "ethernet", "disk", "hwmon"]
    empty = find_host("auto", Roots(tmp_path / "a", tmp_path / "b", tmp_path / "c"))
    for source in empty.values():
        assert set(read(source).values()) == {"not_supported"}


@pytest.mark.parametrize("content", ["", "1e999\n", "a b c: d\n" * 20, "\0\xff 7 | 8\n"])
def test_whatever_a_file_holds_readings_are_numbers_or_reasons(roots: Roots, tmp_path: Path, content: str) -> None:
    files = [path for folder in (roots.sys, roots.proc) for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 80
    for path in files:
        before = path.read_text()
        path.write_text(content)
        sources = find_host("auto", roots)
        with closing(HostWriter(tmp_path, sources)) as writer:
            writer.beat()
        for source in sources.values():
            assert len(source.columns) == len(set(source.columns))
        path.write_text(before)
    host = read_host(tmp_path)
    assert host is not None
    assert set(host.reasons.values()) <= set(REASONS)


def test_this_machine_answers_with_numbers_or_reasons() -> None:
    for name, source in find_host("auto").items():
        for column, value in read(source).items():
            assert isinstance(value, float) or value in REASONS, (name, column, value)
