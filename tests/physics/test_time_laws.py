"""Laws that time obeys whatever the run."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.network.collectives import collective_seconds
from charllm.simulate.one_clock import solve_step
from charllm.spec.request import merge
from charllm.spec.run import RunSpec
from charllm.timeline.arrival import slowest_of
from charllm.timeline.constants import TIMELINE
from charllm.timeline.step_time import StepTime
from charllm.workload.op import Op
from charllm.workload.step import Step, build_step
from charllm.workload.sync import count_buckets, step_sync
from tests.random_specs.strategies import sensible_requests
from tests.timeline.unlimited import time_at_highest_clock

EXAMPLES = settings(max_examples=60)
SMALL_MODEL: dict[str, Any] = {
    "name": "even", "layers": 16, "hidden": 4096, "ffn": 16384, "heads": 32, "kv_heads": 32, "head_dim": 128,
    "vocab": 0, "seq_length": 4096,
}  # fmt: skip
"""No vocabulary: all stages are alike but for the last one's norm."""
NO_HOST: dict[str, Any] = {"base": "megatron", "graphs": "full"}


def resolve(request: dict[str, Any], changes: dict[str, Any] | None = None) -> RunSpec:
    """Resolve a random request with few microbatches: more make an example long and not harder."""
    try:
        run = resolve_run(merge(merge(request, {"training": {"global_batch_size": 256}}), changes or {}))
    except SpecError:
        assume(False)
        raise
    return run


def timed(run: RunSpec) -> StepTime:
    return time_at_highest_clock(build_step(run))


def seconds(run: RunSpec) -> float:
    return timed(run).step_time_s


SETTLED = 1.005
"""By how much a solved clock may break a law: it is solved to 0.2 %."""


def settled_s(run: RunSpec) -> float:
    return solve_step(build_step(run)).step_time_s


def rounding(run: RunSpec) -> float:
    """By how much a law may be broken: by rounding, or where a host lags behind a sharded layer by half a per cent.

    What stays exposed of a sharded layer's exchange is placed after the layer's ops, although it would pass while the
    GPU waits for launches before them: when ops get shorter, what they hide of it does too, and nothing ends sooner.
    """
    hosted = run.framework.graphs != "full" and run.parallelism.zero >= 2
    return 1.005 if hosted else 1 + 1e-9


@settings(max_examples=150)
@given(sensible_requests())
def test_every_second_of_every_stage_has_one_label(request: dict[str, Any]) -> None:
    found = timed(resolve(request))
    assert sum(found.breakdown_s.values()) == pytest.approx(found.step_time_s, rel=1e-9)
    for labels in found.stages:
        assert sum(labels.values()) == pytest.approx(found.step_time_s, rel=1e-9)
        assert min(labels.values()) >= 0


BETTER: dict[str, tuple[str, tuple[str, ...]]] = {
    "memory bandwidth": ("gpu", ("memory_bandwidth_bytes_per_s",)),
    "peaks": (
        "gpu",
        (
            "peak_bf16_flop_per_s",
            "peak_fp16_flop_per_s",
            "peak_fp8_flop_per_s",
            "peak_fp4_flop_per_s",
            "peak_fp32_flop_per_s",
            "peak_tf32_flop_per_s",
            "multiprocessors",
        ),
    ),
    "GEMMs": ("kernels", ("matrix_fraction", "fp8_fraction", "fp4_fraction")),
    "attention": ("kernels", ("attention_fraction", "attention_backward_fraction")),
    "memory": ("kernels", ("memory_fraction",)),
    "links": ("node", ("link_bandwidth_bytes_per_s",)),
    "PCIe": ("node", ("pcie_bandwidth_bytes_per_s",)),
    "NICs": ("fabric", ("nic_bandwidth_bytes_per_s",)),
    "more NICs": ("fabric", ("nics_per_node",)),
}
"""What may be better: the part of the cluster it belongs to, and the fields that say it."""


def improve(run: RunSpec, what: str, factor: int) -> RunSpec:
    """Multiply one property of the run's hardware; shares stay at most 1."""
    cluster, (part, names) = run.cluster, BETTER[what]
    gpu = cluster.gpu
    holder: Any = {"gpu": gpu, "kernels": gpu.kernels, "node": cluster.node, "fabric": cluster.fabric}[part]
    values = {name: factor * getattr(holder, name) for name in names}
    values = {name: min(1.0, value) if name.endswith("fraction") else value for name, value in values.items()}
    if part in ("gpu", "kernels"):
        better = replace(gpu, **values) if part == "gpu" else replace(gpu, kernels=replace(gpu.kernels, **values))
        node = replace(cluster.node, gpu=better)
        return replace(run, cluster=replace(cluster, node=node))
    changed = replace(holder, **values)
    return replace(run, cluster=replace(cluster, **{part: changed}))


@settings(max_examples=120)
@given(sensible_requests(), st.sampled_from(sorted(BETTER)), st.integers(2, 8))
def test_better_hardware_is_never_slower(request: dict[str, Any], what: str, factor: int) -> None:
    run = resolve(request)
    assert seconds(improve(run, what, factor)) <= seconds(run) * rounding(run)


@EXAMPLES
@given(sensible_requests(), st.sampled_from(sorted(BETTER)), st.integers(2, 8))
def test_better_hardware_is_never_slower_under_a_host_that_costs_nothing(
    request: dict[str, Any], what: str, factor: int
) -> None:
    run = resolve(request)
    run = replace(run, framework=replace(run.framework, graphs="full"))
    assert seconds(improve(run, what, factor)) <= seconds(run) * rounding(run)


def test_better_kernels_are_never_slower_where_gradients_hide_under_a_host_that_lags() -> None:
    changes = {"framework": {"base": "megatron", "launch_s": 2e-4}, "training": {"seq_length": 64}}
    run = resolve(
        {"model": "llama3-8b", "cluster": "charllm-ppt-h100", "parallelism": {"zero": 1, "overlap": ["dp"]}}, changes
    )
    before = timed(run)
    assert before.breakdown_s["overhead"] > before.breakdown_s["compute"]
    assert before.hidden_s["dp"] > 0
    for what in ("memory bandwidth", "GEMMs", "attention", "memory"):
        assert seconds(improve(run, what, 2)) <= before.step_time_s * rounding(run), what


@EXAMPLES
@given(sensible_requests(), st.floats(0, 1), st.floats(0, 1))
def test_a_lower_power_cap_is_never_faster(request: dict[str, Any], one: float, other: float) -> None:
    run = resolve(request)
    gpu = run.cluster.gpu
    low, high = (
        replace(run.conditions, power_cap_w=max(10.0, (1 - share) * gpu.power_cap_min_w + share * gpu.power_cap_w))
        for share in sorted((one, other))
    )
    lower_s, higher_s, free_s = (settled_s(replace(run, conditions=cap)) for cap in (low, high, run.conditions))
    assert free_s <= higher_s * SETTLED
    assert higher_s <= lower_s * SETTLED


@EXAMPLES
@given(sensible_requests(), st.floats(0.2, 1), st.floats(0.2, 1))
def test_a_lower_clock_cap_is_never_faster(request: dict[str, Any], one: float, other: float) -> None:
    run = resolve(request)
    gpu = run.cluster.gpu
    low, high = (
        replace(run.conditions, clock_cap_hz=max(gpu.clock_idle_hz, share * gpu.clock_max_hz))
        for share in sorted((one, other))
    )
    lower_s, higher_s, free_s = (settled_s(replace(run, conditions=cap)) for cap in (low, high, run.conditions))
    assert free_s <= higher_s * SETTLED
    assert higher_s <= lower_s * SETTLED


@EXAMPLES
@given(sensible_requests())
def test_recomputing_more_is_never_faster(request: dict[str, Any]) -> None:
    none, selective, full = (
        resolve(request, {"training": {"recompute": kind}}) for kind in ("none", "selective", "full")
    )
    assert seconds(none) <= seconds(selective) * rounding(none)
    assert seconds(selective) <= seconds(full) * rounding(none)


@EXAMPLES
@given(sensible_requests())
def test_a_host_that_launches_faster_is_never_slower(request: dict[str, Any]) -> None:
    run = resolve(request)
    slow, fast = (seconds(replace(run, framework=replace(run.framework, launch_s=each))) for each in (2e-5, 2e-6))
    assert fast <= slow * (1 + 1e-9)


@EXAMPLES
@given(sensible_requests())
def test_twice_the_batch_never_takes_less_nor_more_than_twice_as_long(request: dict[str, Any]) -> None:
    one, two = (seconds(resolve(request, {"training": {"global_batch_size": batch}})) for batch in (1024, 2048))
    assert one <= two * (1 + 1e-9)
    # The first microbatch has no gradients to add to, and only later ones take that time.
    assert two <= 2 * one * 1.01


@EXAMPLES
@given(sensible_requests(), st.sampled_from(["tp", "pp", "ep", "cp"]))
def test_overlap_is_never_slower_than_none(request: dict[str, Any], axis: str) -> None:
    # Hidden communication slows compute by a part of its length, so that hiding it never costs what it saves.
    assert TIMELINE.contention_fraction < 1
    plain, overlapped = (resolve(request, {"parallelism": {"overlap": axes}}) for axes in ([], [axis]))
    before, after = timed(plain), timed(overlapped)
    assert after.step_time_s <= before.step_time_s * rounding(plain)
    assert after.hidden_s[axis] >= before.hidden_s[axis] * (1 - 1e-9)


def bucket_s(step: Step, stage: int) -> float:
    """Time that cutting a stage's exchange into buckets adds."""
    return sum(_cut_s(step, op, count_buckets(step, op)) for op in step_sync(step, stage) if op.group != "pp")


def _cut_s(step: Step, op: Op, parts: int) -> float:
    part = op._replace(message_bytes=op.message_bytes / parts, sent_bytes=op.sent_bytes / parts)
    return parts * collective_seconds(part, step.run) - collective_seconds(op, step.run)


@EXAMPLES
@given(sensible_requests(), st.integers(0, 2))
def test_overlapped_gradients_cost_no_more_than_latencies_of_buckets_and_sends_they_meet(
    request: dict[str, Any], zero: int
) -> None:
    plain, overlapped = (resolve(request, {"parallelism": {"overlap": axes, "zero": zero}}) for axes in ([], ["dp"]))
    step = build_step(overlapped)
    jitter = 1 + TIMELINE.straggler_fraction * slowest_of(plain.parallelism.world)
    # Gradients end on one stage last, weights perhaps on another.
    found = time_at_highest_clock(step)
    added_s = 2 * jitter * max(bucket_s(step, stage) for stage in range(plain.parallelism.pp))
    added_s += jitter * float(found.events.late_s.sum())
    assert found.step_time_s <= seconds(plain) * (1 + 1e-9) + added_s


def even_pipeline(pp: int, microbatches: int, schedule: str = "1f1b", vpp: int = 1) -> StepTime:
    request = {
        "model": SMALL_MODEL,
        "cluster": "h100x8",
        "framework": NO_HOST,
        "parallelism": {"pp": pp, "vpp": vpp, "schedule": schedule, "dp": 8 // pp, "overlap": ["pp"]},
        "training": {"global_batch_size": microbatches * 8 // pp, "optimizer": "none"},
    }
    return timed(resolve_run(request))


@pytest.mark.parametrize(
    ("pp", "vpp", "schedule"), [(2, 1, "1f1b"), (4, 1, "gpipe"), (8, 1, "1f1b"), (4, 4, "interleaved")]
)
def test_equal_stages_wait_p_minus_one_of_m_parts(pp: int, vpp: int, schedule: str) -> None:
    for microbatches in (8, 16, 64):
        found = even_pipeline(pp, microbatches, schedule, vpp)
        busy_s = found.breakdown_s["compute"]
        assert found.breakdown_s["bubble"] / busy_s == pytest.approx((pp - 1) / (vpp * microbatches), rel=0.01)
        # All GPUs wait for the slowest of eight.
        slowest = TIMELINE.straggler_fraction * slowest_of(8)
        assert found.breakdown_s["straggler_wait"] < (0.01 + slowest) * found.step_time_s


def test_smaller_microbatches_trade_filled_kernels_for_a_smaller_bubble() -> None:
    def cut(size: int) -> StepTime:
        changes = {"parallelism": {"pp": 4, "dp": 2}, "training": {"micro_batch_size": size, "global_batch_size": 32}}
        request = {"model": SMALL_MODEL, "cluster": "h100x8", "framework": NO_HOST}
        return timed(resolve_run(merge(request, changes)))

    whole, halves = cut(2), cut(1)
    assert halves.breakdown_s["bubble"] == pytest.approx(whole.breakdown_s["bubble"] / 2, rel=0.1)
    assert halves.breakdown_s["compute"] >= whole.breakdown_s["compute"]


@EXAMPLES
@given(sensible_requests(), st.sampled_from(["1f1b", "gpipe"]), st.sampled_from([2, 4]))
def test_the_bubbles_share_falls_with_more_microbatches(request: dict[str, Any], schedule: str, pp: int) -> None:
    cut = {"parallelism": {"pp": pp, "vpp": 1, "schedule": schedule}}
    shares = []
    for batch in (256, 512, 1024):
        found = timed(resolve(merge(request, cut), {"training": {"global_batch_size": batch}}))
        shares.append(found.breakdown_s["bubble"] / found.step_time_s)
    assert shares == sorted(shares, reverse=True)


@pytest.mark.parametrize("zero", [0, 1, 3])
def test_twice_the_nics_halve_what_replicas_expose_between_nodes(zero: int) -> None:
    # Eight ranks of each node are one replica: all gradients leave through its NICs.
    request: dict[str, Any] = {
        "model": "llama3-70b",
        "cluster": {"base": "charllm-ppt-h100", "fabric": {"nics_per_node": 1}},
        "parallelism": {"tp": 8, "zero": zero},
        "training": {"global_batch_size": 8},
    }
    one, two, four = (
        timed(resolve_run(merge(request, {"cluster": {"fabric": {"nics_per_node": nics}}}))).breakdown_s["dp_exposed"]
        for nics in (1, 2, 4)
    )
    # Layer by layer, what compute hides does not shrink with the exchange.
    assert two == pytest.approx(one / 2, rel=0.02 if zero < 3 else 0.5)
    assert four <= two / 2 * 1.02
