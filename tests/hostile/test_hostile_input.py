"""Whatever a file, a stored run or a command line holds, charllm answers: no traceback, no long wait, no stray file.

`python -m benchmarks.hostile_input` asks 100,000 cases.
"""

import json
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

from benchmarks.hostile_input import Worker
from tests.hostile.attempt import attempt, check_files, draw_kind
from tests.hostile.kinds import KINDS, WEIGHTS, command
from tests.hostile.mutations import damage_file, damage_value
from tests.hostile.originals import make_originals

CASES = int(os.environ.get("CHARLLM_HOSTILE_CASES", "60"))
SEED = 3


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("originals")
    make_originals(folder)
    return folder


def test_hostile_input_gets_an_answer(originals: Path) -> None:
    answers = [attempt(draw_kind(SEED, number), SEED, number, originals) for number in range(CASES)]
    assert [(answer.case, answer.words, answer.fault) for answer in answers if answer.fault] == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_hostile_input_is_drawn_and_answered(kind: str, originals: Path) -> None:
    answer = attempt(kind, SEED, 0, originals)
    assert answer.fault is None
    assert answer.code in (0, 1, 2, 3)
    assert set(WEIGHTS) <= set(KINDS)


def test_a_case_is_the_same_whenever_it_is_drawn(tmp_path: Path) -> None:
    value: dict[str, Any] = {"a": [1, 2.5, {"b": "x"}], "c": None}
    assert json.dumps(damage_value(value, Random(1))) == json.dumps(damage_value(value, Random(1)))
    assert value == {"a": [1, 2.5, {"b": "x"}], "c": None}
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "t.csv").write_text("a,b\n1,2\n3,4\n")
        damage_file(tmp_path / name / "t.csv", Random("x"))
    assert (tmp_path / "one" / "t.csv").read_bytes() == (tmp_path / "two" / "t.csv").read_bytes()


def test_a_traceback_and_a_stray_file_are_faults(originals: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_random: Random, _originals: Path, folder: Path) -> Any:
        return command("show", folder)._replace(ask=lambda: {}["x"])  # type: ignore[index]

    def strays(_random: Random, _originals: Path, folder: Path) -> Any:
        return command("show", folder)._replace(ask=lambda: (folder / "stray").write_text("x"))

    monkeypatch.setitem(KINDS, "broken", broken)
    monkeypatch.setitem(KINDS, "strays", strays)
    assert "KeyError" in str(attempt("broken", 0, 0, originals).fault)
    assert "stray" in str(attempt("strays", 0, 0, originals).fault)
    assert check_files({"a": (1, 1)}, {"a": (1, 2)}, command("show"), refused=True) == "changed ['a']"
    worker = Worker(originals)
    assert worker.ask("placement", SEED, 0).fault is None
    worker.stop()
