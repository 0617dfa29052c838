from pathlib import Path

import pytest

from charllm.catalog.tables import entries
from charllm.errors import SpecError
from charllm.result.store import load_run
from charllm.sweep.local import OUTCOMES_FILE, run_case, run_study
from charllm.sweep.study import Case, load_study, unfold

SMALL = unfold(
    "small",
    {
        "request": {"cluster": "h200x8", "model": "llama3-8b"},
        "groups": [{"axes": {"tp": {"field": "parallelism.tp", "values": [1, 2, 3]}}}],
    },
)


def test_a_wrong_case_is_an_outcome_not_a_crash() -> None:
    outcomes = list(run_study(SMALL, 1, None, resume=False))
    assert [outcome.exit_code for outcome in outcomes] == [0, 0, 2]
    assert "a divisor of the 8 GPUs" in outcomes[2].message


def test_several_processes_give_the_same_in_the_same_order() -> None:
    assert list(run_study(SMALL, 2, None, resume=False)) == list(run_study(SMALL, 1, None, resume=False))


def test_a_sweep_goes_on_where_it_was_cut_off(tmp_path: Path) -> None:
    out = tmp_path / "study"
    whole = list(run_study(SMALL, 1, tmp_path / "whole", resume=False))
    first = run_study(SMALL, 1, out, resume=False)
    next(first)
    first.close()
    with (out / OUTCOMES_FILE).open("a") as file:
        file.write('{"case": "tp 2", "exit')
    assert list(run_study(SMALL, 1, out, resume=True)) == whole
    assert load_run(out / "runs" / "0001").metrics["fits"]


def test_a_used_folder_needs_resume(tmp_path: Path) -> None:
    list(run_study(SMALL, 1, tmp_path / "out", resume=False))
    with pytest.raises(SpecError, match="--resume"):
        list(run_study(SMALL, 1, tmp_path / "out", resume=False))


@pytest.mark.parametrize("name", sorted(entries("studies")))
def test_every_converted_row_simulates_or_names_its_defect(name: str) -> None:
    for case in load_study(name).cases:
        outcome = run_case(Case(case.name, case.request))
        assert outcome.exit_code in (0, 2, 3)
        if outcome.exit_code == 2:
            assert "; expected " in outcome.message
        if outcome.exit_code == 3:
            assert outcome.message.startswith("memory: rank")


def test_the_artifacts_impossible_rows_are_refused_for_their_defect() -> None:
    by_name = {case.name: case for case in load_study("charllm-ppt-optimization-h100").cases}
    assert "--layers-per-stage" in run_case(by_name["llama3-70b tp1-pp32 / base"]).message
    by_name = {case.name: case for case in load_study("charllm-ppt-microbatch-h200").cases}
    assert "micro_batch_size x dp" in run_case(by_name["mixtral-8x7b ep8-tp1 / mbs 8"]).message
    by_name = {case.name: case for case in load_study("charllm-ppt-lora-h200").cases}
    assert "largest part is weights" in run_case(by_name["gpt3-175b unsharded / mbs 1"]).message


def test_overlap_that_can_do_nothing_is_named() -> None:
    by_name = {case.name: case for case in load_study("charllm-ppt-optimization-h200").cases}
    assert "tp is 1" in run_case(by_name["mixtral-8x7b ep8-tp1 / cc"]).message
    assert "sequence parallelism" in run_case(by_name["llama3-70b tp8-fsdp4 / cc"]).message
