from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.spec.grades import HOST_GRADES
from charllm.spec.request import merge
from charllm.timeline.arrival import arrival_wait_s
from charllm.timeline.constants import TIMELINE
from charllm.timeline.costs import cost_step, read_step
from charllm.timeline.host_race import NOTHING, SYNC, Race, host_only
from charllm.timeline.passes import ChunkPasses, Pass, Span, chunk_passes, unpaired_fraction
from charllm.workload.op import is_communication
from charllm.workload.step import Step, build_step

REQUEST: dict[str, Any] = {
    "model": "llama3-8b",
    "cluster": "charllm-ppt-h100",
    "parallelism": {"tp": 2, "pp": 4, "cp": 2},
}
SPARSE: dict[str, Any] = {"model": "mixtral-8x7b", "cluster": "charllm-ppt-h100", "parallelism": {"pp": 4, "ep": 8}}
REQUESTS = {
    "dense": REQUEST,
    "sharded": merge(REQUEST, {"framework": "fsdp", "parallelism": {"pp": 1}}),
    "sparse": SPARSE,
    "recomputed": merge(SPARSE, {"training": {"recompute": "full"}}),
    "split": merge(REQUEST, {"parallelism": {"schedule": "zero-bubble"}}),
    "overlapped": merge(SPARSE, {"parallelism": {"tp": 2, "overlap": ["tp", "ep", "dp", "pp"]}}),
}


def priced(step: Step) -> list[ChunkPasses]:
    return chunk_passes(step, cost_step(step, read_step(step), step.run.cluster.gpu.clock_max_hz))


def passes(request: dict[str, Any], changes: dict[str, Any] | None = None) -> list[ChunkPasses]:
    return priced(build_step(resolve_run(merge(request, changes or {}))))


def parts(request: dict[str, Any], changes: dict[str, Any] | None = None) -> list[Pass]:
    return [part for one in passes(request, changes) for part in one]


@pytest.mark.parametrize("name", sorted(REQUESTS))
def test_labels_add_up_to_the_time_on_the_gpu(name: str) -> None:
    for part in parts(REQUESTS[name]):
        waits = any(item.kind == "sync" for span in part.spans for item in span.items)
        busy_s = sum(part.labels.values())
        # A host that waits for the GPU makes the GPU wait for its next launch.
        assert busy_s < part.seconds if waits else busy_s == pytest.approx(part.seconds, rel=1e-9)
        assert min([*part.labels.values(), *part.hidden.values()], default=0.0) >= 0


@pytest.mark.parametrize("name", sorted(REQUESTS))
def test_a_race_is_the_product_of_its_items(name: str) -> None:
    for part in parts(REQUESTS[name]):
        race = NOTHING
        for span in part.spans:
            one: Race = NOTHING
            for item in span.items:
                if item.kind == "sync":
                    one = one.then(SYNC)
                elif item.kind == "host":
                    one = one.then(host_only(item.launch_s))
                else:
                    one = one.then(NOTHING.launch(item.seconds, item.launch_s, item.launches))
            race = race.then(one.repeated(span.repeats))
        assert race == pytest.approx(part.race)


@pytest.mark.parametrize("name", sorted(REQUESTS))
def test_every_op_of_a_chunk_is_in_one_of_its_passes(name: str) -> None:
    step = build_step(resolve_run(REQUESTS[name]))
    for chunk, one in zip(step.chunks, priced(step), strict=True):
        forward = sum(block.repeats * sum(len(module.forward) for module in block.modules) for block in chunk.blocks)
        backward = sum(
            block.repeats * (len(block.replay.ops) + sum(len(module.backward) for module in block.modules))
            for block in chunk.blocks
        )
        # Sharded weights are gathered and reduced beside them.
        assert one.forward.ops >= forward
        assert one.backward.ops + one.weight.ops >= backward
        if step.run.parallelism.zero < 2:
            assert (one.forward.ops, one.backward.ops + one.weight.ops) == (forward, backward)


def test_splitting_the_backward_pass_keeps_its_compute() -> None:
    whole, split = (passes(REQUEST, {"parallelism": {"schedule": name}}) for name in ("1f1b", "zero-bubble"))
    for one, other in zip(whole, split, strict=True):
        apart = other.backward.labels["compute"] + other.weight.labels["compute"]
        assert apart == pytest.approx(one.backward.labels["compute"])
        assert not one.weight.labels
        assert other.weight.seconds > 0


def test_equal_chunks_are_priced_once() -> None:
    found = passes(REQUEST)
    assert found[1] is found[2]
    assert found[0] is not found[1]


def test_overlap_hides_communication_and_exposes_no_more() -> None:
    axes = ("tp", "ep")
    plain, overlapped = (
        passes(merge(SPARSE, {"parallelism": {"tp": 2, "overlap": overlap}}))[0].forward for overlap in ([], [*axes])
    )
    for axis in axes:
        assert overlapped.labels[f"{axis}_exposed"] < plain.labels[f"{axis}_exposed"]
        assert overlapped.hidden[axis] > 0
        # What is hidden slows compute by a part of its length at most, and is exposed no more.
        both_s = overlapped.labels[f"{axis}_exposed"] + overlapped.hidden[axis]
        slowed_s = TIMELINE.contention_fraction * overlapped.hidden[axis]
        plain_s = plain.labels[f"{axis}_exposed"]
        assert (both_s - slowed_s) * (1 - 1e-9) <= plain_s <= both_s * (1 + 1e-9)


def test_a_pair_of_microbatches_takes_as_long_as_its_exchanges_where_they_take_longest() -> None:
    request: dict[str, Any] = {
        "model": {"base": "mixtral-8x7b", "experts": 16},
        "cluster": {"base": "charllm-ppt-h100", "fabric": {"base": "ib-8x400g", "nic_bandwidth_gbit_per_s": 25}},
        "training": {"global_batch_size": 64000},
    }
    plain, overlapped = (
        passes(request, {"parallelism": {"ep": 16, "overlap": overlap}})[0] for overlap in ([], ["ep"])
    )
    exchanged_s = plain.forward.labels["ep_exposed"] + plain.backward.labels["ep_exposed"]
    took_s = sum(one.labels["compute"] + one.labels["ep_exposed"] for one in (overlapped.forward, overlapped.backward))
    assert took_s == pytest.approx(exchanged_s, rel=0.03)


TENSOR: dict[str, Any] = {"model": "llama3-70b", "cluster": "charllm-ppt-h100", "parallelism": {"tp": 8}}


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
@pytest.mark.parametrize("framework", ["megatron", "fsdp"])
@pytest.mark.parametrize("direction", [0, 1])
def test_overlap_exposes_less_in_each_direction(precision: str, framework: str, direction: int) -> None:
    request = merge(TENSOR, {"framework": framework, "training": {"precision": precision}})
    plain, overlapped = (
        passes(request, {"parallelism": {"overlap": overlap, "zero": 1}})[0][direction] for overlap in ([], ["tp"])
    )
    assert overlapped.labels["tp_exposed"] < plain.labels["tp_exposed"]
    assert overlapped.labels["compute"] == plain.labels["compute"]


def test_backward_hides_a_columns_exchange_under_products_unless_the_framework_does_not() -> None:
    hides, waits = (
        passes(TENSOR, {"framework": {"base": "megatron", "async_tp_backward": able}})[0] for able in (True, False)
    )
    assert hides.backward.hidden["tp"] > 0
    assert not waits.backward.hidden
    assert hides.backward.labels["tp_exposed"] < waits.backward.labels["tp_exposed"]
    assert hides.forward.labels == waits.forward.labels


def test_casting_what_is_gathered_does_not_uncover_it() -> None:
    wide, narrow = (
        passes(TENSOR, {"parallelism": {"overlap": ["tp"]}, "training": {"precision": precision}})[0]
        for precision in ("bf16", "fp8")
    )
    for one, other in zip(wide[:2], narrow[:2], strict=True):
        exposed, hidden = other.labels["tp_exposed"], other.hidden["tp"]
        # Products are shorter in 8 bits and so is what travels: about as large a share of it hides.
        shown = one.labels["tp_exposed"] / (one.labels["tp_exposed"] + one.hidden["tp"])
        assert exposed / (exposed + hidden) < 1.5 * shown


def test_attention_hides_the_ring_but_for_its_first_step() -> None:
    request = {
        "model": "llama3-8b",
        "cluster": "charllm-ppt-h100",
        "parallelism": {"cp": 8},
        "training": {"seq_length": 131072},
    }
    forward = passes(request)[0].forward
    # All but one of eight: attention over 16384 x 131072 takes longer than sending keys and values round.
    shown = forward.labels["cp_exposed"] - TIMELINE.contention_fraction * forward.hidden["cp"]
    assert shown == pytest.approx((shown + forward.hidden["cp"]) / 8)


def test_sharded_weights_hide_under_the_compute_of_their_layer() -> None:
    fast, slow = (
        passes(REQUESTS["sharded"], {"cluster": {"base": "charllm-ppt-h100", "fabric": {"nics_per_node": nics}}})[
            0
        ].forward
        for nics in (8, 1)
    )
    for one in (fast, slow):
        shown = one.labels["dp_exposed"] - TIMELINE.contention_fraction * one.hidden["dp"]
        assert one.hidden["dp"] <= (sum(one.labels.values()) - one.labels["dp_exposed"]) * (1 + 1e-9)
        assert shown >= -1e-12
    assert slow.labels["dp_exposed"] > fast.labels["dp_exposed"]


def test_recomputed_time_has_its_own_label() -> None:
    plain, again = (passes(SPARSE, {"training": {"recompute": name}})[1].backward for name in ("none", "full"))
    assert "recompute" not in plain.labels
    assert again.labels["recompute"] > 0
    assert again.labels["compute"] == pytest.approx(plain.labels["compute"])


def test_captured_graphs_cost_the_host_nothing() -> None:
    for part in parts(SPARSE, {"framework": {"base": "megatron", "graphs": "full"}}):
        assert part.race.hh == 0.0
        assert not part.ops or part.race.gh == pytest.approx(part.race.gg)


def test_a_sparse_layer_makes_the_host_wait_where_the_framework_reads_counts() -> None:
    waits, goes = (
        parts(SPARSE, {"framework": {"base": "megatron", "sparse_sync": sync}})[0].race for sync in (True, False)
    )
    assert waits.hg > 0
    assert goes.hg == float("-inf")
    assert waits.gh >= goes.gh


def test_each_expert_in_a_loop_is_launched_on_its_own() -> None:
    def host_s(grouped: bool) -> float:
        changes = {
            "framework": {"base": "megatron", "sparse_sync": False},
            "training": {"grouped_gemm": grouped},
            "parallelism": {"ep": 1},
        }
        return parts(SPARSE, changes)[0].race.hh

    assert host_s(False) > host_s(True)


def test_pricing_takes_no_op_for_communication_that_is_not() -> None:
    step = build_step(resolve_run(REQUEST))
    for chunk, one in zip(step.chunks, priced(step), strict=True):
        exchanged = sum(
            block.repeats * is_communication(op)
            for block in chunk.blocks
            for module in block.modules
            for op in module.forward
        )
        listed = sum(span.repeats * sum(item.kind == "collective" for item in span.items) for span in one.forward.spans)
        assert listed == exchanged


def test_graphs_of_all_but_the_experts_spare_routing_and_other_launches() -> None:
    def host_s(**software: str) -> float:
        return parts(SPARSE, {"framework": {"base": "megatron", **software}})[0].race.hh

    none, partial, full = host_s(), host_s(graphs="partial"), host_s(graphs="full")
    assert none > partial > full == 0.0


def test_the_host_waits_for_counts_only_where_they_are_read() -> None:
    def waits(changes: dict[str, Any]) -> bool:
        return any(item.kind == "sync" for span in parts(SPARSE, changes)[0].spans for item in span.items)

    assert waits({})
    assert not waits({"training": {"capacity_factor": 1.0}})
    assert not waits({"framework": {"base": "megatron", "graphs": "full"}})


def test_exchanges_hide_under_another_microbatch_which_the_first_and_last_lack() -> None:
    def alone(batch: int, pp: int = 1, vpp: int = 1) -> float:
        degrees = {"pp": pp, "vpp": vpp, "schedule": "interleaved" if vpp > 1 else "1f1b"}
        request = merge(SPARSE, {"parallelism": degrees, "training": {"global_batch_size": batch}})
        return unpaired_fraction(resolve_run(request))

    assert alone(64) == 1.0
    assert alone(64 * 8) == 1 / 8
    assert alone(16 * 16, pp=4) == 4 / 16
    assert alone(16 * 16, pp=4, vpp=4) == (1 + 3 + 3 * 4) / (16 * 4)


def test_a_chain_of_kernels_is_launched_one_by_one() -> None:
    latent = {"model": "deepseek-v2-lite", "cluster": "h100x8", "parallelism": {"ep": 8}}
    chain, fused = (
        parts(latent, {"framework": {"base": "megatron", "fused_latent_rope": able}})[0] for able in (False, True)
    )
    launched_s = [
        sum(span.repeats * item.launch_s for span in part.spans for item in span.items) for part in (chain, fused)
    ]
    assert launched_s[0] > launched_s[1] + 27 * 20 * resolve_run(latent).framework.launch_s
    assert chain.seconds > fused.seconds


def test_profiled_layers_have_no_host_that_runs_ahead_from_one_pass_to_the_next() -> None:
    composed = {"framework": {"base": "megatron", "composed": True}}
    alone, stacked = parts(REQUEST, composed)[0], parts(REQUEST)[0]
    assert [item.kind for item in alone.spans[0].items] == ["sync"]
    # A host that was ahead begins with the GPU.
    assert alone.race.hg == pytest.approx(alone.race.hh)
    assert alone.race.hh == pytest.approx(stacked.race.hh)
    assert alone.labels == stacked.labels


def test_a_host_launches_every_kernel_of_an_op_in_its_time() -> None:
    run = resolve_run(REQUEST)
    step = build_step(run)
    costs = cost_step(step, read_step(step), run.cluster.gpu.clock_max_hz)
    for one in chunk_passes(step, costs):
        for item in (item for part in one for span in part.spans for item in span.items):
            if item.op is not None:
                assert item.launch_s == pytest.approx(costs.launch_s(item.op))


def test_a_host_of_half_the_speed_takes_twice_as_long() -> None:
    slow = {"cluster": {"base": "charllm-ppt-h100", "node": {"host_speed_fraction": 0.5}}}
    assert parts(REQUEST, slow)[0].race.hh == pytest.approx(2 * parts(REQUEST)[0].race.hh)


def test_slow_processors_and_a_slow_host_multiply() -> None:
    node = {"host_grade": "usual", "processor_speed_fraction": 0.8}
    slow = {"cluster": {"base": "charllm-ppt-h100", "node": node}}
    slower = 1 / (HOST_GRADES["usual"] * 0.8)
    assert parts(REQUEST, slow)[0].race.hh == pytest.approx(slower * parts(REQUEST)[0].race.hh)


def test_launches_that_block_add_to_every_kernel() -> None:
    free, blocked = (
        passes(REQUEST, {"framework": {"base": "megatron-2020", "blocking_launches": blocking}})[1].forward
        for blocking in (False, True)
    )
    launches_s = sum(span.repeats * item.launch_s for span in free.spans for item in span.items)
    # The first launch of a pass may come before it.
    assert blocked.seconds == pytest.approx(free.seconds + launches_s, rel=0.01)


def test_the_first_exchange_of_a_sparse_layer_waits_for_the_slowest_host() -> None:
    eager, graphed = (
        passes(SPARSE, {"framework": {"base": "megatron", "graphs": graphs}})[0].forward for graphs in ("none", "full")
    )
    waited_s = eager.labels["ep_exposed"] - graphed.labels["ep_exposed"]
    layers = sum(span.repeats for span in eager.spans if has_experts(span))
    launched_s = sum(item.launch_s for span in eager.spans for item in span.items if has_experts(span))
    run = resolve_run(SPARSE)
    with_hosts_s, jitter_s = (arrival_wait_s(run, "ep", TIMELINE, one_s) for one_s in (launched_s, 0.0))
    assert with_hosts_s > jitter_s > 0
    assert waited_s == pytest.approx(layers * (with_hosts_s - jitter_s))


def has_experts(span: Span) -> bool:
    return any(item.group == "ep" for item in span.items)
