"""A job measured on AMD GPUs from its command line to its result, with only AMD's C library replaced."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.measure.amdsmi_stand_in import SCENARIO_VARIABLE, play, rocm

JOB = "import time, charllm.mark as mark\nfor _ in range(16):\n    time.sleep(0.15)\n    mark.step(tokens=100)"


def run(folder: Path, environment: dict[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    there = {**os.environ, "ROCM_PATH": str(rocm()), SCENARIO_VARIABLE: str(folder / "scenario"), **environment}
    return subprocess.run(
        [sys.executable, "-m", "charllm", *words], env=there, capture_output=True, text=True, check=False
    )


def measured(folder: Path, environment: dict[str, str], **scenario: float | str) -> dict[str, Any]:
    play(folder / "scenario", **scenario)
    command = ["measure", "--telemetry", "amdsmi", "--idle", "0.5", "--out", str(folder / "run")]
    done = run(folder, environment, *command, "--", sys.executable, "-c", JOB)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads((folder / "run" / "result.json").read_text())
    return result


def test_both_dies_of_an_mi250_add_up_to_their_package(tmp_path: Path) -> None:
    # Two packages of three: HIP numbers the GPUs from the other end here.
    visible = {"ROCR_VISIBLE_DEVICES": "0,1,2,3", "HIP_VISIBLE_DEVICES": "2,3"}
    result = measured(tmp_path, visible, model="mi250", gpus=6, watts=420, hip_reversed=1)
    gpus, metrics = result["gpus"], result["metrics"]
    assert [gpu["slot"] for gpu in gpus] == [3, 2]
    assert {gpu["package"] for gpu in gpus} == {"0000:c9:00.0"}
    assert [gpu["temperature_mean_c"] for gpu in gpus] == [48.0, 47.0]
    assert [gpu["hotspot_peak_c"] for gpu in gpus] == [63.0, 62.0]
    assert metrics["power_mean_w"] == pytest.approx(210.0, rel=0.02)
    assert metrics["energy_per_step_j"] == pytest.approx(420 * metrics["step_time_s"], rel=0.02)
    assert result["nodes"][0]["gpu_power_mean_w"] == pytest.approx(420.0, rel=0.02)
    assert metrics["power_peak_sensor_w"] is None
    assert "power_peak_sensor_w: these GPUs show averaged power only" in result["warnings"]
    assert any("even share of its package's power" in warning for warning in result["warnings"])
    assert result["provenance"]["telemetry"]["source"] == "amdsmi"
    assert result["provenance"]["measurement"]["sensor_coverage_fraction"] is None
    shown = run(tmp_path, {}, "show", str(tmp_path / "run")).stdout
    assert "210 W per GPU" in shown
    assert "Nodes" in shown


def test_an_mi300x_with_a_wrong_counter_is_measured_by_its_sensor(tmp_path: Path) -> None:
    result = measured(tmp_path, {}, model="mi300x", gpus=2, watts=600, energy_factor=0.1, power_share=0.4)
    assert result["metrics"]["power_mean_w"] == pytest.approx(600.0)
    assert result["metrics"]["throttled_time_fraction"]["power"] == pytest.approx(0.4, abs=0.08)
    assert any("the energy counter grew by 60 W while the sensor showed 600 W" in one for one in result["warnings"])
    assert any("energy_j was not read" in warning and "implausible" in warning for warning in result["warnings"])
    assert result["metrics"]["link_bytes"]["nvlink"] == 0.0


def test_a_gpu_that_is_lost_leaves_the_others_in_the_result(tmp_path: Path) -> None:
    result = measured(tmp_path, {}, model="mi300x", gpus=3, lost=1)
    assert [gpu["power_mean_w"] for gpu in result["gpus"]] == [
        pytest.approx(400.0, rel=0.02),
        None,
        pytest.approx(400.0, rel=0.02),
    ]
    assert any(
        warning.startswith("GPU 1: power_instant_w was not read") and "lost" in warning
        for warning in result["warnings"]
    )


def test_without_the_library_the_request_is_wrong(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        {"ROCM_PATH": str(tmp_path)},
        "measure",
        "--telemetry",
        "amdsmi",
        "--out",
        str(tmp_path / "run"),
        "--",
        "true",
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "libamd_smi.so was not found" in done.stderr
    assert "Traceback" not in done.stderr
