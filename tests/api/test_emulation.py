"""One rank of a job from Python: predicted without a GPU, emulated with torch on the CPU."""

import json
from pathlib import Path
from typing import Any

import pytest

import charllm
from charllm.api.report import page_of
from charllm.cli import main
from tests.api.tiny import RUN, flags_of


def test_a_prediction_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["emulate", *flags_of(RUN), "--rank", "5", "--seconds", "0.5", "--predict"]) == 0
    assert json.loads(capsys.readouterr().out) == charllm.predict_emulation(**RUN, rank=5, seconds=0.5)


def test_a_timeline_file_stands_for_the_run(tmp_path: Path) -> None:
    charllm.simulate(**RUN, timeline=tmp_path / "rank.json", rank=5)
    alone = charllm.predict_emulation(timeline=tmp_path / "rank.json", seconds=0.5)
    assert alone == charllm.predict_emulation(**RUN, rank=5, seconds=0.5)


def test_a_rank_is_emulated_and_stored(tmp_path: Path) -> None:
    result = charllm.emulate(**RUN, rank=1, seconds=0.5, telemetry="none", device="cpu", out=tmp_path / "run")
    assert result.origin == "emulated"
    assert result.metrics["step_time_s"] > 0
    assert charllm.load(tmp_path / "run") == result
    predicted = json.loads((tmp_path / "run" / "predicted.json").read_text())
    assert predicted == charllm.predict_emulation(**RUN, rank=1, seconds=0.5)
    page = page_of(tmp_path / "run")
    assert page.origin == "emulated"
    assert page.answer[0].startswith("Rank 1 of tiny on 8 x h200, tp 2 x pp 2 x dp 2, emulated on one GPU: ")


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ({"rank": 8}, "rank"),
        ({"rank": "x"}, "rank"),
        ({"seconds": float("nan")}, "seconds"),
        ({"seconds": 0}, "seconds"),
        ({"seconds": "long"}, "seconds"),
        ({"timeline": 5}, "timeline"),
        ({"timeline": "/nowhere.json"}, "timeline"),
        ({"tpp": 5}, "tpp"),
    ],
)
def test_a_wrong_request_names_its_keyword(words: dict[str, Any], field: str) -> None:
    with pytest.raises(charllm.SpecError) as caught:
        charllm.predict_emulation(**{**RUN, **words})
    assert caught.value.field == field
