"""Laws that time obeys whatever the run."""

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.spec.request import merge
from charllm.spec.run import RunSpec
from charllm.timeline.step_time import StepTime, time_step
from charllm.workload.step import build_step
from tests.random_specs.strategies import sensible_requests

EXAMPLES = settings(max_examples=60)
ROUNDING = 1 + 1e-9


def resolve(request: dict[str, Any], changes: dict[str, Any] | None = None) -> RunSpec:
    try:
        run = resolve_run(merge(request, changes or {}))
    except SpecError:
        assume(False)
        raise
    return run


def small(request: dict[str, Any]) -> dict[str, Any]:
    """Bound the microbatches, which make an example long and not harder."""
    bounded: dict[str, Any] = merge(request, {"training": {"global_batch_size": 256}})
    return bounded


def timed(request: dict[str, Any], changes: dict[str, Any] | None = None) -> StepTime:
    return time_step(build_step(resolve(small(request), changes)))


def seconds(request: dict[str, Any], changes: dict[str, Any] | None = None) -> float:
    return timed(request, changes).step_time_s


@settings(max_examples=150)
@given(sensible_requests())
def test_every_second_of_every_stage_has_one_label(request: dict[str, Any]) -> None:
    found = timed(request)
    assert sum(found.breakdown_s.values()) == pytest.approx(found.step_time_s, rel=1e-9)
    for labels in found.stages:
        assert sum(labels.values()) == pytest.approx(found.step_time_s, rel=1e-9)
        assert min(labels.values()) >= 0


def improved(run: RunSpec, what: str, factor: float) -> dict[str, Any]:
    """Multiply one property of the run's hardware."""
    node, gpu, fabric = run.cluster.node, run.cluster.gpu, run.cluster.fabric
    peaks = ("peak_bf16_flop_per_s", "peak_fp16_flop_per_s", "peak_fp8_flop_per_s", "peak_fp4_flop_per_s")
    changes: dict[str, Any] = {
        "memory bandwidth": {
            "node": {"gpu": {"memory_bandwidth_bytes_per_s": factor * gpu.memory_bandwidth_bytes_per_s}}
        },
        "FLOP/s": {"node": {"gpu": {name: factor * getattr(gpu, name) for name in peaks}}},
        "links": {"node": {"link_bandwidth_bytes_per_s": factor * node.link_bandwidth_bytes_per_s}},
        "NICs": {"fabric": {"nic_bandwidth_bytes_per_s": factor * fabric.nic_bandwidth_bytes_per_s}},
    }
    return {"cluster": changes[what]}


@EXAMPLES
@given(sensible_requests(), st.sampled_from(["memory bandwidth", "FLOP/s", "links", "NICs"]), st.floats(1.01, 8))
def test_better_hardware_is_never_slower(request: dict[str, Any], what: str, factor: float) -> None:
    # With graphs: a host that sets the pace leaves time to hide in that `timeline/passes.py` does not count, so that
    # faster compute may expose a gather that costs more than it saves.
    run = resolve(resolve(small(request)).as_table(), {"framework": {"graphs": True}})
    better = resolve(run.as_table(), improved(run, what, factor))
    before, after = (time_step(build_step(one)).step_time_s for one in (run, better))
    assert after <= before * ROUNDING


@EXAMPLES
@given(sensible_requests(), st.floats(0, 1), st.floats(0, 1))
def test_a_lower_power_cap_is_never_faster(request: dict[str, Any], one: float, other: float) -> None:
    gpu = resolve(request).cluster.gpu
    low, high = (
        seconds(request, {"conditions": {"power_cap_w": (1 - share) * gpu.power_cap_min_w + share * gpu.power_cap_w}})
        for share in sorted((one, other))
    )
    assert low >= high * (2 - ROUNDING)
    assert high >= seconds(request) * (2 - ROUNDING)


@EXAMPLES
@given(sensible_requests(), st.floats(0.2, 1), st.floats(0.2, 1))
def test_a_lower_clock_cap_is_never_faster(request: dict[str, Any], one: float, other: float) -> None:
    gpu = resolve(request).cluster.gpu
    low, high = (
        seconds(request, {"conditions": {"clock_cap_hz": max(gpu.clock_idle_hz, share * gpu.clock_max_hz)}})
        for share in sorted((one, other))
    )
    assert low >= high * (2 - ROUNDING)
    assert high >= seconds(request) * (2 - ROUNDING)


@EXAMPLES
@given(sensible_requests())
def test_recomputing_more_is_never_faster(request: dict[str, Any]) -> None:
    none, selective, full = (
        seconds(request, {"training": {"recompute": kind}}) for kind in ("none", "selective", "full")
    )
    assert none <= selective * ROUNDING
    assert selective <= full * ROUNDING


@EXAMPLES
@given(sensible_requests(), st.sampled_from(["tp", "pp", "dp"]))
def test_overlap_hides_no_more_than_there_is(request: dict[str, Any], axis: str) -> None:
    plain, overlapped = (timed(request, {"parallelism": {"overlap": axes}}) for axes in ([], [axis]))
    hidden = overlapped.hidden_s[axis]
    assert hidden >= plain.hidden_s[axis] * (2 - ROUNDING)
    assert plain.hidden_s["pp"] == 0


@EXAMPLES
@given(sensible_requests())
def test_a_host_that_launches_faster_is_never_slower(request: dict[str, Any]) -> None:
    run = resolve(small(request))
    slow, fast = (
        time_step(build_step(resolve(run.as_table(), {"framework": {"launch_s": launch_s}}))).step_time_s
        for launch_s in (2e-5, 2e-6)
    )
    assert fast <= slow * ROUNDING


@EXAMPLES
@given(sensible_requests(), st.sampled_from(["1f1b", "gpipe"]), st.sampled_from([2, 4]))
def test_the_bubbles_share_falls_with_more_microbatches(request: dict[str, Any], schedule: str, pp: int) -> None:
    cut = {"parallelism": {"pp": pp, "vpp": 1, "schedule": schedule}}
    shares = []
    for batch in (256, 512, 1024):
        run = resolve(merge(request, cut), {"training": {"global_batch_size": batch}})
        found = time_step(build_step(run))
        shares.append(found.breakdown_s["bubble"] / found.step_time_s)
    assert shares == sorted(shares, reverse=True)


@EXAMPLES
@given(sensible_requests())
def test_twice_the_batch_never_takes_less_nor_more_than_twice_as_long(request: dict[str, Any]) -> None:
    one, two = (seconds(request, {"training": {"global_batch_size": batch}}) for batch in (256, 512))
    assert one <= two * ROUNDING
    assert two <= 2 * one * ROUNDING
