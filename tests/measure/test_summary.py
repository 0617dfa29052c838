"""A recorded run becomes metrics, and what is missing has its reason."""

import json
from pathlib import Path

import numpy as np
import pytest

from charllm.measure.host.record import HostRecording
from charllm.measure.marks import Mark, read_marks
from charllm.measure.measured import Measured
from charllm.measure.recording import read_recording
from charllm.measure.summary import summarise
from charllm.result.metrics import METRICS
from charllm.result.result import RunResult, to_json
from tests.measure.replayed import header, marks, recording, samples, unread, write_copy, write_two_gpus

RUN_S = (41.8, 48.0)


def summarise_capture() -> RunResult:
    return summarise(Measured(recording(), marks(), *RUN_S), "measured", {"model": "llama3-8b"}, {"exit_code": 0})


def summarise_folder(folder: Path) -> RunResult:
    return summarise(Measured(read_recording(folder), read_marks(folder), *RUN_S), "measured", {}, {})


def test_a_real_run_has_time_power_clock_and_temperature() -> None:
    metrics = summarise_capture().metrics
    assert metrics["step_time_s"] == pytest.approx(0.0808, abs=0.001)
    assert metrics["tokens_per_s"] == pytest.approx(4096 / metrics["step_time_s"])
    assert metrics["tokens_per_s_per_gpu"] == metrics["tokens_per_s"]
    assert metrics["power_mean_w"] == pytest.approx(682.0, abs=10.0)
    assert metrics["power_peak_sensor_w"] == pytest.approx(812.542)
    assert metrics["clock_mean_hz"] == pytest.approx(1.77e9, rel=0.02)
    assert metrics["temperature_mean_c"] == pytest.approx(56.3, abs=0.5)
    assert metrics["temperature_peak_c"] == 60.0
    assert metrics["margin_to_slowdown_k"] == 28.0
    assert metrics["throttled_time_fraction"]["power"] > 0.9
    assert metrics["memory_peak_bytes"] == pytest.approx(22.8e9, rel=0.01)
    assert metrics["link_bytes"]["nvlink"] is None
    assert metrics["link_bytes"]["pcie"] > 0


def test_energy_tokens_and_time_are_of_the_same_steps() -> None:
    metrics = summarise_capture().metrics
    assert metrics["energy_per_step_j"] == pytest.approx(metrics["power_mean_w"] * metrics["step_time_s"])
    assert metrics["tokens_per_j"] == pytest.approx(4096 / metrics["energy_per_step_j"])
    assert metrics["tokens_per_j"] == pytest.approx(metrics["tokens_per_s"] / metrics["power_mean_w"])


def test_the_swing_is_within_a_step_and_not_of_the_whole_heating() -> None:
    metrics = summarise_capture().metrics
    assert 0 < metrics["temperature_swing_k"] <= 10.0


def test_every_metric_without_a_value_has_a_reason() -> None:
    result = summarise_capture()
    assert list(result.metrics) == list(METRICS)
    for name, value in result.metrics.items():
        told = [warning for warning in result.warnings if warning.startswith(f"{name}: ")]
        assert len(told) == (value is None), name
        assert all(len(warning) > len(name) + 10 for warning in told)


def test_a_run_that_has_not_settled_says_so() -> None:
    assert any("had not settled" in warning for warning in summarise_capture().warnings)


def test_the_record_says_where_it_comes_from_and_how_sure_it_is() -> None:
    result = summarise_capture()
    measurement = result.provenance["measurement"]
    assert result.provenance["telemetry"]["driver"] == "580.159.04"
    assert (measurement["steps"], measurement["exit_code"]) == (34, 0)
    assert measurement["sensor_coverage_fraction"] == 0.25
    assert 0 < measurement["noise_floor_fraction"] < 0.02
    assert measurement["phases_s"]["update"] == pytest.approx(0.0026, abs=0.001)
    assert json.loads(to_json(result))["metrics"]["power_mean_w"] == pytest.approx(result.metrics["power_mean_w"])


def test_two_gpus_have_a_spread_and_share_the_tokens(tmp_path: Path) -> None:
    one, two = summarise_capture(), summarise_folder(write_two_gpus(tmp_path, warmer_k=6.0))
    assert one.metrics["temperature_spread_node_k"] == 0.0
    assert two.metrics["temperature_spread_node_k"] == pytest.approx(6.0)
    assert two.metrics["temperature_mean_c"] == pytest.approx(one.metrics["temperature_mean_c"] + 3.0)
    assert two.metrics["temperature_peak_c"] == 66.0
    assert two.metrics["power_mean_w"] == pytest.approx(one.metrics["power_mean_w"])
    assert two.metrics["energy_per_step_j"] == pytest.approx(2 * one.metrics["energy_per_step_j"])
    assert two.metrics["tokens_per_j"] == pytest.approx(one.metrics["tokens_per_j"] / 2)
    assert two.metrics["tokens_per_s_per_gpu"] == pytest.approx(one.metrics["tokens_per_s"] / 2)
    assert [row["rank"] for row in two.gpus] == [0, 1]
    assert [row["temperature_peak_c"] for row in two.gpus] == [60.0, 66.0]


def test_a_gpu_that_the_job_did_not_use_is_no_part_of_its_result(tmp_path: Path) -> None:
    alone, beside = summarise_capture(), summarise_folder(write_two_gpus(tmp_path, 0.0, second_is_read=False))
    assert beside.metrics == alone.metrics
    assert [row["rank"] for row in beside.gpus] == [0]
    assert beside.warnings == alone.warnings


def test_a_lost_gpu_is_named_with_its_reason(tmp_path: Path) -> None:
    rows = samples().decode().splitlines()
    lost = [unread(row, header()["beats"][row.split(",")[0]], "lost") for row in rows[1800:]]
    folder = write_copy(tmp_path, "".join(f"{row}\n" for row in rows[:1800] + lost).encode())
    result = summarise(Measured(read_recording(folder), marks(), *RUN_S), "measured", {}, {})
    assert any("temperature_c was not read" in warning and "times lost" in warning for warning in result.warnings)
    assert result.metrics["energy_per_step_j"] is None
    assert result.metrics["step_time_s"] is not None


def test_a_machine_without_gpus_still_has_the_times_of_its_steps(tmp_path: Path) -> None:
    folder = write_copy(tmp_path, b"", gpus=[], capabilities={})
    result = summarise(Measured(read_recording(folder), marks(), *RUN_S), "measured", {}, {})
    assert result.metrics["step_time_s"] is not None
    assert result.metrics["power_mean_w"] is None
    assert result.gpus == []
    assert not any("settled" in warning for warning in result.warnings)


def test_a_board_without_a_temperature_has_not_failed_to_settle(tmp_path: Path) -> None:
    rows = samples().decode().splitlines()
    blind = [unread(row, ["temperature_c"], "not_supported") if row.startswith("fast") else row for row in rows]
    folder = write_copy(tmp_path, "".join(f"{row}\n" for row in blind).encode())
    result = summarise(Measured(read_recording(folder), marks(), *RUN_S), "measured", {}, {})
    assert not any("settled" in warning for warning in result.warnings)
    assert result.metrics["power_mean_w"] is not None
    assert "temperature_mean_c: not measured in this run" in result.warnings


def test_a_command_without_marks_has_power_and_no_steps() -> None:
    result = summarise(Measured(recording(), {}, *RUN_S), "measured", {}, {})
    assert result.metrics["step_time_s"] is None
    assert result.metrics["tokens_per_j"] is None
    assert result.metrics["temperature_swing_k"] is None
    assert result.metrics["power_mean_w"] > 0


def test_steps_without_tokens_have_a_time_and_no_rate() -> None:
    silent = {"0-1": [Mark(one.time_s, one.kind, one.name, "") for one in marks()["0-440"]]}
    metrics = summarise(Measured(recording(), silent, *RUN_S), "measured", {}, {}).metrics
    assert metrics["step_time_s"] is not None
    assert metrics["tokens_per_s"] is None
    assert metrics["tokens_per_j"] is None


def test_long_runs_have_intervals_over_blocks_of_steps() -> None:
    ticks = {"0-1": [Mark(28.5 + 0.5 * number, "step", "", "10") for number in range(40)]}
    result = summarise(Measured(recording(), ticks, 28.0, 50.0), "measured", {}, {})
    intervals = result.provenance["measurement"]["intervals"]
    low, high = intervals["step_time_s"]
    assert low == pytest.approx(0.5)
    assert high == pytest.approx(0.5)
    assert intervals["power_mean_w"][0] < result.metrics["power_mean_w"] < intervals["power_mean_w"][1]


def host_of_capture(**columns: float) -> HostRecording:
    """A machine whose counters grow by their number each second, beside the capture."""
    times = np.arange(30.0, 60.0)
    table = {
        name.replace("__", ":"): np.full(len(times), value)
        if name.startswith(("system", "cpu_load"))
        else value * times
        for name, value in columns.items()
    }
    return HostRecording(times, table, {"cpu_energy_j:1": "no_permission"}, {})


def summarise_with_host(host: HostRecording) -> RunResult:
    return summarise(Measured(recording(), marks(), *RUN_S, hosts=(host,)), "measured", {}, {})


def test_host_readings_are_a_row_of_the_node_and_its_metrics() -> None:
    host = host_of_capture(
        system_power_w__dcmi=2100.0, cpu_load_fraction=0.25, cpu_energy_j__0=180.0, nic_sent_bytes__mlx5_0=1e9
    )
    result = summarise_with_host(host)
    (node,) = result.nodes
    assert node["power_mean_w"] == result.metrics["node_power_mean_w"] == 2100.0
    assert node["gpu_power_mean_w"] == result.metrics["power_mean_w"]
    assert node["cpu_power_mean_w"] == pytest.approx(180.0)
    assert node["cpu_load_fraction"] == 0.25
    assert result.metrics["link_bytes"]["nic"] == pytest.approx(1e9 * result.metrics["step_time_s"])
    assert result.metrics["link_bytes"]["pcie"] > 0
    assert "host: cpu_energy_j:1 could not be read (no_permission)" in result.warnings


def test_without_a_meter_of_the_node_its_power_is_not_known_and_why_is_said() -> None:
    result = summarise_with_host(host_of_capture(cpu_energy_j__0=180.0))
    assert result.metrics["node_power_mean_w"] is None
    (told,) = [warning for warning in result.warnings if warning.startswith("node_power_mean_w")]
    assert "IPMI DCMI, Redfish" in told
    assert "power_mean_w" not in result.nodes[0]
