"""Where a command runs: what a plan may ask for, and templates of commands."""

from dataclasses import asdict
from typing import Any

import pytest

from charllm.errors import SpecError
from charllm.measure.device import judge_gpus
from charllm.measure.launchers.plan import Plan, fill_template, has_placeholder, read_plan


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"launcher": "slrum"}, "--launcher"),
        ({"nodes": 2}, "--nodes"),
        ({"launcher": "torchrun", "nodes": 2}, "--nodes"),
        ({"launcher": "slurm", "nodes": 0}, "--nodes"),
        ({"ranks_per_node": 8}, "--ranks-per-node"),
        ({"launcher": "torchrun", "ranks_per_node": 0}, "--ranks-per-node"),
        ({"partition": "main"}, "--partition"),
        ({"launcher": "torchrun", "setup": ("module load cuda",)}, "--setup"),
        ({"submit_only": True}, "--submit-only"),
        ({"time_limit_s": 0.0}, "--time-limit"),
        ({"time_limit_s": float("nan")}, "--time-limit"),
    ],
)
def test_a_wrong_plan_names_its_flag(asked: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as caught:
        Plan(**asked)
    assert caught.value.field == field


def test_a_plan_is_read_back_as_it_was_written() -> None:
    plan = Plan("slurm", nodes=4, ranks_per_node=8, setup=("module load a",), prefix=("apptainer", "exec"))
    assert read_plan({name: list(v) if isinstance(v, tuple) else v for name, v in asdict(plan).items()}) == plan
    assert plan.ranks == 32


def test_only_known_placeholders_are_filled() -> None:
    words = ["run", "--rank={node_rank}", "{head}:{port}", "awk {print}", "{}"]
    assert has_placeholder(words)
    assert not has_placeholder(["awk", "{print}"])
    assert fill_template(words, {"node_rank": 3, "head": "n1", "port": 29500}) == [
        "run",
        "--rank=3",
        "n1:29500",
        "awk {print}",
        "{}",
    ]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({"n1": ["NVIDIA H200"] * 2, "n2": ["NVIDIA H200"] * 2}, ""),
        ({"n1": [], "n2": []}, ""),
        (
            {"n1": ["NVIDIA H200"] * 2, "n2": ["NVIDIA H100 80GB HBM3"] * 2},
            "mixed GPU types: the spec names h200; n1 has NVIDIA H200; n2 has NVIDIA H100 80GB HBM3",
        ),
        (
            {"n1": ["NVIDIA H200"] * 2, "n2": ["NVIDIA H200"]},
            "--gpus-per-node: got 2; expected 1, which n2 shows to this job",
        ),
    ],
    ids=["alike", "none", "mixed", "too few"],
)
def test_gpus_that_cannot_run_a_plan_together_are_told(names: dict[str, list[str]], said: str) -> None:
    assert judge_gpus(Plan("slurm", gpus_per_node=2, gpu="h200"), names) == said
