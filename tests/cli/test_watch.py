"""charllm watch as a user meets it."""

import json
from pathlib import Path

import pytest

from charllm.cli import main
from tests.measure.live.runs import write_node
from tests.measure.replays import CAPTURE


def test_once_prints_the_present_state(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(CAPTURE), "--once"]) == 0
    shown = capsys.readouterr().out
    assert "no new readings" in shown
    assert "step 35;" in shown


def test_json_has_every_reading_and_every_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(CAPTURE), "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    (gpu,) = table["nodes"][0]["gpus"]
    assert gpu["readings"]["values"]["power_limit_w"] == 700.0
    assert gpu["readings"]["missing"]["link_sent_bytes"] == "not_supported"


def test_a_run_that_has_ended_is_shown_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(write_node(tmp_path, ended=True)), "--prometheus", "0"]) == 0
    shown = capsys.readouterr()
    assert ": ended" in shown.out
    assert "metrics for Prometheus at http://127.0.0.1:" in shown.err


@pytest.mark.parametrize("words", [["nowhere"], ["{run}", "--prometheus", "x"]])
def test_wrong_requests_are_explained(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_node(tmp_path)
    assert main(["watch", *(word.format(run=run) for word in words)]) == 2
    assert "expected" in capsys.readouterr().err
