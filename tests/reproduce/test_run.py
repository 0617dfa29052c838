"""The whole command, small: files, figures, and the same ones after it was killed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from charllm.cli import main
from charllm.reproduce.paper import PARALLELISM
from charllm.reproduce.run import run_reproduction
from charllm.sweep.study import Study, unfold

ONLY = ["thermal-placement", "throttling-by-heat"]


def tiny_study() -> Study:
    axes = {"strategy": {"tp2": {"parallelism": {"tp": 2}}, "tp8": {"parallelism": {"tp": 8}}}}
    return unfold(PARALLELISM, {"request": {"model": "llama3-8b", "cluster": "h200x8"}, "groups": [{"axes": axes}]})


def read_all(folder: Path) -> dict[str, str]:
    wanted = ("findings.json", "recommendations.json", "findings.md", "report.html", "figures/*.svg")
    return {path.name: path.read_text() for name in wanted for path in sorted(folder.glob(name))}


def test_killed_and_started_again_it_writes_the_same_files(tmp_path: Path) -> None:
    def killed(items: Iterator[Any], _total: int, _title: str) -> Iterator[Any]:
        for _, item in zip(range(3), items, strict=False):
            yield item
        raise KeyboardInterrupt

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    run_reproduction(whole, only=ONLY, studies=[tiny_study()], workers=1)
    with pytest.raises(KeyboardInterrupt):
        run_reproduction(broken, only=ONLY, studies=[tiny_study()], workers=1, track=killed)
    with (broken / "runs.jsonl").open("a") as file:
        file.write('{"key": "half a li')
    assert not (broken / "findings.json").exists()
    found = run_reproduction(broken, only=ONLY, studies=[tiny_study()], workers=1)
    assert read_all(broken) == read_all(whole)
    assert [one["name"] for one in found.findings] == ONLY
    assert {"findings.json", "report.html", "figure-4.svg", "finding-thermal-placement.svg"} <= set(read_all(whole))
    for path in (whole / "figures").glob("*.svg"):
        ElementTree.fromstring(path.read_text())


def test_the_command_prints_verdicts_and_writes_what_others_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["reproduce", "charllm-ppt", "--only", "thermal-placement", "--workers", "1", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "thermal-placement" in printed
    assert printed.rstrip().endswith("report.html")
    (finding,) = json.loads((out / "findings.json").read_text())
    assert {"name", "claim", "verdict", "effect", "interval", "evidence"} <= set(finding)
    assert finding["verdict"] in ("holds", "fails", "undecided at this accuracy")
    assert finding["interval"] is None
    assert json.loads((out / "recommendations.json").read_text()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["reproduce", "charllm-ppt", "--only", "lorra"], "--only: got 'lorra'; expected one of"),
        (["reproduce", "another"], "NAME: got 'another'; expected one of"),
    ],
)
def test_what_is_not_known_is_refused_by_name(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert message in capsys.readouterr().err
