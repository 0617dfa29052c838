from typing import Any

import numpy as np
import pytest

from charllm.catalog.resolve import resolve_run
from charllm.network.constants import NETWORK
from charllm.simulate.one_clock import solve_step
from charllm.simulate.predict import simulate
from charllm.spec.request import merge
from charllm.timeline.costs import cost_step, read_step
from charllm.timeline.labels import LABELS
from charllm.timeline.step_time import StepTime, hop_seconds, sharded_once, time_step
from charllm.workload.memory import rank_memories
from charllm.workload.step import build_step
from charllm.workload.sync import layer_gather
from tests.timeline.unlimited import time_at_highest_clock

DENSE: dict[str, Any] = {"model": "llama3-8b", "cluster": "charllm-ppt-h100", "training": {"global_batch_size": 256}}
SPARSE: dict[str, Any] = {
    "model": "mixtral-8x7b",
    "cluster": "charllm-ppt-h100",
    "training": {"global_batch_size": 256},
}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "1f1b": (DENSE, {"parallelism": {"tp": 2, "pp": 4}}),
    "1f1b overlapped": (DENSE, {"parallelism": {"tp": 2, "pp": 4, "overlap": ["tp", "dp", "pp"]}}),
    "gpipe": (DENSE, {"parallelism": {"tp": 2, "pp": 4, "schedule": "gpipe"}}),
    "interleaved": (DENSE, {"parallelism": {"tp": 2, "pp": 4, "vpp": 4}}),
    "zero-bubble": (DENSE, {"parallelism": {"tp": 2, "pp": 4, "schedule": "zero-bubble"}}),
    "zero-bubble lora": (
        DENSE,
        {"parallelism": {"tp": 2, "pp": 4, "schedule": "zero-bubble"}, "training": {"lora_rank": 16}},
    ),
    "uneven": (DENSE, {"parallelism": {"pp": 4, "layers_per_stage": [5, 9, 9, 9]}}),
    "few microbatches": (DENSE, {"parallelism": {"pp": 8}, "training": {"global_batch_size": 16}}),
    "tied": (DENSE, {"model": "llama3.2-1b", "parallelism": {"pp": 4}}),
    "zero 0": (DENSE, {"parallelism": {"zero": 0}}),
    "zero 1": (DENSE, {"parallelism": {"zero": 1, "overlap": ["dp"]}}),
    "zero 2": (DENSE, {"parallelism": {"zero": 2}}),
    "zero 3": (DENSE, {"framework": "fsdp", "parallelism": {"zero": 3}}),
    "zero 3 in a pipeline": (DENSE, {"framework": "fsdp", "parallelism": {"zero": 3, "pp": 4}}),
    "hybrid shards": (DENSE, {"framework": "fsdp", "parallelism": {"zero": 3, "shard_size": 8}}),
    "ring": (DENSE, {"parallelism": {"cp": 4}}),
    "head exchange": (DENSE, {"parallelism": {"cp": 4, "cp_kind": "all-to-all"}}),
    "full recompute": (DENSE, {"training": {"recompute": "full"}}),
    "lora": (DENSE, {"training": {"lora_rank": 16}}),
    "sparse": (SPARSE, {"parallelism": {"ep": 8}}),
    "sparse in a pipeline": (SPARSE, {"parallelism": {"ep": 8, "pp": 4, "vpp": 2, "overlap": ["ep", "pp"]}}),
    "sparse zero-bubble": (SPARSE, {"parallelism": {"ep": 4, "pp": 2, "tp": 2, "schedule": "zero-bubble"}}),
    "sparse lora": (SPARSE, {"parallelism": {"ep": 8}, "training": {"lora_rank": 8}}),
    "fp8": (DENSE, {"parallelism": {"tp": 4}, "training": {"precision": "fp8"}}),
    "one gpu": (DENSE, {"cluster": "h200x1", "training": {"global_batch_size": 4}}),
    "amd": (DENSE, {"cluster": "charllm-ppt-mi250", "parallelism": {"tp": 2, "pp": 4}}),
}


def timed(request: dict[str, Any], changes: dict[str, Any] | None = None) -> StepTime:
    return time_at_highest_clock(build_step(resolve_run(merge(request, changes or {}))))


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_second_has_a_label(name: str) -> None:
    found = timed(*CASES[name])
    assert set(found.breakdown_s) == set(LABELS)
    assert sum(found.breakdown_s.values()) == pytest.approx(found.step_time_s, rel=1e-9)
    for labels in found.stages:
        assert sum(labels.values()) == pytest.approx(found.step_time_s, rel=1e-9)
        assert min(labels.values()) >= 0
    assert min(found.hidden_s.values()) >= 0


def test_compute_is_never_less_than_the_passes() -> None:
    found = timed(*CASES["1f1b"])
    microbatches = 256 // 8
    compute = np.mean(
        [microbatches * (one.forward.labels["compute"] + one.backward.labels["compute"]) for one in found.passes]
    )
    assert found.breakdown_s["compute"] == pytest.approx(float(compute))


def test_axes_that_are_not_cut_cost_nothing() -> None:
    labels = timed(*CASES["one gpu"]).breakdown_s
    assert not any(labels[name] for name in LABELS if name.endswith("_exposed"))
    assert not labels["bubble"]


@pytest.mark.parametrize(("name", "chunks"), [("1f1b", 1), ("gpipe", 1), ("interleaved", 4)])
def test_the_bubble_is_at_most_the_schedules_own(name: str, chunks: int) -> None:
    found = timed(*CASES[name])
    a_stage = sum(part.seconds for one in found.passes for part in one) / 4
    assert 0 < found.breakdown_s["bubble"] <= 3 * a_stage / chunks * (1 + 1e-9)


@pytest.mark.parametrize("vpp", [2, 4, 8])
def test_interleaved_stages_wait_as_many_times_less(vpp: int) -> None:
    whole = timed(DENSE, {"parallelism": {"pp": 4}}).breakdown_s["bubble"]
    cut = timed(DENSE, {"parallelism": {"pp": 4, "vpp": vpp}}).breakdown_s["bubble"]
    assert cut == pytest.approx(whole / vpp, rel=0.1)


def test_sends_that_block_are_exposed_on_every_stage() -> None:
    request = merge(DENSE, {"parallelism": {"pp": 4}})
    blocking, overlapped = (timed(request, {"parallelism": {"overlap": axes}}) for axes in ([], ["pp"]))
    sent = 256 // 16
    for stage in range(4):
        # Forward and backward of every microbatch are sent, except from the last and to the first stage.
        hops = sent * ((stage < 3) + (stage > 0))
        shortest_s = 1e-5
        assert blocking.stages[stage]["pp_exposed"] > hops * shortest_s
    assert blocking.step_time_s >= overlapped.step_time_s


def test_a_slow_link_is_charged_to_the_pipeline_not_to_stragglers() -> None:
    request = merge(DENSE, {"parallelism": {"pp": 4}})
    slow = {"cluster": {"base": "charllm-ppt-h100", "fabric": {"nic_bandwidth_gbit_per_s": 10}}}
    fast, late = timed(request), timed(request, slow)
    more = {label: late.breakdown_s[label] - fast.breakdown_s[label] for label in LABELS}
    assert more["pp_exposed"] > 0.6 * sum(seconds for label, seconds in more.items() if label != "dp_exposed")


def test_a_longer_stage_makes_the_others_wait() -> None:
    even, uneven = (
        timed(DENSE, {"parallelism": {"pp": 4, "layers_per_stage": split}}) for split in ([8, 8, 8, 8], [5, 11, 8, 8])
    )
    assert uneven.breakdown_s["straggler_wait"] > even.breakdown_s["straggler_wait"]
    assert uneven.step_time_s > even.step_time_s
    assert uneven.stages[1]["straggler_wait"] < uneven.stages[0]["straggler_wait"]


def test_gradients_hide_under_the_last_backward() -> None:
    plain, overlapped = (timed(DENSE, {"parallelism": {"zero": 1, "overlap": axes}}) for axes in ([], ["dp"]))
    assert overlapped.breakdown_s["dp_exposed"] < plain.breakdown_s["dp_exposed"]
    assert overlapped.hidden_s["dp"] > 0
    assert plain.hidden_s["dp"] == 0


@pytest.mark.parametrize("degrees", [{"ep": 8, "tp": 8}, {"tp": 32}])
def test_gradients_that_would_wait_longer_beside_other_exchanges_than_alone_are_not_hidden(
    degrees: dict[str, int],
) -> None:
    plain, overlapped = (timed(SPARSE, {"parallelism": {**degrees, "overlap": axes}}) for axes in ([], ["dp"]))
    assert overlapped.breakdown_s["dp_exposed"] <= plain.breakdown_s["dp_exposed"] * (1 + 1e-12)


def test_the_step_time_of_a_result_is_that_of_the_step() -> None:
    run = resolve_run(merge(*CASES["1f1b"]))
    metrics = simulate(run).metrics
    # The loop adds what bursts and heat do to the clock that the whole step settles at.
    assert metrics["step_time_s"] == pytest.approx(solve_step(build_step(run)).step_time_s, rel=0.05)
    assert metrics["step_time_s"] >= time_at_highest_clock(build_step(run)).step_time_s * (1 - 1e-3)
    assert metrics["tokens_per_s"] == pytest.approx(run.tokens_per_step / metrics["step_time_s"])
    assert metrics["tokens_per_s_per_gpu"] == pytest.approx(metrics["tokens_per_s"] / 64)
    peak = run.cluster.gpu.peak_bf16_flop_per_s
    assert metrics["mfu"] == pytest.approx(metrics["model_flop"] / metrics["step_time_s"] / 64 / peak)
    assert all(value is None or 0 <= value <= 1 for value in metrics["link_utilization_fraction"].values())


def test_a_run_that_does_not_fit_has_times_only_on_request() -> None:
    run = resolve_run({"model": "gpt3-175b", "cluster": "h200x1", "training": {"global_batch_size": 1}})
    refused, asked = simulate(run), simulate(run, ignore_memory=True)
    timings = ("step_time_s", "tokens_per_s", "tokens_per_s_per_gpu", "mfu", "breakdown_s")
    assert refused.metrics["fits"] is asked.metrics["fits"] is False
    assert all(refused.metrics[name] is None for name in timings)
    assert all(asked.metrics[name] for name in timings)


def test_a_host_that_clips_gradients_launches_the_update_after_it_has_read_their_norm() -> None:
    def host_s(launch_s: float, clip: bool) -> float:
        software = {"base": "megatron", "launch_s": launch_s}
        changes = {"cluster": "h200x1", "model": "llama3.2-1b", "framework": software}
        return (
            timed(DENSE, merge(changes, {"training": {"global_batch_size": 4, "clip_gradients": clip}}))
            .endings[0]
            .host_s
        )

    # A few launches of an update pass while the GPU works on the first; those of a slow host do not.
    assert host_s(1e-5, clip=True) == host_s(1e-5, clip=False) == 0
    assert host_s(5e-3, clip=True) > 0
    assert host_s(5e-3, clip=True) >= host_s(5e-3, clip=False)


def test_a_step_of_profiled_layers_has_no_other_host_time() -> None:
    found = timed(DENSE, {"framework": {"base": "megatron", "composed": True}})
    assert [ending.host_s for ending in found.endings] == [0.0]
    assert sum(found.breakdown_s.values()) == pytest.approx(found.step_time_s, rel=1e-9)


def offloaded(**training: float) -> StepTime:
    request = {"model": "llama3-8b", "cluster": "h200x8", "training": {"global_batch_size": 16, **training}}
    return time_at_highest_clock(build_step(resolve_run(request)))


def test_offloaded_states_wait_for_the_hosts_update() -> None:
    none, half, everything = (
        offloaded(optimizer_offload_fraction=fraction).endings[0].host_s for fraction in (0.0, 0.5, 1.0)
    )
    assert none < half < everything
    # 8.03 billion weights at 4 bytes of gradient and twice 12 of states, and 6 bytes of copies, over 110 GB/s.
    assert everything == pytest.approx(8.03e9 * (28 + 6) / 1.1e11, rel=0.1)


def test_few_cores_and_memory_that_is_not_page_locked_slow_the_hosts_update() -> None:
    def host_s(cores: int, *, pinned: bool = True) -> float:
        node = {"base": "hgx-h200", "host_cores": cores, "host_memory_bytes_per_s": 1e12}
        training = {"global_batch_size": 16, "optimizer_offload_fraction": 1.0, "pinned_offload": pinned}
        request = {"model": "llama3-8b", "cluster": {"base": "h200x8", "node": node}, "training": training}
        return time_at_highest_clock(build_step(resolve_run(request))).endings[0].host_s

    assert host_s(16) - host_s(32) == pytest.approx(8.03e9 / 81e6 / 32, rel=0.05)
    assert host_s(32) > host_s(0)
    assert host_s(0, pinned=False) > host_s(0)


def test_offloaded_activations_pace_a_step_that_computes_faster_than_they_are_copied() -> None:
    none, some, everything = (offloaded(activation_offload_fraction=share).step_time_s for share in (0.0, 0.1, 1.0))
    assert some == pytest.approx(none, rel=0.01)
    kept_bytes = sum(memory.activations for memory in rank_memories(build_step(resolve_run(
        {"model": "llama3-8b", "cluster": "h200x8", "training": {"global_batch_size": 16}}
    ))))  # fmt: skip
    # Two microbatches, there and back.
    assert everything > 0.8 * 4 * kept_bytes / 55e9


def test_a_boundary_in_parts_sends_less_and_is_gathered() -> None:
    whole, parts = (
        build_step(resolve_run(merge(DENSE, {
            "framework": {"base": "megatron-2020", "scattered_sends": scattered}, "parallelism": {"tp": 4, "pp": 4},
        })))
        for scattered in (False, True)
    )  # fmt: skip
    (sent,), (part,), (gathered,) = whole.boundary_ops, parts.boundary_ops, parts.boundary_gathers
    assert part.message_bytes == pytest.approx(sent.message_bytes / 4)
    assert gathered.message_bytes == pytest.approx(sent.message_bytes)
    assert not whole.boundary_gathers
    hops_s = [hop_seconds(step, NETWORK)[0] for step in (whole, parts)]
    assert hops_s[1] < hops_s[0]


def test_the_bubble_of_zero_bubble_is_a_forward_and_a_backward_less_a_weight_pass_for_each_stage() -> None:
    # (p - 1) (F + B - W) with B the gradient of inputs alone; what equal stages wait beyond it is straggling.
    found = timed(*CASES["zero-bubble"])
    forward, backward, weight = (
        sum(getattr(one, name).seconds for one in found.passes) / 4 for name in ("forward", "backward", "weight")
    )
    due = 3 * (forward + backward - weight)
    assert max(labels["bubble"] for labels in found.stages) == pytest.approx(due)
    assert all(labels["bubble"] <= due * (1 + 1e-9) for labels in found.stages)


def test_a_sharded_pipeline_gathers_all_layers_of_a_stage_in_one_message() -> None:
    request, changes = CASES["zero 3 in a pipeline"]
    step = build_step(resolve_run(merge(request, changes)))
    for stage in range(4):
        layers = sum(block.repeats for block in step.stage_blocks(stage) if block.is_layer)
        (block,) = {id(one): one for one in step.stage_blocks(stage) if one.is_layer}.values()
        (gather,) = (op for op in layer_gather(step, block))
        whole = [op for op in sharded_once(step, stage) if op.kind == gather.kind]
        assert layers == step.run.model.layers / 4
        assert layers * gather.message_bytes in [op.message_bytes for op in whole]
        assert layers * gather.sent_bytes in [op.sent_bytes for op in whole]


def test_a_host_bound_step_whose_weights_are_gathered_under_its_first_pass_is_not_shorter_at_a_lower_clock() -> None:
    request = {
        "model": "gpt2", "framework": "megatron-bridge",
        "cluster": {"base": "charllm-ppt-h200", "nodes": 2, "node": {"gpus": 1, "upstream": []}},
        "parallelism": {"zero": 2},
        "training": {"micro_batch_size": 1, "global_batch_size": 2, "optimizer": "none", "precision": "fp32"},
    }  # fmt: skip
    step = build_step(resolve_run(request))
    kernels = read_step(step)
    each = [time_step(step, cost_step(step, kernels, hertz)) for hertz in (1.98e9, 1.4e9, 0.8e9)]
    assert each[0].endings[0].weights_s > 1e-3
    assert each[0].breakdown_s["overhead"] > 1e-3
    assert each[0].step_time_s < each[1].step_time_s < each[2].step_time_s
