"""What a rank sends, from the same ops that are priced."""

from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.spec.request import merge
from charllm.workload.messages import Message, Messages, rank_messages
from charllm.workload.op import COLLECTIVES
from charllm.workload.step import Step, build_step
from charllm.workload.totals import count_traffic

MODEL: dict[str, Any] = {
    "name": "tiny", "layers": 4, "hidden": 64, "ffn": 128, "heads": 4, "vocab": 128, "seq_length": 32,
}  # fmt: skip
BASE: dict[str, Any] = {
    "model": MODEL,
    "cluster": "h200x8",
    "framework": "reference",
    "training": {"global_batch_size": 16, "precision": "fp32"},
}


def step_of(degrees: dict[str, Any], **changes: Any) -> Step:
    return build_step(resolve_run(merge(merge(BASE, {"parallelism": degrees}), changes)))


def calls(messages: Messages, group: str, kind: str) -> int:
    return sum(count for message, count in messages.items() if (message.group, message.kind) == (group, kind))


@pytest.mark.parametrize(
    ("degrees", "model"),
    [
        ({"tp": 2, "pp": 2, "dp": 2, "zero": 1}, {}),
        ({"tp": 2, "sp": True, "cp": 2, "cp_kind": "all-to-all"}, {}),
        ({"pp": 4, "vpp": 1, "dp": 2}, {"tied_embeddings": True}),
        ({"dp": 8, "ep": 4, "zero": 3}, {"experts": 8, "topk": 2, "expert_ffn": 64}),
        ({"cp": 4, "dp": 2}, {}),
    ],
)
@pytest.mark.parametrize("framework", ["reference", "megatron", "fsdp"])
def test_all_ranks_together_send_the_traffic_of_the_step(
    degrees: dict[str, Any], model: dict[str, Any], framework: str
) -> None:
    step = step_of(degrees, model=model, framework=framework)
    sent = sum(
        count * message.message_bytes * COLLECTIVES[message.kind](len(message.ranks))
        for rank in range(8)
        for message, count in rank_messages(step, rank).items()
    )
    assert sent == pytest.approx(sum(count_traffic(step).axis_bytes.values()), rel=1e-6)


def test_every_member_of_a_group_calls_its_collectives_equally_often() -> None:
    step = step_of({"tp": 2, "pp": 2, "dp": 2, "sp": True, "zero": 1})
    found = [rank_messages(step, rank) for rank in range(8)]
    for messages in found:
        for message, count in messages.items():
            if message.kind != "send":
                assert all(found[member][message] == count for member in message.ranks)


def test_inner_stages_send_twice_as_often_as_both_ends() -> None:
    step = step_of({"pp": 4, "dp": 2})
    assert [calls(rank_messages(step, rank), "pp", "send") for rank in (0, 2, 4, 6)] == [8, 16, 16, 8]
    chunked = step_of({"pp": 2, "vpp": 2, "schedule": "interleaved", "dp": 4})
    # Of four chunks in a row, the first and the last send one way only.
    assert [calls(rank_messages(chunked, rank), "pp", "send") for rank in (0, 4)] == [12, 12]


def test_a_ring_is_listed_as_its_sends() -> None:
    found = rank_messages(step_of({"cp": 4, "dp": 2}, framework="megatron"), 0)
    # Three blocks of keys and values in forward, three of them with their gradients in backward; 4 layers, 8 passes.
    assert calls(found, "cp", "send") == 2 * 3 * 4 * 8


def test_first_and_last_stage_add_up_a_tied_embedding() -> None:
    step = step_of({"pp": 4, "dp": 2, "zero": 0}, model={"tied_embeddings": True})
    message = Message("embedding", (1, 7), "all_reduce", 128 * 64 * 4)
    assert [rank_messages(step, rank)[message] for rank in (1, 3, 5, 7)] == [1, 0, 0, 1]


def test_buckets_have_whole_elements_and_the_last_has_the_rest() -> None:
    step = step_of({"dp": 8, "zero": 0}, framework={"base": "reference", "bucket_bytes": 100_000})
    found = {message.message_bytes: count for message, count in rank_messages(step, 0).items() if message.group == "data"}
    weights = sum(size * count for size, count in found.items()) // 4
    assert len(found) == 2 and all(size % 4 == 0 for size in found)
    assert weights == sum(block.repeats * block.weights.dense for block in step.stage_blocks(0))


def test_a_rank_beyond_the_world_is_refused() -> None:
    with pytest.raises(SpecError, match="0 to 7"):
        rank_messages(step_of({"dp": 8}), 8)


def test_small_messages_are_described_by_profiles_that_ask_for_it() -> None:
    sparse = {"experts": 8, "topk": 2, "expert_ffn": 64}
    degrees = {"tp": 2, "sp": True, "dp": 4, "ep": 4, "etp": 1}
    with_all = rank_messages(step_of(degrees, model=sparse), 0)
    without = rank_messages(step_of(degrees, model=sparse, framework="pytorch-eager"), 0)
    counts = Message("ep", (0, 1, 2, 3), "all_to_all", 8 * 8)
    assert with_all[counts] == 4 * 4 and counts not in without
    assert calls(with_all, "tp", "all_reduce") == 3 * 4 + 1 and calls(without, "tp", "all_reduce") == 4
    assert calls(with_all, "world", "all_reduce") == 1 and calls(without, "world", "all_reduce") == 0
