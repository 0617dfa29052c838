from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.spec.request import merge, parse_settings
from charllm.workload.memory import FRAGMENTATION, StageMemory, first_rank, rank_memories
from charllm.workload.memory_kinds import KINDS
from charllm.workload.step import build_step
from charllm.workload.sync import stage_weights

REQUEST: dict[str, Any] = {
    "model": "llama3-70b",
    "cluster": "charllm-ppt-h200",
    "parallelism": {"tp": 2, "pp": 4},
    "training": {"global_batch_size": 128},
}


def memories(*settings: str) -> list[StageMemory]:
    return rank_memories(build_step(resolve_run(merge(REQUEST, parse_settings(settings)))))


def test_kinds_add_up_to_the_total() -> None:
    for memory in memories():
        assert sum(memory.by_kind().values()) == pytest.approx(memory.total_bytes)
        assert set(memory.by_kind()) == set(KINDS)


def test_megatron_keeps_18_bytes_a_weight_and_shards_12_of_them() -> None:
    run = resolve_run(REQUEST)
    step = build_step(run)
    weights = stage_weights(step, 1).dense
    memory = rank_memories(step)[1]
    assert memory.weights == 2 * weights
    assert memory.gradients == 4 * weights
    assert memory.optimizer == pytest.approx(12 * weights / run.parallelism.dp)


def test_without_zero_every_rank_keeps_all_states() -> None:
    weights = stage_weights(build_step(resolve_run(REQUEST)), 1).dense
    memory = memories("parallelism.zero=0")[1]
    assert (memory.weights, memory.gradients, memory.optimizer) == (2 * weights, 4 * weights, 12 * weights)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_frozen_weights_take_two_bytes_and_are_shared_out_by_the_third_stage_alone(zero: int) -> None:
    settings = ["training.lora_rank=4", f"parallelism.zero={zero}"]
    step = build_step(resolve_run(merge(REQUEST, parse_settings(settings))))
    weights = stage_weights(step, 1)
    shared = 4 if zero == 3 else 1
    assert rank_memories(step)[1].weights == pytest.approx(2 * (weights.dense + weights.frozen) / shared)


def test_what_a_device_has_in_use_is_what_is_allocated_reserved_and_beside_it() -> None:
    memory = StageMemory(0, 0, 0, 1000.0, 100.0, 50.0, 200.0, 30.0, 20.0, 40.0, 7.0, 3.0)
    assert (memory.allocated_bytes, memory.reserved_bytes, memory.total_bytes) == (400, 440, 450)
    assert memory.need_bytes == pytest.approx(400 * (1 + FRAGMENTATION) + 10)
    assert memory.margin_fraction == pytest.approx(1 - memory.need_bytes / 1000)


@pytest.mark.parametrize(
    ("setting", "kind"),
    [("parallelism.zero=1", "optimizer"), ("parallelism.zero=2", "gradients"), ("parallelism.zero=3", "weights")],
)
def test_each_stage_of_zero_shards_one_more_kind(setting: str, kind: str) -> None:
    before = memories(f"parallelism.zero={int(setting[-1]) - 1}")[1]
    after = memories(setting)[1]
    assert getattr(after, kind) == pytest.approx(getattr(before, kind) / 4)


def test_a_sharded_pipeline_keeps_its_weights_gathered() -> None:
    assert memories("parallelism.zero=3")[1].scratch > memories("parallelism.zero=1")[1].weights


def test_a_second_copy_to_gather_from_takes_its_share_of_memory() -> None:
    request = {
        "model": "llama3-8b",
        "cluster": "charllm-ppt-h100",
        "framework": "fsdp",
        "training": {"global_batch_size": 64},
    }
    plain, copied = (
        rank_memories(build_step(resolve_run({**request, "parallelism": {"regather_size": size}})))[0]
        for size in (0, 8)
    )
    assert copied.scratch - plain.scratch == pytest.approx(2 * 8.03e9 / 8, rel=0.01)


def test_full_recomputation_keeps_one_input_a_layer() -> None:
    run = resolve_run(merge(REQUEST, parse_settings(["training.recompute=full"])))
    one_input = run.training.seq_length // 2 * run.model.hidden * 2
    stage = rank_memories(build_step(run))[1]
    assert stage.activations == pytest.approx(3 * 20 * one_input)


def test_recomputing_some_layers_keeps_less_than_none_and_more_than_all() -> None:
    none, some, full = (
        memories(f"training.recompute={kind}", *extra)[0].activations
        for kind, extra in (("none", ()), ("full", ("training.recompute_layers=5",)), ("full", ()))
    )
    assert full < some < none
    assert some == pytest.approx(full + 0.75 * (none - full), rel=0.01)


@pytest.mark.parametrize("module", ["layernorm", "mlp_act", "mlp"])
def test_recomputing_a_module_drops_what_it_can_give_again(module: str) -> None:
    selective = memories("training.recompute=selective", f"training.recompute_modules=['{module}']")
    assert selective[0].activations < memories()[0].activations


def test_unfused_attention_keeps_its_scores_unless_recomputed() -> None:
    flash, unfused, selective = (
        memories(*settings)[0].activations
        for settings in (
            (),
            ("framework.attention=unfused",),
            ("framework.attention=unfused", "training.recompute=selective"),
        )
    )
    # Softmax output: two bytes for each of heads x s x s scores, on 20 layers and 4 microbatches.
    assert unfused - flash == pytest.approx(20 * 4 * 32 * 8192**2 * 2, rel=0.01)
    assert selective == pytest.approx(flash, rel=0.01)


def test_frozen_weights_have_neither_gradient_nor_state() -> None:
    full, lora = memories()[1], memories("training.lora_rank=16")[1]
    assert lora.weights == pytest.approx(full.weights, rel=0.01)
    assert lora.gradients < 0.01 * full.gradients
    assert lora.activations < full.activations


def test_no_optimizer_means_no_state() -> None:
    assert memories("training.optimizer=none")[0].optimizer == 0
    assert memories("training.optimizer=sgd")[0].optimizer == pytest.approx(memories()[0].optimizer / 3)


def test_fp8_keeps_less_activation_and_more_weight() -> None:
    bf16, fp8 = memories()[1], memories("training.precision=fp8")[1]
    assert fp8.activations < bf16.activations
    assert fp8.weights == pytest.approx(2 * bf16.weights)


def test_the_cache_takes_only_what_is_free() -> None:
    roomy = memories("cluster.node.gpu.memory_gib=500")[0]
    assert roomy.reserve == pytest.approx(0.21 * roomy.allocated_bytes, rel=0.02)
    crowded = memories(f"cluster.node.gpu.memory_bytes={roomy.need_bytes * 1.01}")[0]
    assert crowded.need_bytes < crowded.total_bytes <= roomy.need_bytes * 1.01
    assert crowded.reserve < roomy.reserve


def test_the_worst_stage_is_the_first_in_1f1b() -> None:
    step = build_step(resolve_run(REQUEST))
    assert max(rank_memories(step), key=lambda memory: memory.need_bytes).stage == 0
    assert first_rank(step.run, 3) == 24


def change(kind: str, *settings: str, before: tuple[str, ...] = ()) -> float:
    """Return what settings make of a kind of memory of stage 1, over what it was."""
    return float(getattr(memories(*before, *settings)[1], kind) / getattr(memories(*before)[1], kind))


def test_megatrons_gradient_buffers_have_the_format_gradients_are_reduced_in() -> None:
    assert change("gradients", "training.reduce_precision=bf16") == 0.5
    assert change("gradients", "training.reduce_precision=fp8") == 0.25
    # PyTorch's sharded gradients stay in the format of the weights.
    sharded = ("framework=fsdp", "parallelism.pp=1", "parallelism.tp=8")
    kept = [memories(*sharded, f"training.reduce_precision={kind}")[0].gradients for kind in ("fp32", "bf16")]
    assert kept[0] == kept[1] > 0


def test_weights_stored_in_8_bits_have_no_16_bit_copy() -> None:
    fp8 = ("training.precision=fp8",)
    assert change("weights", "training.narrow_weights=true", before=fp8) == pytest.approx(0.5)
    stored = ("framework=megatron-bridge", *fp8)
    assert change("weights", "training.narrow_weights=false", before=stored) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("settings", "bytes_each"),
    [
        (["main_weight_precision=16bit"], 10),
        (["main_weight_precision=none"], 8),
        (["first_moment_precision=16bit", "second_moment_precision=16bit"], 8),
        (["first_moment_precision=8bit", "second_moment_precision=16bit", "main_weight_precision=16bit"], 5),
    ],
)
def test_each_state_of_the_optimizer_has_its_format(settings: list[str], bytes_each: int) -> None:
    assert change("optimizer", *(f"training.{setting}" for setting in settings)) == pytest.approx(bytes_each / 12)


def test_an_update_that_reads_16_bit_gradients_needs_no_copy_of_them() -> None:
    # Weights alone: with one short sequence the update is the worst moment.
    short = ("training.reduce_precision=bf16", "training.seq_length=64", "parallelism.zero=0")
    copied, read = (
        memories(*short, f"training.main_gradient_precision={kind}")[1].scratch for kind in ("fp32", "16bit")
    )
    assert copied > 3 * read


def test_the_input_of_a_non_linearity_can_be_kept_in_8_bits() -> None:
    run = resolve_run(REQUEST)
    saved = memories()[1].activations - memories("training.narrow_activation_input=true")[1].activations
    # Gate and up of 20 layers, for three microbatches in flight: one byte less of each.
    assert saved == pytest.approx(3 * 20 * run.training.seq_length * 2 * run.model.ffn / 2)


def test_offloaded_states_leave_the_gpu() -> None:
    assert memories("training.optimizer_offload_fraction=1.0")[1].optimizer == 0
    assert change("optimizer", "training.optimizer_offload_fraction=0.25") == pytest.approx(0.75)


def test_offloaded_activations_leave_what_is_still_on_its_way() -> None:
    plain, away = memories()[1], memories("training.activation_offload_fraction=1.0")[1]
    assert away.activations == 0
    one_layer = plain.activations / (3 * 20)
    assert away.scratch > one_layer
    assert away.allocated_bytes < plain.allocated_bytes - 0.9 * plain.activations


def test_gradients_that_microbatches_add_to_live_through_a_step() -> None:
    request = {"model": "llama3-8b", "cluster": "h200x8", "framework": "fsdp"}
    once, twice = (
        rank_memories(build_step(resolve_run({**request, "training": {"global_batch_size": batch}})))[0]
        for batch in (8, 16)
    )
    assert once.gradients == 0
    assert twice.gradients == pytest.approx(4 * 8.03e9 / 8, rel=0.01)


def test_a_dualpipe_rank_holds_two_stages_and_shares_their_optimizer() -> None:
    zero_bubble, dual = (memories(f"parallelism.schedule={kind}") for kind in ("zero-bubble", "dualpipe"))
    assert dual[1].weights == pytest.approx(zero_bubble[1].weights + zero_bubble[2].weights)
    assert dual[1].optimizer == pytest.approx((zero_bubble[1].optimizer + zero_bubble[2].optimizer) / 2)
    # Five microbatches of a stage, where the plain schedule holds four and what weight gradients need.
    assert dual[1].activations == pytest.approx(5 / 3 * memories("parallelism.schedule=1f1b")[1].activations, rel=0.01)


def test_sharded_weights_and_gradients_have_memory_pools_of_their_own() -> None:
    request = {"model": "llama3-8b", "cluster": "h200x8", "framework": "fsdp", "training": {"global_batch_size": 8}}
    memory = rank_memories(build_step(resolve_run(request)))[0]
    shards = 4 * 8.03e9 / 8
    assert memory.reserve > shards + 0.02 * memory.allocated_bytes


def test_autocast_keeps_the_residual_stream_in_fp32() -> None:
    sharded = {"model": "llama3-8b", "cluster": "h200x8", "training": {"global_batch_size": 8, "recompute": "full"}}
    plain, wide, returned = (
        rank_memories(build_step(resolve_run({**sharded, "framework": {"base": "fsdp", **choices}})))[0].activations
        for choices in ({}, {"autocast": True}, {"returns_outputs": True})
    )
    one = 8192 * 4096 * 2
    assert wide - plain == pytest.approx(33 * one, rel=0.02)
    # Keys and values of a quarter of the heads on each layer, and fp32 logits.
    assert returned - plain == pytest.approx(32 * one / 2 + 4 * 8192 * 128256, rel=0.02)
