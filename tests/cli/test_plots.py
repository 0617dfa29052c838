"""Plots in the terminal: the answer first, figures by name, plain text where output is piped, ASCII where needed."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from charllm.cli import main
from tests import program
from tests.measure.replays import make_replay, quiet_environment

RUN = ["simulate", "--model", "llama3-8b", "--cluster", "h200x8", "--tp", "2", "--pp", "2", "--gbs", "16"]
QUESTIONS = (
    "Where does the step time go?",
    "What happens during a step?",
    "Which GPUs are hot, and which is the bottleneck?",
    "Does it fit",
)


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("columns", ["80", "120"])
def test_a_simulated_run_is_answered_first_and_drawn_below(
    columns: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    text = printed(capsys, *RUN, "--plots")
    assert "\x1b" not in text
    lines = text.splitlines()
    assert max(map(len, lines)) <= int(columns)
    first = "\n".join(lines[:24])
    for label in ("Step time", "Power", "Temperature", "Clock", "Memory", "Best changes"):
        assert f"\n{label} " in first
    places = [text.index(question) for question in QUESTIONS]
    assert places == sorted(places)
    assert "Parameters" not in text


def test_a_stored_run_is_drawn_as_it_was_simulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulated = printed(capsys, *RUN, "--plots", "--out", str(tmp_path / "run"))
    shown = printed(capsys, "show", str(tmp_path / "run"), "--plots")
    begin = QUESTIONS[0]
    assert shown.partition(begin)[2] == simulated.partition(begin)[2]


def test_single_figures_are_chosen_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed(capsys, *RUN, "--out", str(tmp_path / "run"))
    text = printed(capsys, "show", str(tmp_path / "run"), "--plot", "changes", "--plot", "links")
    assert text.index("What if one setting changes?") < text.index("How well are the links used?")
    assert QUESTIONS[0] not in text
    assert main(["show", str(tmp_path / "run"), "--plot", "heatt"]) == 2
    assert "did you mean heat?" in capsys.readouterr().err


def test_a_study_and_a_comparison_are_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study, out = tmp_path / "study.toml", str(tmp_path / "out")
    study.write_text(
        'request = { cluster = "h200x8", model = "llama3-8b" }\n'
        'groups = [{ axes.tp = { field = "parallelism.tp", values = [1, 2, 3] } }]\n'
    )
    swept = printed(capsys, "sweep", str(study), "--out", out, "--plots")
    assert "Which strategy is fastest" in swept
    assert re.search(r"^A  tp [12]: .*tokens/s/GPU", swept, flags=re.MULTILINE)
    assert re.search(r"^tp 3 +invalid: parallelism: got 'tp 3", swept, flags=re.MULTILINE)
    assert printed(capsys, "show", out, "--plots") == swept
    compared = printed(capsys, "compare", f"{out}/runs/0000", f"{out}/runs/0001", "--plots")
    assert re.search(r"^step time .* s$", compared, flags=re.MULTILINE)
    assert re.search(r"[+-][\d.]+ %$", compared, flags=re.MULTILINE)


def test_a_measured_run_is_drawn_over_its_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    telemetry = make_replay(tmp_path / "two", gpus=2)
    words = ["measure", "--idle", "0", "--cooldown", "0", "--telemetry", telemetry, "--out", str(tmp_path / "run")]
    done = program.charllm(*words, "--", "sleep", "1.5", variables=quiet_environment())
    assert done.returncode == 0, done.stderr
    text = printed(capsys, "show", str(tmp_path / "run"), "--plots")
    assert text.startswith("measured run: sleep 1.5")
    assert "power, W" in text
    assert "temperature, C" in text
    assert "Not shown: " in text


def test_an_output_that_has_only_ascii_gets_only_ascii() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "80"}
    command = [sys.executable, "-m", "charllm", *RUN, "--plots"]
    done = subprocess.run(command, capture_output=True, env=environment, check=True)
    text = done.stdout.decode("ascii")
    assert "\\u" not in text
    assert "stage 0 |" in text


def test_data_for_programs_wins_over_plots(capsys: pytest.CaptureFixture[str]) -> None:
    assert "metrics" in json.loads(printed(capsys, *RUN, "--plots", "--json"))
