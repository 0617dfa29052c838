"""Anything that charllm stores can be opened and shown; anything else is refused with a reason."""

import json
import shutil
from pathlib import Path

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.cli import main
from charllm.errors import SpecError
from charllm.measure.bench.run import RUNS_FILE, OpRun
from charllm.measure.bench.suite import full_suite
from charllm.result.result import RunResult
from charllm.result.store import load_run, save_run
from charllm.simulate.predict import simulate
from charllm.stored import OPS_FILE, OPS_LOG, OpsResult, load, load_one_run
from charllm.sweep.outcome import StudyResult
from charllm.sweep.run import run_study
from charllm.sweep.study import unfold
from tests.measure.replayed import CAPTURE, STEPS_S

STUDY = unfold(
    "small",
    {
        "request": {"cluster": "h200x8", "model": "llama3-8b"},
        "groups": [{"axes": {"tp": {"field": "parallelism.tp", "values": [2, 3]}}}],
    },
)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run, a study, a killed record and a killed op benchmark."""
    place = tmp_path_factory.mktemp("stored")
    save_run(simulate(resolve_run(STUDY.cases[0].request)), place / "run")
    run_study(STUDY, out=place / "study")
    shutil.copytree(CAPTURE, place / "record")
    shutil.copytree(CAPTURE, place / "ops")
    run = OpRun(full_suite()[0].name, *STEPS_S, 10, STEPS_S[1] - STEPS_S[0])
    (place / "ops" / RUNS_FILE).write_text(json.dumps(run._asdict()) + '\n{"name": "cut')
    return place


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["show", *words]) == 0
    return capsys.readouterr().out


def test_a_run_is_shown_from_its_result_alone(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, str(stored / "run"))
    assert text.startswith("llama3-8b on h200x8 (8 x h200), megatron, bf16\ntp 2 x pp 1 x dp 4")
    assert "Time goes" in text
    assert "Breakdown of the step time" in shown(capsys, str(stored / "run"), "--full")
    result = load_run(stored / "run")
    assert json.loads(shown(capsys, str(stored / "run" / "result.json"), "--json")) == result.as_table()
    header, *rows = shown(capsys, str(stored / "run"), "--csv").splitlines()
    assert header.startswith("rank,node,slot,stage,")
    assert len(rows) == 8


def test_a_study_and_each_of_its_cases_can_be_opened(stored: Path) -> None:
    found = load(stored / "study")
    assert isinstance(found, StudyResult)
    assert [outcome.exit_code for outcome in found.outcomes] == [0, 2]
    assert isinstance(load(stored / "study" / "runs" / "0000"), RunResult)
    assert load(stored / "study" / "study.json") == found
    with pytest.raises(SpecError, match=r"was rejected .*a divisor of the 8 GPUs"):
        load(stored / "study" / "runs" / "0001")


def test_a_killed_record_is_finished_and_said_to_be_so(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(stored / "record")]) == 0
    printed = capsys.readouterr()
    assert "measured run: " in printed.out
    assert "charllm: no job.json" in printed.err
    assert load_run(stored / "record").metrics["power_mean_w"] > 100


def test_a_killed_op_benchmark_keeps_the_ops_that_had_ended(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert OPS_LOG == RUNS_FILE
    found = load(stored / "ops")
    assert isinstance(found, OpsResult)
    (row,) = found.rows
    assert float(row["mean_w"]) > 300
    assert (stored / "ops" / OPS_FILE).is_file()
    assert row["name"] in shown(capsys, str(stored / "ops"))
    assert json.loads(shown(capsys, str(stored / "ops"), "--json")) == [row]


def test_a_rank_is_shown_beside_what_was_predicted_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(CAPTURE, tmp_path / "rank")
    (tmp_path / "rank" / "predicted.json").write_text('{"power_mean_w": 650.0}')
    fresh, again = (shown(capsys, str(tmp_path / "rank")) for _ in range(2))
    assert "Predicted and measured" in fresh
    assert again == fresh


@pytest.mark.parametrize("what", ["nothing", "an empty folder", "a text", "a folder of runs", "a broken result"])
def test_anything_else_is_refused_with_a_reason(
    stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    (tmp_path / "text").write_text("mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "result.json").write_text('{"origin": 1')
    path, said = {
        "nothing": (tmp_path / "nowhere", "no such file or folder"),
        "an empty folder": (tmp_path / "empty", "result.json, study.json or recording.json"),
        "a text": (tmp_path / "text", "a result.json that charllm wrote"),
        "a folder of runs": (stored, f"such as {stored / 'ops'}"),
        "a broken result": (tmp_path / "broken", "a result.json that charllm wrote"),
    }[what]
    assert main(["show", str(path)]) == 2
    assert said in capsys.readouterr().err


def test_a_comparison_takes_runs_only(stored: Path) -> None:
    assert load_one_run(stored / "record").origin == "measured"
    with pytest.raises(SpecError, match=r"the folder of one run; such as .*0000"):
        load_one_run(stored / "study")
