"""A run in the format of another program is read back to the same run."""

from typing import Any

import pytest

from charllm.api.keywords import build_request
from charllm.catalog.export import FORMATS, export_run, lost_fields
from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.spec.run import RunSpec

RUNS: tuple[dict[str, Any], ...] = (
    {"model": "llama3-8b", "cluster": "h100x8", "tp": 2},
    {"model": "llama3-8b", "cluster": "h100x8", "cp": 2, "precision": "fp8"},
    {"model": "llama3-8b", "cluster": "h100x8", "zero": 3},
    {"model": "llama3-70b", "cluster": "h200x32", "tp": 4, "pp": 4, "layers_per_stage": "19,21,21,19"},
    {"model": "llama3-70b", "cluster": "h100x64", "tp": 8, "pp": 4, "vpp": 5, "recompute": "selective"},
    {"model": "qwen3-30b-a3b", "cluster": "h100x64", "ep": 8},
)
DENSE: tuple[dict[str, Any], ...] = (
    {"model": "gpt3-175b", "cluster": "h200x32", "tp": 8, "pp": 4, "recompute": "full"},
    {"model": "mixtral-8x22b", "cluster": "h200x32", "tp": 2, "ep": 4, "pp": 4},
    {"model": "deepseek-v3", "cluster": "h100x64", "ep": 64},
    {"model": "gpt2", "cluster": "h200x1"},
)
"""Models that torchtitan does not have."""
CASES = [(name, words) for name in FORMATS for words in (*RUNS, *(DENSE if name != "torchtitan" else ()))]


def build(program: str, words: dict[str, Any]) -> RunSpec:
    overlap = {"overlap": "dp,pp"} if program == "torchtitan" else {}
    framework = FORMATS[program].frameworks[0]
    return resolve_run(build_request(None, {"framework": framework, "gbs": 128, **overlap, **words}))


@pytest.mark.parametrize(("program", "words"), CASES)
def test_a_run_is_read_back_as_it_was_written(program: str, words: dict[str, Any]) -> None:
    run = build(program, words)
    reading = FORMATS[program].read(export_run(run, program), f"run{FORMATS[program].suffix}")
    assert lost_fields(run, reading) == {}
    assert not reading.not_understood


def test_what_a_format_cannot_say_is_refused_by_field() -> None:
    run = build("megatron", {**RUNS[0], "training.lora_rank": 8})
    with pytest.raises(SpecError, match=r"training.lora_rank: got 8; expected 0, as the settings of megatron"):
        export_run(run, "megatron")


def test_another_framework_or_an_unknown_model_or_program_is_refused() -> None:
    run = build("megatron", RUNS[0])
    with pytest.raises(SpecError, match="framework: got 'megatron'; expected torchtitan"):
        export_run(run, "torchtitan")
    with pytest.raises(SpecError, match="a model that torchtitan has"):
        export_run(build("torchtitan", DENSE[0]), "torchtitan")
    with pytest.raises(SpecError, match="program: got 'megatorn'"):
        export_run(run, "megatorn")
