"""Caps, inlets, placements, weak and braked GPUs as a user asks for them: a result, or exit 2 with what is possible."""

import json
from pathlib import Path

import pytest

from charllm.cli import main

RUN = ["simulate", "--model", "gpt3-30b", "--cluster", "h200x8", "--tp", "8", "--gbs", "16", "--mbs", "4"]
WRONG: dict[str, tuple[list[str], list[str]]] = {
    "a cap below idle": (["--power-cap", "50"], ["conditions.power_cap_w", "50", "200 to 700 W on h200"]),
    "a cap above the board's": (["--power-cap", "900"], ["conditions.power_cap_w", "900", "200 to 700 W on h200"]),
    "a cap that is no number": (["--power-cap", "low"], ["conditions.power_cap_w", "low"]),
    "a clock below idle": (["--clock-cap", "100"], ["conditions.clock_cap", "100", "345 to 1980 MHz on h200"]),
    "a clock above the highest": (["--clock-cap", "2500"], ["conditions.clock_cap", "2500", "345 to 1980 MHz"]),
    "an inlet of boiling water": (["--inlet", "100"], ["cluster.cooling.inlet_c", "100", "80"]),
    "an inlet of liquid air": (["--inlet", "-200"], ["cluster.cooling.inlet_c", "-200", "-20"]),
    "an inlet that is no number": (["--inlet", "warm"], ["cluster.cooling.inlet_c", "warm"]),
    "no air": (["--set", "cluster.cooling.flow_fraction=0"], ["flow_fraction", "0.1"]),
    "an unknown cooling": (["--set", "cluster.cooling.kind=snow"], ["kind", "snow", "air, immersion, liquid"]),
    "a node that is not there": (["--set", "conditions.braked_nodes=[1]"], ["braked_nodes", "[1]", "nodes 0 to 0"]),
    "a brake below idle": (
        ["--set", "conditions.braked_nodes=[0]", "--set", "conditions.brake_clock_mhz=100"],
        ["conditions.brake_clock_mhz", "100", "345 to 1980 MHz on h200"],
    ),
    "a GPU that is not there": (["--set", "conditions.weak_gpus=[8]"], ["weak_gpus", "[8]", "GPUs 0 to 7"]),
    "a die without power": (["--set", "conditions.weak_power_fraction=0"], ["weak_power_fraction", "0.5"]),
    "steps and seconds": (
        ["--set", "conditions.steps=3", "--seconds", "9"],
        ["steps", "3", "steps or seconds, not both"],
    ),
    "no seconds": (["--seconds", "0"], ["--seconds", "0"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_is_refused_with_what_can(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words, named = WRONG[case]
    out = tmp_path / "run"
    assert main([*RUN, *words, "--out", str(out)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Traceback" not in printed.err
    for part in (*named, "got", "expected"):
        assert part in printed.err, printed.err
    assert not out.exists()


@pytest.mark.parametrize("places", [[0, 1, 2, 3, 4, 5, 6, 8], [0, 0, 1, 2, 3, 4, 5, 6], [0, 1], "left to right"])
def test_a_placement_on_unknown_slots_is_refused(
    places: list[int] | str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "placement.json"
    file.write_text(json.dumps(places))
    assert main([*RUN, "--placement", str(file)]) == 2
    printed = capsys.readouterr().err
    assert "conditions.placement" in printed or "conditions.gpu_of_rank" in printed
    assert "Traceback" not in printed


def metrics_of(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, float]:
    assert main([*RUN, *words, "--json"]) == 0
    metrics: dict[str, float] = json.loads(capsys.readouterr().out)["metrics"]
    return metrics


def test_limits_reach_the_loop(capsys: pytest.CaptureFixture[str]) -> None:
    usual = metrics_of(capsys)
    capped = metrics_of(capsys, "--power-cap", "400")
    assert capped["power_mean_w"] < 400 < usual["power_mean_w"]
    assert metrics_of(capsys, "--clock-cap", "1000")["clock_mean_hz"] == pytest.approx(1e9, rel=0.01)
    assert metrics_of(capsys, "--inlet", "40")["temperature_mean_c"] > usual["temperature_mean_c"] + 10
    assert metrics_of(capsys, "--steps", "1")["temperature_mean_c"] < usual["temperature_mean_c"]
    weak = metrics_of(capsys, "--set", "conditions.weak_gpus=[3]", "--set", "conditions.weak_power_fraction=1.4")
    assert weak["step_time_s"] > usual["step_time_s"]
    braked = metrics_of(capsys, "--set", "conditions.braked_nodes=[0]")
    assert braked["step_time_s"] > usual["step_time_s"]


def test_the_report_names_the_brake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "--set", "conditions.braked_nodes=[0]", "--set", "conditions.brake_clock_mhz=900"]) == 0
    assert "brake-throttled" in capsys.readouterr().out


def test_a_plan_whose_every_run_turns_a_gpu_off_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    hot = ("--set", "conditions.hot_gpus=[3]", "--set", "conditions.hot_sink_fraction=20")
    fixed = ("--tp", "2", "--pp", "1", "--cp", "1", "--mbs", "1", "--gbs", "16", "--zero", "1", "--top", "1")
    assert main(["plan", "--model", "llama3-8b", "--cluster", "h100x8", *fixed, *hot]) == 0
    told = capsys.readouterr()
    assert "every strategy turns a GPU off" in told.err
    # The command that repeats it names the machine as it was asked for.
    assert "--cluster h100x8 " in told.out


def test_a_run_that_turns_a_gpu_off_says_so_first(capsys: pytest.CaptureFixture[str]) -> None:
    hot = ("--set", "conditions.hot_gpus=[3]", "--set", "conditions.hot_sink_fraction=20")
    assert main(["simulate", "--model", "llama3-8b", "--cluster", "h100x8", "--tp", "2", "--gbs", "16", *hot]) == 0
    told = capsys.readouterr()
    assert "turns itself off, which ends the run" in told.err
    assert any(line.startswith("Shutdown") for line in told.out.splitlines()[:5])
    assert "after a cold start" in " ".join(told.out.split())
