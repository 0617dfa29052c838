"""The energy of a job: of its parts, with what was not read, at prices."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from charllm.cli import main
from charllm.measure.convert.run import Wish, convert_files
from charllm.result.columns import rows_of
from charllm.result.result import RunResult
from charllm.units import NANO

START_S = 1_714_564_800


def power_w(second: float) -> float:
    return 500 + 100 * np.sin(second / 7) if 20 <= second < 100 else 80.0


def recorded(folder: Path, seconds: Any, marks: str = "") -> RunResult:
    """Convert readings of two GPUs, the second of which draws half."""
    rows = "".join(f"{t:g},{gpu},{power_w(t) / (gpu + 1)}\n" for t in seconds for gpu in range(2))
    (folder / "power.csv").write_text("t_s,gpu,power_w\n" + rows)
    result = convert_files(Wish("csv", (folder / "power.csv",), folder / "run"))
    if not marks:
        return result
    from charllm.measure.finish import finish_record

    (folder / "run" / "marks-0-1.csv").write_text("monotonic_ns,wall_ns,kind,name,value\n" + marks)
    return finish_record(folder / "run")


def parts(result: RunResult) -> dict[str, dict[str, Any]]:
    table = result.table("energy")
    assert table is not None
    return {row["part"]: row for row in rows_of(table)}


def test_energy_is_the_integral_of_power_and_the_whole_file_stands_beside_the_job(tmp_path: Path) -> None:
    seconds = np.arange(0, 158, 0.5)
    result = recorded(tmp_path, seconds)
    watts = np.array([power_w(t) for t in seconds])
    whole_j = 1.5 * float(np.sum((watts[1:] + watts[:-1]) / 2 * 0.5))
    found = parts(result)
    assert found["whole recording"]["energy_j"] == pytest.approx(whole_j, rel=1e-6)
    assert found["whole recording"]["seconds"] == pytest.approx(157.5)
    assert found["job"]["energy_j"] < found["whole recording"]["energy_j"]
    assert all(row["unread_fraction"] == pytest.approx(0.0, abs=1e-9) for row in found.values())


def test_without_steps_no_energy_of_a_step_is_told(tmp_path: Path) -> None:
    result = recorded(tmp_path, np.arange(0, 120, 0.5))
    assert result.metrics["energy_per_step_j"] is None
    assert "energy_per_step_j: no steps were marked or logged" in result.warnings


def test_time_without_readings_adds_nothing_and_is_told(tmp_path: Path) -> None:
    seconds = [t for t in np.arange(0, 158, 0.5) if not 40 < t < 60]
    whole, gappy = (parts(recorded(folder, times))["job"] for folder, times in (
        (_made(tmp_path / "whole"), np.arange(0, 158, 0.5)), (_made(tmp_path / "gappy"), seconds)))  # fmt: skip
    assert gappy["unread_fraction"] == pytest.approx(20 / gappy["seconds"], rel=0.01)
    assert gappy["energy_j"] < 0.85 * whole["energy_j"]


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_steps_and_phases_have_their_energy_and_losses_are_kept(tmp_path: Path) -> None:
    def row(second: float, kind: str, name: str = "", value: str = "") -> str:
        return f"{round(second / NANO)},0,{kind},{name},{value}\n"

    marks = "".join(
        row(t, "step") + row(t + 0.5, "begin", "forward") + row(t + 2.5, "end", "forward")
        + row(t + 3, "point", "loss", f"{3 - t / 100}")
        for t in range(20, 96, 5)
    )  # fmt: skip
    result = recorded(tmp_path, np.arange(0, 120, 0.1), marks)
    found = parts(result)
    steps = result.table("steps")
    assert steps is not None
    assert sum(steps["energy_j"]) == pytest.approx(found["15 steps"]["energy_j"], rel=1e-6)
    assert found["phase forward"]["seconds"] == pytest.approx(16 * 2.0)
    assert found["phase forward"]["energy_j"] == pytest.approx(0.4 * found["15 steps"]["energy_j"], rel=0.1)
    losses = result.table("losses")
    assert losses is not None
    assert list(losses["loss"])[:2] == [2.8, 2.75]
    assert result.metrics["energy_per_step_j"] is not None


def test_prices_make_money_and_carbon_of_energy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = parts(recorded(tmp_path, np.arange(0, 158, 0.5)))["job"]
    assert main(["show", str(tmp_path / "run"), "--price-per-kwh", "3600", "--co2-kg-per-kwh", "7200"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("job ")]
    cost, co2_kg = (float(cell.replace(",", "")) for cell in line.split()[-4:-2])
    assert cost == pytest.approx(found["energy_j"] / 1000, rel=1e-3)
    assert co2_kg == pytest.approx(2 * cost, rel=1e-3)
    assert main(["show", str(tmp_path / "run"), "--price-per-kwh", "-1"]) == 2
