"""A run in the format of another program is read back to the same run."""

from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from charllm.api.keywords import build_request
from charllm.catalog.export import FORMATS, export_run, lost_fields
from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.measure.adapters.programs import with_program
from charllm.spec.run import RunSpec

DENSE: dict[str, Any] = {"model": "llama3-8b", "cluster": "h100x8", "tp": 2}
MODELS = {
    "megatron": ("llama3-8b", "gpt3-13b", "mixtral-8x7b", "deepseek-v2-lite", "qwen3-30b-a3b"),
    "nemo": ("llama3-8b", "gpt3-13b", "mixtral-8x7b", "deepseek-v2-lite", "qwen3-30b-a3b"),
    "torchtitan": ("llama3-8b", "llama3-70b", "qwen3-30b-a3b"),
}
TRAVELS: dict[str, list[Any]] = {
    "training.seq_length": [2048, 4096],
    "training.micro_batch_size": [1, 2],
    "training.global_batch_size": [64, 128],
    "training.precision": ["bf16", "fp8"],
    "training.recompute": ["none", "selective", "full"],
    "training.clip_gradients": [True, False],
    "parallelism.tp": [1, 2, 4],
    "parallelism.pp": [1, 2, 4],
    "parallelism.cp": [1, 2],
    "parallelism.ep": [1, 2, 4],
}
"""Settings that every format has a word for, with values to try."""
OWN: dict[str, dict[str, list[Any]]] = {
    "megatron": {
        "training.optimizer": ["adam", "sgd"],
        "training.reduce_precision": ["fp32", "bf16"],
        "parallelism.zero": [0, 1, 2, 3],
        "parallelism.vpp": [1, 2],
        "parallelism.sp": [True, False],
        "parallelism.cp_kind": ["ring", "all-to-all"],
        "parallelism.overlap": [[], ["dp"], ["dp", "pp"]],
        "parallelism.order": ["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"],
        "framework.attention": ["flash", "unfused"],
        "framework.fused_gradients": [True, False],
    },
    "nemo": {
        "training.lora_rank": [0, 0, 16],
        "training.lora_targets": [["qkv"], ["qkv", "proj", "fc1", "fc2"]],
        "training.reduce_precision": ["fp32", "bf16"],
        "parallelism.zero": [0, 1],
        "parallelism.vpp": [1, 2],
        "parallelism.overlap": [[], ["dp"], ["dp", "pp"]],
        "framework.fused_rope": [True, False],
    },
    "torchtitan": {
        "parallelism.zero": [2, 3],
        "parallelism.vpp": [1, 2],
        "parallelism.overlap": [["dp", "pp"]],
    },
}
"""Settings that a format has beside those."""


def build(program: str, words: dict[str, Any]) -> RunSpec:
    return resolve_run(with_program(program, build_request(None, {"gbs": 128, **words})))


@st.composite
def runs(draw: st.DrawFn) -> tuple[str, RunSpec]:
    """Draw a program and a run whose settings its format can say, with stages that are sometimes uneven."""
    program = draw(st.sampled_from(sorted(FORMATS)))
    fields = {name: draw(st.sampled_from(values)) for name, values in {**TRAVELS, **OWN[program]}.items()}
    fields |= {"parallelism.sp": False} if fields["parallelism.tp"] == 1 else {}
    if program == "torchtitan" and fields["parallelism.ep"] == 1:
        # It cuts experts that are not spread over ranks as it does the other layers.
        fields["parallelism.etp"] = fields["parallelism.tp"]
    words = {"model": draw(st.sampled_from(MODELS[program])), "cluster": "charllm-ppt-h200", "set": fields}
    try:
        run = build(program, words)
        if run.parallelism.pp > 1 and draw(st.booleans()):
            split = list(run.parallelism.layers_per_stage)
            split[0], split[-1] = split[0] - 1, split[-1] + 1
            run = build(program, {**words, "layers_per_stage": split})
    except SpecError:
        reject()
    return program, run


@settings(max_examples=100, deadline=None)
@given(runs())
def test_a_run_is_read_back_as_it_was_written(drawn: tuple[str, RunSpec]) -> None:
    program, run = drawn
    exported = export_run(run, program)
    reading = FORMATS[program].read(exported.text, f"run{FORMATS[program].suffix}")
    lost = set(lost_fields(run, reading))
    assert lost == {one.field for one in exported.left_out} <= {"framework.fused_gradients"}
    assert not reading.not_understood


def test_what_a_format_cannot_say_is_refused_by_field() -> None:
    run = build("megatron", {**DENSE, "training.lora_rank": 8})
    with pytest.raises(SpecError, match=r"training.lora_rank: got 8; expected 0, as the settings of megatron"):
        export_run(run, "megatron")
    sevens = {"model": {"base": "llama3-70b", "layers": 82}, "cluster": "charllm-ppt-h200", "pp": 8}
    uneven = build("nemo", {**sevens, "layers_per_stage": "9,11,10x4,11,11"})
    with pytest.raises(SpecError, match=r"parallelism.layers_per_stage: got .* refused by NeMo"):
        export_run(uneven, "nemo")
    same = build("megatron", {**sevens, "layers_per_stage": "9,11,10x4,11,11"})
    assert "--pipeline-model-parallel-layout Ettttttttt|" in export_run(same, "megatron").text.replace("'", "")


@pytest.mark.parametrize("words", [{"pp": 4}, {"recompute": "full"}])
def test_what_megatron_lm_has_words_for_and_does_not_run_is_refused(words: dict[str, Any]) -> None:
    sparse = {"model": "qwen3-30b-a3b", "cluster": "charllm-ppt-h200", "ep": 8, "overlap": "ep,dp"}
    assert "--overlap-moe-expert-parallel-comm" in export_run(build("megatron", sparse), "megatron").text
    with pytest.raises(SpecError, match=r"parallelism.overlap: got dp, ep; expected .* with ep"):
        export_run(build("megatron", {**sparse, **words}), "megatron")


def test_what_lies_outside_a_program_is_listed_with_what_sets_it() -> None:
    fields = {"framework.launch_us": 12.0, "conditions.weak_gpus": [3], "framework.in_switch_reduction": False}
    run = build("megatron", {**DENSE, "power_cap": 500, "clock_cap": 1500, **fields})
    found = {one.field: str(one) for one in export_run(run, "megatron").left_out}
    assert "nvidia-smi --power-limit=500" in found["conditions.power_cap_w"]
    assert "nvidia-smi --lock-gpu-clocks=0,1500" in found["conditions.clock_cap_hz"]
    assert "NCCL_NVLS_ENABLE=0" in found["framework.in_switch_reduction"]
    assert {"conditions.weak_gpus", "framework.launch_s"} <= set(found)


def test_another_framework_or_an_unknown_model_or_program_is_refused() -> None:
    run = build("megatron", DENSE)
    with pytest.raises(SpecError, match="framework: got 'megatron'; expected torchtitan"):
        export_run(run, "torchtitan")
    with pytest.raises(SpecError, match="a model that torchtitan has"):
        export_run(build("torchtitan", {"model": "gpt2", "cluster": "h200x1"}), "torchtitan")
    shards = {"parallelism": {"cp": 4, "zero": 3, "shard_size": 2}}
    with pytest.raises(SpecError, match=r"parallelism.shard_size: got 2; expected a multiple of cp 4"):
        export_run(build("torchtitan", {"model": "llama3-8b", "cluster": "h200x8", **shards}), "torchtitan")
    with pytest.raises(SpecError, match="program: got 'megatorn'"):
        export_run(run, "megatorn")


def test_torchtitan_runs_the_sparse_layers_of_fsdp_where_deepep_exchanges_whole_experts() -> None:
    sparse = {"model": "deepseek-v2-lite", "cluster": "h200x8", "framework": "fsdp", "overlap": "dp"}
    whole = build("torchtitan", {**sparse, "ep": 4, "etp": 1})
    assert 'expert_parallel_comm_backend = "deepep"' in export_run(whole, "torchtitan").text
    with pytest.raises(SpecError, match=r"framework.dispatcher: got 'deepep'; expected alltoall with etp"):
        export_run(build("torchtitan", {**sparse, "ep": 4, "tp": 2, "etp": 2}), "torchtitan")
    with pytest.raises(SpecError, match=r"framework.fused_permute: got True; expected False"):
        export_run(build("torchtitan", {**sparse, "ep": 1}), "torchtitan")
    with pytest.raises(SpecError, match="got 'deepep'; expected alltoall, as the settings of torchtitan"):
        export_run(build("torchtitan", {**sparse, "model": "qwen3-30b-a3b", "ep": 4, "etp": 1}), "torchtitan")
    nccl = build("torchtitan", {**sparse, "ep": 4, "etp": 1, "framework": "torchtitan"})
    assert "comm_backend" not in export_run(nccl, "torchtitan").text
