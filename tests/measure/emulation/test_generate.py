"""A rank's timeline out of a spec: the arithmetic and the traffic are the workload's, the waits are the schedule's."""

from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.layout.grid import Grid
from charllm.measure.emulation import generate
from charllm.measure.emulation.generate import generate_timeline, transfer_s
from charllm.measure.kernels.shape import KernelShape, check_shape, work
from charllm.spec.request import merge
from charllm.spec.run import RunSpec
from charllm.sweep.study import load_study
from charllm.timeline.play import PlayTimeline, Segment
from charllm.workload.op import MATRIX_KINDS, is_communication
from charllm.workload.step import build_step
from charllm.workload.totals import stage_ops

STUDIES = {
    f"{study} {case.name}": case.request
    for study, every in (("parallelism", 1), ("optimization-h200", 4), ("microbatch-h200", 5), ("lora-h200", 6))
    for case in load_study(f"charllm-ppt-{study}").cases[::every]
}
SMALL: dict[str, Any] = {
    "model": {"name": "tiny", "layers": 4, "hidden": 64, "ffn": 128, "heads": 4, "vocab": 64},
    "cluster": "h200x8",
    "training": {"seq_length": 32, "global_batch_size": 16},
}
SPARSE = {"model": {"experts": 4, "topk": 2, "expert_ffn": 64, "shared_ffn": 64}}
GRIDS: dict[str, dict[str, Any]] = {
    "tp2-pp2-dp2": {"parallelism": {"tp": 2, "pp": 2}},
    "pp4-dp2": {"parallelism": {"pp": 4}},
    "cp2-tp2-dp2": {"parallelism": {"cp": 2, "tp": 2}},
    "fsdp8": {"parallelism": {"zero": 3}},
    "fsdp4-pp2": {"parallelism": {"zero": 3, "pp": 2}},
    "zero2-pp2": {"parallelism": {"zero": 2, "pp": 2}},
    "overlap": {"parallelism": {"tp": 2, "zero": 1, "overlap": ["tp", "dp"]}},
    "experts": merge(SPARSE, {"parallelism": {"ep": 4, "tp": 2}}),
    "grouped experts": merge(SPARSE, {"parallelism": {"ep": 2}, "training": {"grouped_gemm": True}}),
    "tied": {"model": {"tied_embeddings": True}, "parallelism": {"pp": 2}},
    "recompute": {"parallelism": {"pp": 2}, "training": {"recompute": "full"}},
    "lora": {"parallelism": {"tp": 2, "pp": 2}, "training": {"lora_rank": 8}},
    "fp8": {"parallelism": {"tp": 2}, "training": {"precision": "fp8"}},
    "zero bubble": {"parallelism": {"pp": 2, "schedule": "zero-bubble"}},
}


def small(name: str) -> RunSpec:
    return resolve_run(merge(SMALL, GRIDS[name]))


@cache
def shape_flop(shape: tuple[Any, ...]) -> float:
    return work(KernelShape(*shape))[0]


def played_flop(timeline: PlayTimeline) -> float:
    return sum(
        segment.repeat * sum(shape_flop(item.shape) for item in segment.items if item.kind == "kernel")
        for segment in timeline.segments
    )


def workload_flop(run: RunSpec, stage: int) -> float:
    return sum(op.flop * times for op, times, _ in stage_ops(build_step(run), stage) if op.kind in MATRIX_KINDS)


def first_ranks(run: RunSpec) -> dict[int, int]:
    """Return a rank of the first, a middle and the last stage."""
    pp = run.parallelism.pp
    return {stage: int(Grid(run.parallelism).rank(0, stage)) for stage in (0, pp // 2, pp - 1)}


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_the_papers_ranks_play_the_flop_that_the_workload_counts(name: str) -> None:
    run = resolve_run(STUDIES[name])
    for stage, rank in first_ranks(run).items():
        timeline = generate_timeline(run, rank)
        assert played_flop(timeline) == pytest.approx(workload_flop(run, stage), rel=1e-9)
        assert timeline.tokens == run.tokens_per_step // run.parallelism.dp


@pytest.mark.parametrize("name", GRIDS)
def test_every_rank_of_a_small_grid_has_known_kernels_and_the_workloads_flop(name: str) -> None:
    run = small(name)
    for rank in range(run.parallelism.world):
        timeline = generate_timeline(run, rank)
        stage = int(Grid(run.parallelism).stage(rank))
        # With a sequence cut in two, the kernel of as many pairs has no whole length.
        exact = 1e-9 if run.parallelism.cp == 1 else 0.02
        assert played_flop(timeline) == pytest.approx(workload_flop(run, stage), rel=exact)
        for shape in timeline.shapes():
            check_shape(KernelShape(*shape), name)


@pytest.mark.parametrize("name", GRIDS)
def test_planned_communication_is_the_workloads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "LATENCY_S", 0.0)
    run = small(name)
    step = build_step(run)
    for stage, rank in first_ranks(run).items():
        planned_s = sum(times * transfer_s(run, op) for op, times, _ in stage_ops(step, stage) if is_communication(op))
        neighbours = (stage > 0) + (stage < run.parallelism.pp - 1)
        planned_s += run.microbatches * neighbours * sum(transfer_s(run, op) for op in step.boundary_ops)
        assert generate_timeline(run, rank).total_s("communication") == pytest.approx(planned_s, rel=1e-9)


@pytest.mark.parametrize("microbatches", [1, 2, 3, 4, 9])
def test_waits_add_up_to_the_bubble(microbatches: int) -> None:
    settings = {"parallelism": {"pp": 4}, "training": {"global_batch_size": 2 * microbatches}}
    run = resolve_run(merge(SMALL, settings))
    step = build_step(run)
    for stage in range(4):
        forward_s, backward_s = generate._forward(step, stage).estimated_s, generate._backward(step, stage).estimated_s
        timeline = generate_timeline(run, int(Grid(run.parallelism).rank(0, stage)))
        assert timeline.total_s("wait") == pytest.approx(3 * (forward_s + backward_s), rel=1e-9)


def walk(run: RunSpec, stage: int, forward_s: float, backward_s: float) -> dict[str, list[tuple[float, float]]]:
    """Return when each microbatch passes a stage in each direction, and the end."""
    forward = generate._Pass((Segment("F", 1, ()),), forward_s)
    backward = generate._Pass((Segment("B", 1, ()),), backward_s)
    lengths = {"F": forward_s, "B": backward_s}
    now_s = 0.0
    passes: dict[str, list[tuple[float, float]]] = {"F": [], "B": []}
    for segment in generate._one_f_one_b(run, stage, forward, backward):
        length_s = lengths.get(segment.label) or sum(item.duration_s for item in segment.items)
        if segment.label in passes:
            passes[segment.label].append((now_s, now_s + length_s))
        now_s += length_s
    return {**passes, "end": [(now_s, now_s)]}


@given(
    pp=st.sampled_from([1, 2, 4, 8]),
    microbatches=st.integers(1, 12),
    backward_s=st.floats(0.5, 3.0),
)
def test_no_stage_works_on_a_microbatch_that_has_not_arrived(pp: int, microbatches: int, backward_s: float) -> None:
    settings = {"parallelism": {"pp": pp}, "training": {"global_batch_size": 8 // pp * microbatches}}
    run = resolve_run(merge(SMALL, {**settings, "model": {"layers": 8}}))
    assert run.microbatches == microbatches
    stages = [walk(run, stage, 1.0, backward_s) for stage in range(pp)]
    for before, after in pairwise(stages):
        for (_, sent_s), (begun_s, _) in zip(before["F"], after["F"], strict=True):
            assert begun_s >= sent_s - 1e-9
        for (_, sent_s), (begun_s, _) in zip(after["B"], before["B"], strict=True):
            assert begun_s >= sent_s - 1e-9
    for stage in stages:
        assert len(stage["F"]) == len(stage["B"]) == microbatches
        assert stage["end"][0][0] == pytest.approx((microbatches + pp - 1) * (1.0 + backward_s))


def test_overlapped_communication_has_its_own_stream() -> None:
    items = [item for item in generate_timeline(small("overlap"), 0).items() if item.kind == "communication"]
    assert {item.stream for item in items} == {"tp", "dp"}
    plain = [item for item in generate_timeline(small("tp2-pp2-dp2"), 0).items() if item.kind == "communication"]
    assert {item.stream for item in plain} == {"compute"}


def test_sends_occupy_few_blocks_and_collectives_many() -> None:
    items = [item for item in generate_timeline(small("tp2-pp2-dp2"), 0).items() if item.kind == "communication"]
    blocks = {item.name.split()[-1]: item.blocks for item in items}
    assert blocks["send"] < min(count for name, count in blocks.items() if name != "send")


@pytest.mark.parametrize("rank", [-1, 8, 1000])
def test_a_rank_that_is_not_there_is_refused(rank: int) -> None:
    with pytest.raises(SpecError, match="0 to 7"):
        generate_timeline(small("pp4-dp2"), rank)


@pytest.mark.parametrize("change", [{"parallelism": {"pp": 2, "vpp": 2}}, {"parallelism": {"schedule": "gpipe"}}])
def test_schedules_it_does_not_know_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="for others give --timeline FILE"):
        generate_timeline(resolve_run(merge(SMALL, change)), 0)
