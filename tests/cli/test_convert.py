"""A converted run as a user meets it: every command that opens a measured run opens it."""

import json
from pathlib import Path

import numpy as np
import pytest

from charllm.catalog.resolve import single_node
from charllm.cli import main
from charllm.evaluate.heat import assumed_traffic_bytes_per_s
from charllm.evaluate.heat_trace import Trace
from charllm.gpu.heat import advance, network, steady_state_k, temperature_c
from tests.measure.convert import texts


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    (tmp_path / "gpu.csv").write_text(texts.nvidia_smi())
    assert main(["convert", "nvidia-smi", str(tmp_path / "gpu.csv"), "-o", str(tmp_path / "run")]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "2 GPUs" in said.err
    return tmp_path / "run"


def test_show_tells_what_the_recording_shows(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(run)]) == 0
    shown = capsys.readouterr().out
    assert "converted from gpu.csv" in shown
    assert "Power states" in shown
    assert main(["show", str(run), "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    found = table["provenance"]["measurement"]["characterization"]
    assert [state["name"] for state in found["power_states"]] == ["idle", "compute"]
    assert found["step_period"]["period_s"] == pytest.approx(2 * np.pi, rel=0.02)


def test_compare_takes_it(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(run), str(run)]) == 0
    assert "power_mean_w" in capsys.readouterr().out


def test_a_wrong_file_ends_in_2_and_makes_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("a shopping list\nmilk\n")
    assert main(["convert", "auto", str(tmp_path / "notes.txt"), "-o", str(tmp_path / "run")]) == 2
    assert "expected a file of one of dcgm" in capsys.readouterr().err
    assert main(["convert", "nothing", str(tmp_path / "notes.txt"), "-o", str(tmp_path / "run")]) == 2
    assert "nvidia-smi" in capsys.readouterr().err
    assert [place.name for place in tmp_path.iterdir()] == ["notes.txt"]


def node_log(seconds: int, resting: bool) -> str:
    """Eight H100 of a known node as nvidia-smi would log them: rest, load, rest, by the catalog's own heat."""
    cluster = single_node("h100", 8)
    times = np.arange(0.0, seconds)
    loaded = (times > 60) & (times < seconds - 120) if resting else np.full(len(times), True)
    power = np.where(loaded, 650.0, 75.0)[:, None] + np.arange(8.0)
    known = Trace(times, power, np.full_like(power, 30.0), None, tuple(range(8)), power[0], 0.0)
    net = network(cluster.node, cluster.cooling)
    traffic = assumed_traffic_bytes_per_s(known, power, cluster.gpu)
    state = steady_state_k(power[0], net, traffic[0])
    ambient_c, degrees = 30.0 - state.sum(axis=1), []
    for watts, bytes_per_s in zip(power, traffic, strict=True):
        state = advance(state, watts, 1.0, net, bytes_per_s)
        degrees.append(temperature_c(state, ambient_c))
    lines = ["t_s,gpu,power_w,temperature_c"]
    lines += [
        f"{time_s:.0f},{gpu},{power[row, gpu]:.1f},{round(degrees[row][gpu])}"
        for row, time_s in enumerate(times)
        for gpu in range(8)
    ]
    return "\n".join(lines) + "\n"


def test_heat_is_calibrated_and_validated_on_a_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log.csv").write_text(node_log(420, resting=True))
    assert main(["convert", "csv", str(tmp_path / "log.csv"), "-o", str(tmp_path / "run")]) == 0
    assert main(["calibrate", str(tmp_path / "run"), "--gpu", "h100", "-o", str(tmp_path / "my.toml"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    values = {row["name"]: row for row in report["heat"]["parameters"]}
    truth = single_node("h100", 8)
    sink = values["heat.sink_resistance_k_per_w"]
    assert sink["value"] == pytest.approx(truth.node.sink_resistance_k_per_w, rel=0.15)
    assert not values["heat.die_time_s"]["identified"]
    assert not values["heat.memory_byte_heat_j"]["identified"]
    assert len(report["heat"]["ambient_c"]) == 8
    assert main(["validate", "heat", str(tmp_path / "run"), "--gpu", "h100", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rmse_k"] < 1.5


def test_steady_power_cannot_tell_heat(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log.csv").write_text(node_log(200, resting=False))
    assert main(["convert", "csv", str(tmp_path / "log.csv"), "-o", str(tmp_path / "run")]) == 0
    assert main(["calibrate", str(tmp_path / "run"), "--gpu", "h100", "-o", str(tmp_path / "my.toml")]) == 2
    assert "power that changes by" in capsys.readouterr().err
    assert not (tmp_path / "my.toml").exists()
