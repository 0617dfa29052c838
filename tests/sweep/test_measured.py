"""Studies whose cases are run for real: outcomes, folders, and what --resume tries again."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.cli import main
from charllm.errors import SpecError
from charllm.measure.launchers.plan import Plan
from charllm.result.store import load_run
from charllm.spec.request import parse_toml
from charllm.sweep.measured import place_ranks, to_toml
from tests.measure.replays import make_replay

CASE = """
import os, sys, tomllib
import charllm.mark as mark

spec = tomllib.load(open(sys.argv[1], "rb"))
batch = spec["training"]["micro_batch_size"]
if batch == 4 and not os.path.exists("fixed"):
    sys.exit(1)
if batch == 8:
    sys.exit(3)
mark.step(tokens=0)
for number in range(int(sys.argv[2])):
    mark.step(number, tokens=batch * 100)
"""
STUDY = """
request = { model = "gpt2", cluster = "h200x1" }
[[groups]]
axes.mbs = { field = "training.micro_batch_size", values = [1, 2, 4, 8] }
[[groups]]
axes.ranks = { "two ranks" = { cluster = "h200x8", parallelism = { tp = 8 } } }
"""


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(STUDY)
    (tmp_path / "case.py").write_text(CASE)
    command = f"{sys.executable} case.py {{spec}} {{steps}}"
    words = ["sweep", "study.toml", "--measure", "--command", command, "--steps", "5", "--out", "out", "--json"]
    return [*words, "--telemetry", make_replay(tmp_path / "one"), "--idle", "0", "--cooldown", "0"]


def outcomes(capsys: pytest.CaptureFixture[str]) -> list[tuple[str, int]]:
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [(row["case"], row["exit_code"]) for row in rows]


def test_cases_are_measured_stored_and_tried_again(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 1
    names = ["mbs 1", "mbs 2", "mbs 4", "mbs 8", "two ranks"]
    assert outcomes(capsys) == list(zip(names, [0, 0, 1, 3, 2], strict=True))
    assert sorted(place.name for place in (tmp_path / "out" / "runs").iterdir() if place.name[0] != ".") == [
        "0000",
        "0001",
        "0003",
        "0004",
    ]
    case = load_run(tmp_path / "out" / "runs" / "0001")
    assert case.origin == "measured"
    assert case.spec["training"]["micro_batch_size"] == 2
    assert case.metrics["tokens_per_s"] > 0
    assert case.metrics["parameters"] > 1e8
    before = (tmp_path / "out" / "runs" / "0001" / "result.json").read_bytes()
    (tmp_path / "fixed").touch()
    assert main([*words, "--resume"]) == 0
    assert outcomes(capsys) == list(zip(names, [0, 0, 0, 3, 2], strict=True))
    assert (tmp_path / "out" / "runs" / "0001" / "result.json").read_bytes() == before
    assert not list((tmp_path / "out" / "runs").glob(".*"))


def test_a_study_is_continued_as_it_was_begun(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(words)
    at = words.index("--steps") + 1
    assert main([*words[:at], "6", *words[at + 1 :], "--resume"]) == 2
    assert "changed since: --measure" in capsys.readouterr().err
    assert main(["sweep", "study.toml", "--out", "out", "--resume"]) == 2


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--workers", "2"], "--workers: got 2; expected 1 with --measure"),
        (["--signals"], "--signals: got '--measure'"),
        (["--steps", "0"], "--steps: got 0; expected a whole number from 1"),
        (["--command", "'"], '--command: got "\'"; expected words as of a shell'),
        (["--idle", "-1"], "--idle: got -1.0"),
        (["--nodes", "2"], "--nodes: got 2; expected 1 with --launcher local"),
    ],
)
def test_wrong_words_of_a_measured_study_are_refused(
    words: list[str], more: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, *more]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("more", [["--launcher", "slurm"], ["--steps", "5"], ["--command", "true"]])
def test_flags_of_measured_studies_need_measure(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "charllm-ppt-parallelism", *more]) == 2
    assert f"{more[0]}: got" in (said := capsys.readouterr().err)
    assert "expected --measure with this flag" in said


def test_a_measured_study_needs_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "charllm-ppt-parallelism", "--measure"]) == 2
    assert "--measure: got 'no folder'; expected --out DIR" in capsys.readouterr().err


def run(ranks: int) -> Any:
    cluster = {"base": "h200x1", "name": "mine", "nodes": ranks, "fabric": "ib-100g-per-node"}
    return resolve_run({"model": "gpt2", "cluster": cluster, "parallelism": {"dp": ranks}})


@pytest.mark.parametrize(
    ("ranks", "plan", "nodes", "per_node"),
    [
        (1, Plan(), None, 1),
        (4, Plan("torchrun"), None, 4),
        (16, Plan("slurm", ranks_per_node=8), 2, 8),
        (4, Plan("slurm", ranks_per_node=8, nodes=2), 1, 4),
    ],
)
def test_ranks_fill_nodes(ranks: int, plan: Plan, nodes: int | None, per_node: int) -> None:
    found = place_ranks(run(ranks), plan)
    assert (found.nodes, found.ranks_per_node, found.gpu) == (nodes, per_node, "h200")


@pytest.mark.parametrize(
    ("ranks", "plan", "said"),
    [
        (2, Plan(), "got '2 ranks'; expected 1 rank with --launcher local"),
        (16, Plan("torchrun", ranks_per_node=8), "at most 8 ranks"),
        (12, Plan("slurm", ranks_per_node=8), "a multiple of 8"),
        (32, Plan("slurm", ranks_per_node=8, nodes=2), "at most 16: 2 nodes"),
    ],
)
def test_a_rank_count_that_does_not_match_is_refused(ranks: int, plan: Plan, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        place_ranks(run(ranks), plan)


def test_a_request_is_written_as_toml_that_reads_back() -> None:
    request = {
        "model": {"base": "gpt2", "name": 'a "b"', "layers": 2},
        "training": {"lr": 1e-05, "on": True, "list": [1, 2.5, "x"]},
        "odd key": {"a.b": 1},
    }
    assert parse_toml(to_toml(request), "case.toml", "SPEC") == request
