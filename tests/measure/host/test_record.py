"""host.csv: written as it goes, read back whole or cut off, and described over a window."""

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from charllm.measure.host import find_host
from charllm.measure.host.record import FACTS_FILE, HOST_FILE, HostRecording, HostWriter, read_host
from charllm.measure.host.source import HostSource, Roots
from charllm.measure.host.window import look_host
from charllm.measure.telemetry.source import Reading
from tests.measure.host.machine import build

START_S, ROWS = 100.0, 11


def recorded(facts: dict[str, Any] | None = None, **columns: Any) -> HostRecording:
    """A machine read for ten seconds; `a__b` is the column a:b, a single number is read all the time."""
    times = START_S + np.arange(ROWS, dtype=np.float64)
    table = {
        name.replace("__", ":").replace("_port", "/1"): np.broadcast_to(
            np.asarray(values, dtype=np.float64), ROWS
        ).copy()
        for name, values in columns.items()
    }
    return HostRecording(times, table, {}, facts or {})


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    roots: Roots = build(tmp_path / "machine")
    sources = find_host("auto", roots)
    writer = HostWriter(tmp_path, sources)
    for _ in range(3):
        writer.beat()
    writer.close()
    host = read_host(tmp_path)
    assert host is not None
    assert len(host.times_s) == 3
    assert set(host.columns) == {column for source in sources.values() for column in source.columns}
    assert host.columns["memory_used_bytes"][0] == 100_000_000 * 1024
    assert host.facts["rdma"]["mlx5_0/1"]["state"] == "ACTIVE"
    assert host.facts["sources"][0] == "rapl"
    assert set(host.of("nic_sent_bytes")) == {"mlx5_0/1", "mlx5_1/1"}


def test_reasons_are_kept_and_never_become_numbers(tmp_path: Path) -> None:
    answers: list[list[Reading]] = [[1.0, "no_permission", float("inf")], [2.0, "no_permission", 3.0]]
    source = HostSource(("a_w", "b_j:0", "c_c"), lambda: answers.pop(0))
    writer = HostWriter(tmp_path, {"one": source})
    writer.beat()
    writer.beat()
    writer.close()
    assert (tmp_path / HOST_FILE).read_text().splitlines()[1].endswith(",1.0,,,b_j:0=no_permission c_c=not_finite")
    host = read_host(tmp_path)
    assert host is not None
    assert np.isnan(host.columns["b_j:0"]).all()
    assert host.of("b_j") == {}
    assert host.why("b_j") == "no_permission"
    assert host.columns["c_c"][1] == 3.0


def test_a_source_that_fails_costs_its_own_columns(tmp_path: Path) -> None:
    def fail() -> list[Reading]:
        raise ValueError("not what was expected")

    writer = HostWriter(tmp_path, {"bad": HostSource(("a_w",), fail), "good": HostSource(("b_w",), lambda: [2.0])})
    writer.beat()
    writer.close()
    host = read_host(tmp_path)
    assert host is not None
    assert host.why("a_w") == "error"
    assert host.columns["b_w"][0] == 2.0


def test_duckdb_opens_it_as_it_is(tmp_path: Path) -> None:
    writer = HostWriter(tmp_path, find_host("auto", build(tmp_path / "machine")))
    for _ in range(3):
        writer.beat()
    writer.close()
    asked = f"""SELECT count(*), max("nic_sent_bytes:mlx5_0/1"), max(cpu_clock_hz) FROM '{tmp_path / HOST_FILE}'"""
    assert duckdb.sql(asked).fetchall() == [(3, 4000.0, 2.400001e9)]


def test_cut_anywhere_it_loses_at_most_the_last_row(tmp_path: Path) -> None:
    writer = HostWriter(tmp_path, find_host("auto", build(tmp_path / "machine")))
    for _ in range(3):
        writer.beat()
    writer.close()
    whole = (tmp_path / HOST_FILE).read_bytes()
    for size in range(0, len(whole), 37):
        (tmp_path / HOST_FILE).write_bytes(whole[:size])
        host = read_host(tmp_path)
        rows = whole[:size].count(b"\n") - 1
        assert (0 if host is None else len(host.times_s)) == max(0, rows)


def test_a_restarted_sampler_goes_on_in_the_same_file(tmp_path: Path) -> None:
    for _ in range(2):
        writer = HostWriter(tmp_path, find_host("auto", build(tmp_path / "machine")))
        writer.beat()
        writer.close()
    host = read_host(tmp_path)
    assert host is not None
    assert len(host.times_s) == 2


def test_without_readings_or_facts_there_is_none(tmp_path: Path) -> None:
    assert read_host(tmp_path) is None
    (tmp_path / HOST_FILE).write_text("monotonic_ns,wall_ns,duration_ns,a_w,missing\n5,6,7,8.0,\n")
    (tmp_path / FACTS_FILE).write_text("[")
    host = read_host(tmp_path)
    assert host is not None
    assert host.facts == {}


def test_energy_and_traffic_of_a_window_are_growth() -> None:
    host = recorded(
        {"rdma": {"mlx5_0/1": {"rate_bytes_per_s": 25e9, "state": "ACTIVE"},
                  "mlx5_1/1": {"rate_bytes_per_s": 25e9, "state": "DOWN"}}},
        cpu_energy_j__0=np.arange(ROWS) * 200.0, cpu_energy_j__1=np.arange(ROWS) * 100.0,
        memory_energy_j__0=np.arange(ROWS) * 30.0,
        nic_sent_bytes__mlx5_0_port=np.arange(ROWS) * 5e9, nic_sent_bytes__mlx5_1_port=0.0,
        nic_received_bytes__mlx5_0_port=np.arange(ROWS) * 4e9, nic_received_bytes__mlx5_1_port=0.0,
        ethernet_sent_bytes__eth0=np.arange(ROWS) * 1e6, ethernet_received_bytes__eth0=0.0,
    )  # fmt: skip
    seen = look_host(host, START_S + 2.5, START_S + 7.5)
    assert seen.row["cpu_power_mean_w"] == pytest.approx(300.0)
    assert seen.row["memory_power_mean_w"] == pytest.approx(30.0)
    assert seen.nic_sent_bytes == pytest.approx(25e9 + 5e6)
    assert seen.row["nic_received_bytes_per_s"] == pytest.approx(4e9)
    # Of the port that is up: the other could have sent nothing.
    assert seen.nic_utilization_fraction == pytest.approx(0.2)
    assert seen.system_power_mean_w is None


def test_the_whole_node_is_read_from_the_first_meter_that_tells_it() -> None:
    meters: dict[str, Any] = {
        "system_power_w__acpi": 5000.0,
        "system_power_w__dcmi": 5100.0,
        "platform_energy_j__0": np.arange(ROWS) * 9.0,
    }
    assert look_host(recorded(**meters), START_S, START_S + 10).system_power_mean_w == 5000.0
    del meters["system_power_w__acpi"]
    assert look_host(recorded(**meters), START_S, START_S + 10).system_power_mean_w == 5100.0
    del meters["system_power_w__dcmi"]
    assert look_host(recorded(**meters), START_S, START_S + 10).system_power_mean_w == pytest.approx(9.0)


def test_a_counter_that_is_lost_halfway_gives_no_sum() -> None:
    half = np.where(np.arange(ROWS) < 5, np.arange(ROWS) * 1e9, np.nan)
    host = recorded(nic_sent_bytes__a=half, nic_sent_bytes__b=np.arange(ROWS) * 1e9)
    assert look_host(host, START_S, START_S + 10).nic_sent_bytes is None


def test_a_refused_counter_is_not_replaced_by_another_network() -> None:
    host = recorded(ethernet_sent_bytes__eth0=np.arange(ROWS) * 1.0, nic_sent_bytes__a=np.nan)
    host.reasons["nic_sent_bytes:a"] = "implausible"
    assert look_host(host, START_S, START_S + 10).nic_sent_bytes is None


def test_means_are_over_time_and_over_things_of_a_kind() -> None:
    host = recorded(
        cpu_load_fraction=np.linspace(0, 1, ROWS), inlet_c__a=22.0, inlet_c__b=24.0, fan_hz__1=100.0,
        memory_used_bytes=np.arange(ROWS) * 1e9,
    )  # fmt: skip
    row = look_host(host, START_S, START_S + 10).row
    assert row["cpu_load_fraction"] == pytest.approx(0.5)
    assert row["inlet_mean_c"] == 23.0
    assert row["fan_mean_hz"] == 100.0
    assert row["memory_used_peak_bytes"] == 10e9
    # A window between two readings shows the one before it.
    assert look_host(host, START_S + 4.2, START_S + 4.4).row["memory_used_peak_bytes"] == 4e9
