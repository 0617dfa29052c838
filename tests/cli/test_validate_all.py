"""`charllm validate all`: what it prints; what it computes is tested in tests/evaluate."""

import json

import pytest

from charllm.cli import main
from charllm.evaluate.scoreboard import PARTS, read_scoreboard

FEW = ("loops", "predicted first", "power caps")
"""Parts that take a second together."""


@pytest.fixture(autouse=True)
def few_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("charllm.evaluate.scoreboard.PARTS", {name: PARTS[name] for name in FEW})


def test_tables_name_splits_groups_simpler_methods_and_what_changed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "all", "--quick"]) == 0
    printed = capsys.readouterr().out
    for words in ("family left out", "source left out", "GPU left out", "nothing fitted", "by strategy", "by GPUs",
                  "simpler table", "Loops", "Power caps", "Intervals of 90 %",
                  "Every score is that of the committed scoreboard."):  # fmt: skip
        assert words in printed


def test_json_has_every_score_with_its_split(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "all", "--quick", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    committed = [score._asdict() for score in read_scoreboard() if score.part in (*FEW, "published")]
    assert [score for score in found["scores"] if score["part"] != "published, untuned hosts"] == committed
    assert found["changed"] == []
    assert found["pair_order_fraction"] > 0.9
    assert found["intervals"]["sources"]
