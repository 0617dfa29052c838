"""Bytes of every axis and link equal totals worked out by hand."""

from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.workload.model_flop import model_flop
from charllm.workload.step import build_step
from charllm.workload.totals import Traffic, _weighted_median, count_traffic, executed_flop

LAYERS, HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM = 8, 64, 256, 8, 4, 8
MODEL: dict[str, Any] = {
    "name": "small", "layers": LAYERS, "hidden": HIDDEN, "ffn": FFN, "heads": HEADS, "kv_heads": KV_HEADS, "vocab": 0,
}  # fmt: skip
SEQ, BATCH = 128, 32
LAYER_WEIGHTS = 2 * HIDDEN + HIDDEN * (HEADS + 2 * KV_HEADS) * HEAD_DIM + HIDDEN * HEADS * HEAD_DIM + 3 * HIDDEN * FFN
ALL_WEIGHTS = LAYERS * LAYER_WEIGHTS + HIDDEN


def traffic(parallelism: dict[str, Any], model: dict[str, Any] = MODEL, **changes: Any) -> Traffic:
    request = {
        "model": model,
        "cluster": "charllm-ppt-h200",
        "parallelism": parallelism,
        "training": {"seq_length": SEQ, "global_batch_size": BATCH, **changes.pop("training", {})},
        **changes,
    }
    return count_traffic(build_step(resolve_run(request)))


def test_tensor_ranks_with_shared_sequence() -> None:
    # Ten collectives a layer: forward gathers and scatters two each; backward gathers four and scatters two.
    sent = traffic({"tp": 8, "dp": 4})
    message = SEQ * HIDDEN * 2
    per_rank = LAYERS * 10 * message * 7 / 8 * (BATCH / 4)
    assert sent.axis_bytes["tp"] == pytest.approx(32 * per_rank)
    assert sent.axis_link_bytes["tp"]["nic"] == 0
    assert sent.message_bytes_median["tp"] == message
    assert sent.messages["tp"] == 32 * LAYERS * 10 * BATCH / 4


def test_tensor_ranks_without_it_reduce_four_times() -> None:
    sent = traffic({"tp": 8, "dp": 4, "sp": False})
    per_rank = LAYERS * 4 * (2 * 7 / 8) * SEQ * HIDDEN * 2 * (BATCH / 4)
    assert sent.axis_bytes["tp"] == pytest.approx(32 * per_rank)


def test_recomputation_repeats_forward_collectives() -> None:
    plain, full = (traffic({"tp": 8, "dp": 4}, training={"recompute": kind}) for kind in ("none", "full"))
    assert full.axis_bytes["tp"] == pytest.approx(plain.axis_bytes["tp"] * 14 / 10)


def test_stages_send_activations_forward_and_gradients_back() -> None:
    sent = traffic({"tp": 8, "pp": 4})
    per_boundary = 2 * BATCH * SEQ * HIDDEN * 2
    assert sent.axis_bytes["pp"] == 3 * per_boundary
    assert sent.axis_link_bytes["pp"]["nic"] == 3 * per_boundary
    assert sent.message_bytes_median["pp"] == SEQ * HIDDEN * 2 / 8


def test_chunks_also_send_from_the_last_stage_to_the_first() -> None:
    assert traffic({"tp": 8, "pp": 4, "vpp": 2}).axis_bytes["pp"] == 7 * 2 * BATCH * SEQ * HIDDEN * 2


def test_stages_inside_a_node_use_its_links() -> None:
    sent = traffic({"tp": 2, "pp": 8, "dp": 2})
    # Positions of four ranks, two stages a node: every second of the seven boundaries crosses.
    assert sent.axis_link_bytes["pp"]["nic"] / sent.axis_bytes["pp"] == pytest.approx(3 / 7)


@pytest.mark.parametrize(
    ("zero", "bytes_per_weight"), [(0, 2 * 4), (1, 4 + 2)], ids=["all-reduce in fp32", "scatter fp32, gather 16 bits"]
)
def test_replicas_exchange_gradients_once_a_step(zero: int, bytes_per_weight: int) -> None:
    sent = traffic({"dp": 32, "zero": zero})
    assert sent.axis_bytes["dp"] == pytest.approx(32 * ALL_WEIGHTS * bytes_per_weight * 31 / 32)
    assert sent.axis_link_bytes["dp"]["nic"] / sent.axis_bytes["dp"] == pytest.approx(4 / 32)


def test_gradients_may_be_reduced_in_16_bits() -> None:
    sent = traffic({"dp": 32, "zero": 0}, training={"reduce_precision": "bf16"})
    assert sent.axis_bytes["dp"] == pytest.approx(32 * ALL_WEIGHTS * 2 * 2 * 31 / 32)


@pytest.mark.parametrize(("asked", "element_bytes"), [(None, 2), ("fp32", 4)], ids=["as they accumulate", "asked"])
def test_fp16_gradients_are_reduced_in_16_bits_unless_asked_otherwise(asked: str | None, element_bytes: int) -> None:
    changes = {"precision": "fp16", **({"reduce_precision": asked} if asked else {})}
    sent = traffic({"dp": 32, "zero": 0}, training=changes)
    assert sent.axis_bytes["dp"] == pytest.approx(32 * ALL_WEIGHTS * 2 * element_bytes * 31 / 32)


def test_sharded_weights_are_gathered_twice_and_reduced_each_microbatch() -> None:
    sent = traffic({"dp": 32}, framework="fsdp", training={"global_batch_size": 64})
    per_microbatch = ALL_WEIGHTS * (2 + 2 + 4) * 31 / 32
    assert sent.axis_bytes["dp"] == pytest.approx(32 * 2 * per_microbatch)


def test_second_stage_of_zero_reduces_each_microbatch_and_gathers_once() -> None:
    sent = traffic({"dp": 32, "zero": 2}, training={"global_batch_size": 64})
    assert sent.axis_bytes["dp"] == pytest.approx(32 * ALL_WEIGHTS * (2 * 4 + 2) * 31 / 32)


def test_second_stage_of_fsdp_gathers_weights_in_forward_alone() -> None:
    sent = traffic({"dp": 32, "zero": 2}, framework="fsdp", training={"global_batch_size": 64})
    assert sent.axis_bytes["dp"] == pytest.approx(32 * 2 * ALL_WEIGHTS * (2 + 4) * 31 / 32)
    # In a pipeline weights are gathered once a step, as by other frameworks.
    sent = traffic({"pp": 2, "dp": 16, "zero": 2}, framework="fsdp", training={"global_batch_size": 64})
    assert sent.axis_bytes["dp"] == pytest.approx(16 * ALL_WEIGHTS * (4 * 4 + 2) * 15 / 16)


def test_summing_gradients_on_all_replicas_sends_them_twice() -> None:
    sent = traffic({"dp": 32}, framework={"base": "megatron", "whole_gradients": True})
    assert sent.axis_bytes["dp"] == pytest.approx(32 * ALL_WEIGHTS * (2 * 4 + 2) * 31 / 32)


def test_owners_of_tensors_broadcast_what_they_updated() -> None:
    broadcast = {"base": "megatron", "weight_exchange": "broadcast"}
    asked, gathered = traffic({"dp": 32}, framework=broadcast), traffic({"dp": 32})
    assert asked.axis_bytes["dp"] == pytest.approx(gathered.axis_bytes["dp"])
    # 32 owners send once each; gradients are one message of each rank.
    assert asked.messages["dp"] == 32 * (32 + 1)


def test_hybrid_shards_keep_gathering_inside_the_node() -> None:
    sent = traffic({"dp": 32, "shard_size": 8}, framework="fsdp")
    inside = ALL_WEIGHTS * (2 + 2 + 4) * 7 / 8
    across = ALL_WEIGHTS / 8 * 4 * 2 * 3 / 4
    assert sent.axis_link_bytes["dp"]["nvlink"] == pytest.approx(32 * inside)
    assert sent.axis_link_bytes["dp"]["nic"] == pytest.approx(32 * across)


def test_a_second_copy_keeps_gathering_of_backward_inside_the_node() -> None:
    sent = traffic({"dp": 32, "regather_size": 8}, framework="fsdp")
    ring = ALL_WEIGHTS * (2 + 4) * 31 / 32
    # A ring of 32 ranks on four nodes leaves them with one hop of eight.
    assert sent.axis_link_bytes["dp"]["nvlink"] == pytest.approx(32 * (ring * 7 / 8 + ALL_WEIGHTS * 2 * 7 / 8))
    assert sent.axis_link_bytes["dp"]["nic"] == pytest.approx(32 * ring / 8)


def test_a_sharded_pipeline_gathers_once_a_step() -> None:
    sent = traffic({"pp": 2, "dp": 16}, framework="fsdp", training={"global_batch_size": 64})
    stages = ALL_WEIGHTS * (2 + 4) * 15 / 16
    assert sent.axis_bytes["dp"] == pytest.approx(16 * stages)


def test_context_ranks_pass_keys_and_values_round() -> None:
    sent = traffic({"cp": 4, "dp": 8})
    key_value = SEQ / 4 * 2 * KV_HEADS * HEAD_DIM * 2
    per_rank = LAYERS * (BATCH / 8) * 3 * (key_value + 2 * key_value)
    assert sent.axis_bytes["cp"] == pytest.approx(32 * per_rank)


def test_context_ranks_may_exchange_heads_for_sequence() -> None:
    sent = traffic({"cp": 4, "dp": 8, "cp_kind": "all-to-all"})
    moved = SEQ / 4 * (2 * HEADS + 2 * KV_HEADS) * HEAD_DIM * 2
    assert sent.axis_bytes["cp"] == pytest.approx(32 * LAYERS * (BATCH / 8) * 2 * moved * 3 / 4)


SPARSE = {**MODEL, "experts": 16, "topk": 2}


def test_expert_ranks_exchange_every_copy_of_a_token_four_times() -> None:
    sent = traffic({"ep": 8, "dp": 32}, SPARSE)
    copies = SEQ * 2 * HIDDEN * 2
    assert sent.axis_bytes["ep"] == pytest.approx(32 * LAYERS * 4 * copies * 7 / 8)
    assert sent.axis_link_bytes["ep"]["nic"] == 0
    assert sent.message_bytes_median["ep"] == copies


def test_a_capacity_pads_what_is_exchanged() -> None:
    even, padded = (traffic({"ep": 8}, SPARSE, training={"capacity_factor": factor}) for factor in (1.0, 1.5))
    assert padded.axis_bytes["ep"] == pytest.approx(1.5 * even.axis_bytes["ep"])


def test_experts_are_reduced_over_their_own_copies() -> None:
    sent = traffic({"ep": 8, "dp": 32, "zero": 0}, SPARSE)
    experts = LAYERS * 16 * 3 * HIDDEN * FFN
    router = LAYERS * HIDDEN * 16
    dense = ALL_WEIGHTS - LAYERS * 3 * HIDDEN * FFN + router
    per_rank = dense * 4 * 2 * 31 / 32 + experts / 8 * 4 * 2 * 3 / 4
    assert sent.axis_bytes["dp"] == pytest.approx(32 * per_rank)


def test_expert_tensor_ranks_gather_tokens() -> None:
    even = {"routing_skew": 1.0}
    narrow, shared = (traffic({"tp": 2, "ep": 4, "etp": etp, "dp": 16}, SPARSE, training=even) for etp in (1, 2))
    copies = SEQ / 2 * 2 * HIDDEN * 2
    exchanged = LAYERS * (BATCH / 16) * 4 * copies * 3 / 4
    gathered = LAYERS * (BATCH / 16) * 4 * 2 * copies / 2
    assert narrow.axis_bytes["ep"] == pytest.approx(32 * exchanged)
    assert shared.axis_bytes["ep"] == pytest.approx(32 * (exchanged + gathered))


def test_a_tied_embedding_is_added_between_first_and_last_stage() -> None:
    tied, untied = (traffic({"pp": 4}, {**MODEL, "vocab": 1024, "tied_embeddings": tied}) for tied in (True, False))
    message = 1024 * HIDDEN * 4
    assert tied.axis_bytes["pp"] - untied.axis_bytes["pp"] == pytest.approx(2 * 8 * message)


def test_one_gpu_sends_nothing() -> None:
    request = {"model": MODEL, "cluster": "h200x1"}
    assert sum(count_traffic(build_step(resolve_run(request))).link_bytes.values()) == 0


def test_links_and_axes_add_up_to_the_same() -> None:
    sent = traffic({"tp": 2, "pp": 2, "cp": 2, "ep": 2, "dp": 4}, SPARSE)
    assert sum(sent.axis_bytes.values()) == pytest.approx(sum(sent.link_bytes.values()))


@pytest.mark.parametrize("parallelism", [{"tp": 4}, {"pp": 4}, {"cp": 2}, {"dp": 32}, {"tp": 2, "pp": 2, "dp": 8}])
def test_arithmetic_does_not_depend_on_how_it_is_cut(parallelism: dict[str, Any]) -> None:
    training = {"seq_length": SEQ, "global_batch_size": BATCH}
    request = {"model": MODEL, "cluster": "charllm-ppt-h200", "parallelism": parallelism, "training": training}
    run = resolve_run(request)
    weights = LAYERS * (LAYER_WEIGHTS - 2 * HIDDEN)
    tokens = BATCH * SEQ
    products = 6 * weights * tokens
    attention = LAYERS * BATCH * HEADS * SEQ * SEQ / 2 * 4 * HEAD_DIM
    assert model_flop(run) == pytest.approx(products + 3 * attention)
    assert executed_flop(build_step(run)) == pytest.approx(products + 3.5 * attention)


def test_full_recomputation_adds_one_forward() -> None:
    training = {"seq_length": SEQ, "global_batch_size": BATCH}
    request = {"model": MODEL, "cluster": "charllm-ppt-h200", "training": training}
    plain = executed_flop(build_step(resolve_run(request)))
    full = executed_flop(build_step(resolve_run({**request, "training": {**training, "recompute": "full"}})))
    attention = LAYERS * BATCH * HEADS * SEQ * SEQ / 2 * 4 * HEAD_DIM
    assert full - plain == pytest.approx((plain - 3.5 * attention) / 3 + attention)


def test_lora_needs_two_thirds_of_the_arithmetic() -> None:
    training = {"seq_length": SEQ, "global_batch_size": BATCH, "lora_rank": 1, "lora_targets": []}
    frozen = resolve_run({"model": MODEL, "cluster": "charllm-ppt-h200", "training": training})
    trained = resolve_run(
        {"model": MODEL, "cluster": "charllm-ppt-h200", "training": {"seq_length": SEQ, "global_batch_size": BATCH}}
    )
    attention = 3 * LAYERS * BATCH * HEADS * SEQ * SEQ / 2 * 4 * HEAD_DIM
    assert model_flop(frozen) - attention == pytest.approx(2 / 3 * (model_flop(trained) - attention))


def test_more_tensor_ranks_than_key_value_heads_copy_them() -> None:
    training = {"seq_length": SEQ, "global_batch_size": BATCH}
    few, many = (
        executed_flop(
            build_step(
                resolve_run(
                    {"model": MODEL, "cluster": "charllm-ppt-h200", "parallelism": {"tp": tp}, "training": training}
                )
            )
        )
        for tp in (4, 8)
    )
    copied = 6 * LAYERS * HIDDEN * 2 * KV_HEADS * HEAD_DIM * BATCH * SEQ
    assert many - few == pytest.approx(copied)


def test_overlapped_gradients_go_in_buckets_of_the_same_total() -> None:
    large = {**MODEL, "hidden": 4096, "ffn": 16384, "heads": 32}
    whole, bucketed = (traffic({"dp": 32, "overlap": overlap}, large) for overlap in ([], ["dp"]))
    assert bucketed.axis_bytes["dp"] == pytest.approx(whole.axis_bytes["dp"])
    assert bucketed.message_bytes_median["dp"] == pytest.approx(160e6, rel=0.05)
    assert (whole.message_bytes_median["dp"] or 0) > 1e9


def test_a_median_message_is_that_at_which_half_of_all_have_been_sent() -> None:
    assert _weighted_median({10.0: 1.0, 20.0: 1.0}) == 10.0
    assert _weighted_median({20.0: 3.0, 10.0: 2.0}) == 20.0
    assert _weighted_median({30.0: 2.0, 10.0: 3.0, 20.0: 4.0}) == 20.0
    assert _weighted_median({10.0: 1.0, 30.0: 5.0, 20.0: 3.0}) == 30.0
