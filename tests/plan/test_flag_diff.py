import pytest

from charllm.catalog.command import strategy_flags
from charllm.catalog.resolve import resolve_run
from charllm.cli.parser import build_parser
from charllm.cli.spec_flags import request_from
from charllm.plan.flag_diff import diff_flags, flag_words
from charllm.spec.programs import program_of
from charllm.spec.request import Table, merge
from tests.plan.candidates import request

MOE: Table = {
    "model": "mixtral-8x7b",
    "cluster": "charllm-ppt-h200",
    "parallelism": {"tp": 2, "pp": 4, "vpp": 2, "ep": 4, "etp": 1, "overlap": ["dp", "tp"]},
    "training": {"global_batch_size": 64, "micro_batch_size": 2, "recompute": "full", "recompute_layers": 2},
    "conditions": {"power_cap_w": 500.0, "clock_cap_mhz": 1500.0},
}
UNEVEN: Table = merge(request(8, 4), {"parallelism": {"layers_per_stage": [23, 25, 25, 23], "zero": 0}})


@pytest.mark.parametrize("asked", [request(8, 4), request(4, 4), MOE, UNEVEN])
def test_the_flags_of_a_run_make_the_same_run(asked: Table) -> None:
    run = resolve_run(asked)
    words = f"--model {asked['model']} --cluster {asked['cluster']} {flag_words(run)}".split()
    assert resolve_run(request_from(build_parser("simulate").parse_args(words))) == run


def test_equal_runs_have_no_difference() -> None:
    run = resolve_run(MOE)
    assert diff_flags(run, run) == []


def test_a_difference_is_told_in_the_words_of_both_programs() -> None:
    before, after = resolve_run(request(8, 2)), resolve_run(request(4, 8))
    changes = diff_flags(before, after)
    own = [(flag, *values) for program, flag, *values in changes if program == "charllm"]
    assert own == [("--tp", "8", "4"), ("--pp", "2", "8"), ("--dp", "2", "1"), ("--zero", "1", "0")]
    assert ("megatron", "--tensor-model-parallel-size", "8", "4") in changes
    assert ("megatron", "--use-distributed-optimizer", "", None) in changes


@pytest.mark.parametrize(
    ("framework", "program", "flag"),
    [
        ("megatron", "megatron", "--micro-batch-size"),
        ("nemo", "nemo", "model.micro_batch_size"),
        ("torchtitan", "torchtitan", "training.local_batch_size"),
    ],
)
def test_every_program_names_its_own_setting(framework: str, program: str, flag: str) -> None:
    asked = {"model": "llama3-8b", "cluster": "h200x8", "framework": framework, "training": {"global_batch_size": 64}}
    before, after = resolve_run(asked), resolve_run(merge(asked, {"training": {"micro_batch_size": 2}}))
    assert program_of(before) == program
    changes = diff_flags(before, after)
    assert (program, flag, "1", "2") in changes
    assert ("charllm", "--mbs", "1", "2") in changes


def test_a_program_that_charllm_does_not_write_adds_nothing() -> None:
    asked = {"model": "llama3-8b", "cluster": "h200x8", "framework": "pytorch-eager"}
    run = resolve_run(asked)
    assert program_of(run) is None
    assert strategy_flags(run)["--dp"] == "8"
