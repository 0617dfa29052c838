"""A sweep gives the same table in one process, in several, and continued after any interruption."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.interruptions import run_long_trial
from charllm.catalog.resolve import resolve_run
from charllm.catalog.tables import entries
from charllm.errors import SpecError
from charllm.result.store import StoreError, load_run, read_parquet
from charllm.simulate.fast import predict_fast
from charllm.sweep.axes import Case
from charllm.sweep.case import Task, run_case
from charllm.sweep.folder import case_folder, claimed, load_study_folder, read_cases
from charllm.sweep.outcome import Outcome
from charllm.sweep.run import run_study
from charllm.sweep.runners.work import Ended, Engine
from charllm.sweep.study import Study, load_study, unfold

TABLE = {
    "request": {"cluster": "h200x8", "model": "llama3-8b"},
    "groups": [{"axes": {"tp": {"field": "parallelism.tp", "values": [1, 2, 3]}}}],
}
SMALL = unfold("small", TABLE)


def outcome_of(case: Case) -> Outcome:
    return run_case(Task(case))


def test_a_wrong_case_is_an_outcome_not_a_crash() -> None:
    outcomes = run_study(SMALL).outcomes
    assert [outcome.exit_code for outcome in outcomes] == [0, 0, 2]
    assert "a divisor of the 8 GPUs" in outcomes[2].message


def test_several_processes_give_the_same_in_the_same_order() -> None:
    assert run_study(SMALL, engine=Engine(workers=2)) == run_study(SMALL)


def test_every_swept_field_is_a_column_of_every_case(tmp_path: Path) -> None:
    rows = run_study(SMALL, out=tmp_path).rows
    assert [row["parallelism.tp"] for row in rows] == [1, 2, 3]
    assert len({tuple(row) for row in rows}) == 1
    assert (rows[0]["link_bytes.nic"], rows[2]["link_bytes.nic"]) == (0.0, None)


def test_a_field_that_a_case_leaves_open_has_the_value_it_ran_with() -> None:
    groups = [{"axes": {"plan": {"wide": {"parallelism": {"tp": 8}}, "full": {"training": {"recompute": "full"}}}}}]
    wide, full = run_study(unfold("s", {**TABLE, "groups": groups})).rows
    assert (wide["plan"], wide["parallelism.tp"], wide["training.recompute"]) == ("wide", 8, "none")
    assert (full["plan"], full["parallelism.tp"], full["training.recompute"]) == ("full", 1, "full")


def interrupted(ended: Iterator[Ended], _total: int, _title: str) -> Iterator[Ended]:
    """Interrupt a sweep after its first case."""
    yield next(ended)
    raise KeyboardInterrupt


def test_a_sweep_goes_on_where_it_was_cut_off(tmp_path: Path) -> None:
    out = tmp_path / "study"
    whole = run_study(SMALL, out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run_study(SMALL, out=out, progress=interrupted)
    assert list(read_cases(out, SMALL)) == [0]
    (out / "runs" / ".0002.draft").mkdir()
    (out / "runs" / "0001").mkdir()
    (out / "runs" / "0001" / "case.json").write_text('{"case": "tp 2", "exit')
    # What a loss of power leaves of files that had not reached the disk.
    (out / "runs" / "0000" / "result.json").write_text("")
    assert run_study(SMALL, out=out, resume=True, progress=all_left) == whole == load_study_folder(out)
    assert load_run(case_folder(out, 1)).metrics["fits"]
    assert sorted(path.name for path in (out / "runs").iterdir()) == ["0000", "0001", "0002"]


def all_left(ended: Iterator[Ended], total: int, _title: str) -> Iterator[Ended]:
    assert total == 3
    return ended


def test_interrupted_again_and_again_it_ends_with_the_same_table(tmp_path: Path) -> None:
    assert run_long_trial(runs=48, count=2, seed=1, folder=tmp_path).total() == 2


def test_a_used_folder_needs_resume(tmp_path: Path) -> None:
    run_study(SMALL, out=tmp_path / "out")
    with pytest.raises(SpecError, match="--resume"):
        run_study(SMALL, out=tmp_path / "out")


@pytest.mark.parametrize("what", ["a file", "a folder of something else"])
def test_a_place_that_is_no_study_is_left_alone(tmp_path: Path, what: str) -> None:
    (tmp_path / "mine").write_text("mine")
    out = tmp_path / "mine" if what == "a file" else tmp_path
    with pytest.raises(SpecError, match="--out"):
        run_study(SMALL, out=out, resume=True)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_second_writer_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("charllm.sweep.folder.LOCK_WAIT_S", 0.1)
    with claimed(tmp_path), pytest.raises(SpecError, match=f"process {os.getpid()} is"):
        run_study(SMALL, out=tmp_path, resume=True)
    assert len(run_study(SMALL, out=tmp_path, resume=True).outcomes) == 3


def changed(**changes: object) -> Study:
    return unfold("small", {**TABLE, **changes})


@pytest.mark.parametrize(
    ("study", "said"),
    [
        (changed(request={"cluster": "h200x8", "model": "gpt2"}), "case 'tp 1': model llama3-8b -> gpt2"),
        (changed(groups=[{"axes": {"tp": {"field": "parallelism.tp", "values": [1, 2]}}}]), "case 'tp 3' was removed"),
        (changed(groups=[{"axes": {"tp": {"field": "parallelism.tp", "values": [1, 2, 3, 8]}}}]), "case 'tp 8' is new"),
        (changed(groups=[{"axes": {"tp": {"field": "parallelism.tp", "values": [2, 1, 3]}}}]), "order of the cases"),
    ],
    ids=["a setting", "fewer cases", "more cases", "another order"],
)
def test_a_changed_study_is_not_continued(tmp_path: Path, study: Study, said: str) -> None:
    run_study(SMALL, out=tmp_path)
    with pytest.raises(SpecError, match="changed since") as caught:
        run_study(study, out=tmp_path, resume=True)
    assert said in str(caught.value)


def test_a_changed_file_behind_a_study_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = tmp_path / "mine.toml"
    model.write_text('base = "llama3-8b"\nlayers = 8\n')
    study = changed(request={"cluster": "h200x8", "model": "mine.toml"})
    run_study(study, out=tmp_path / "out")
    model.write_text('base = "llama3-8b"\nlayers = 9\n')
    with pytest.raises(SpecError, match=r"file mine\.toml"):
        run_study(study, out=tmp_path / "out", resume=True)


def test_signals_are_stored_where_asked_and_not_mixed(tmp_path: Path) -> None:
    run_study(SMALL, out=tmp_path, signals=True)
    assert set(read_parquet(case_folder(tmp_path, 0) / "signals.parquet")) >= {"rank", "t_s", "power_w"}
    assert not list(case_folder(tmp_path, 2).glob("*.parquet"))
    with pytest.raises(SpecError, match="--signals True -> False"):
        run_study(SMALL, out=tmp_path, resume=True)


@pytest.mark.parametrize(
    "words",
    [
        {"engine": Engine(workers=0)},
        {"engine": Engine(workers=100_000)},
        {"engine": Engine("slurm")},
        {"engine": Engine("cloud")},
        {"engine": Engine(address="auto")},
        {"resume": True},
        {"signals": True},
    ],
)
def test_what_cannot_be_swept_is_refused(words: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="--"):
        run_study(SMALL, **words)


def test_a_fault_in_one_case_fails_that_case_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("charllm.simulate.predict.predict", lambda _run: 1 // 0)
        failed = run_study(SMALL, out=tmp_path).failed
    assert len(failed) == 2
    assert failed[0].message.startswith("internal error: ZeroDivisionError")
    assert run_study(SMALL, out=tmp_path, resume=True) == run_study(SMALL)


def test_a_full_disk_ends_a_sweep_and_keeps_what_is_stored(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
        with pytest.raises(StoreError, match=r"cannot write .*0000"):
            run_study(SMALL, out=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list((tmp_path / "runs").iterdir()) == []
    assert run_study(SMALL, out=tmp_path, resume=True) == run_study(SMALL)


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    start = (
        "import os; from charllm.sweep.runners.local import start_worker; print(start_worker(None).pid, flush=True); "
    )
    code = start + "os.kill(os.getpid(), 9)"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    worker = Path(f"/proc/{int(done.stdout)}/cmdline")
    end_s = time.monotonic() + 120
    while worker.exists() and b"charllm.sweep.worker" in worker.read_bytes():
        assert time.monotonic() < end_s
        time.sleep(0.05)


@pytest.mark.parametrize("name", sorted(entries("studies")))
def test_every_converted_row_is_priced_or_names_its_defect(name: str) -> None:
    for case in load_study(name).cases:
        assert price(case)


def price(case: Case) -> bool:
    """Tell whether a case is priced, or refused with a reason that names what is wrong."""
    try:
        result = predict_fast(resolve_run(case.request))
    except SpecError as error:
        return "; expected " in str(error)
    return result.metrics["fits"] or any(warning.startswith("memory: rank") for warning in result.warnings)


@pytest.mark.parametrize("name", sorted(entries("studies")))
def test_some_converted_rows_of_each_study_simulate_as_they_are_priced(name: str) -> None:
    for case in load_study(name).cases[::9]:
        outcome = outcome_of(case)
        assert outcome.exit_code in (0, 2, 3)
        if outcome.exit_code == 3:
            assert outcome.message.startswith("memory: rank")


def test_the_artifacts_impossible_rows_are_refused_for_their_defect() -> None:
    by_name = {case.name: case for case in load_study("charllm-ppt-optimization-h100").cases}
    assert "--layers-per-stage" in outcome_of(by_name["llama3-70b tp1-pp32 / base"]).message
    by_name = {case.name: case for case in load_study("charllm-ppt-microbatch-h200").cases}
    assert "micro_batch_size x dp" in outcome_of(by_name["mixtral-8x7b ep8-tp1 / mbs 8"]).message
    by_name = {case.name: case for case in load_study("charllm-ppt-lora-h200").cases}
    assert "largest part is weights" in outcome_of(by_name["gpt3-175b unsharded / mbs 1"]).message


def test_overlap_that_can_do_nothing_is_named() -> None:
    by_name = {case.name: case for case in load_study("charllm-ppt-optimization-h200").cases}
    assert "tp is 1" in outcome_of(by_name["mixtral-8x7b ep8-tp1 / cc"]).message
    assert "sequence parallelism" in outcome_of(by_name["llama3-70b tp8-fsdp4 / cc"]).message
