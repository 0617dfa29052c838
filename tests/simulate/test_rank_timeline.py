"""A rank's timeline out of a spec: the arithmetic and the traffic are the workload's, the waits are the schedule's."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.gpu.shape import KernelShape, check_shape, work
from charllm.layout.grid import Grid
from charllm.simulate.predict import predict
from charllm.simulate.rank_timeline import _Layers, _parts, generate_timeline, rank_timeline, simulated_gpu
from charllm.simulate.recorded import END, START, WAIT, own_clock_hz
from charllm.simulate.slices import SlicedLayers
from charllm.simulate.step_loop import EXCHANGED_S
from charllm.spec.request import merge
from charllm.spec.run import RunSpec
from charllm.sweep.study import load_study
from charllm.timeline.rank_timeline import Item, RankTimeline, Segment
from charllm.workload.op import MATRIX_KINDS
from charllm.workload.step import build_step
from charllm.workload.totals import stage_ops
from tests.timeline.grids import GRIDS as EVERY_GRID
from tests.timeline.grids import SMALL

STUDIES = {
    f"{study} {case.name}": case.request
    for study, every in (("parallelism", 1), ("optimization-h200", 4), ("microbatch-h200", 5), ("lora-h200", 6))
    for case in load_study(f"charllm-ppt-{study}").cases[::every]
}
PADDED = ("latent attention",)
"""Grids whose kernels compute more than their ops count."""
GRIDS = {name: grid for name, grid in EVERY_GRID.items() if name not in PADDED}


def small(name: str) -> RunSpec:
    return resolve_run(merge(SMALL, GRIDS[name]))


@cache
def shape_flop(shape: tuple[Any, ...]) -> float:
    return work(KernelShape(*shape))[0]


def played_flop(timeline: RankTimeline) -> float:
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
    found = predict(run, ignore_memory=True, whole=True)
    for stage, rank in first_ranks(run).items():
        timeline = rank_timeline(found, rank)
        assert played_flop(timeline) == pytest.approx(workload_flop(run, stage), rel=1e-9)
        assert timeline.tokens == run.tokens_per_step // run.parallelism.dp


@pytest.mark.parametrize("name", GRIDS)
def test_every_rank_of_a_small_grid_has_known_kernels_and_the_workloads_flop(name: str) -> None:
    run = small(name)
    found = predict(run, ignore_memory=True, whole=True)
    assert rank_timeline(found, 0) == generate_timeline(run, 0)
    for rank in range(run.parallelism.world):
        timeline = rank_timeline(found, rank)
        stage = int(Grid(run.parallelism).stage(rank))
        # With a sequence cut in two, the kernel of as many pairs has no whole length.
        exact = 1e-9 if run.parallelism.cp == 1 else 0.02
        assert played_flop(timeline) == pytest.approx(workload_flop(run, stage), rel=exact)
        for shape in timeline.shapes():
            check_shape(KernelShape(*shape), name)


@pytest.mark.parametrize("name", GRIDS)
def test_emulated_communication_is_the_simulated_steps(name: str) -> None:
    found = predict(small(name))
    run, machine, timed = found.step.run, found.machine, found.timed
    assert machine is not None
    assert timed is not None
    for stage, rank in first_ranks(run).items():
        timeline = rank_timeline(found, rank)
        moved = [item for item in timeline.items() if item.kind == "communication" and item.moves]
        exposed_s = sum(item.duration_s for item in moved if item.stream == "compute")
        hidden_s = sum(item.duration_s for item in moved if item.stream not in ("compute", "pp"))
        own = timed.passes[stage :: run.parallelism.pp]
        in_passes_s = run.microbatches * sum(
            seconds
            for one in own
            for part in one
            for label, seconds in part.labels.items()
            if label.endswith("_exposed")
        )
        met_s = sum(item.duration_s for item in timeline.items() if not item.moves and item.name != "wait")
        taken_s = exposed_s + timed.costs.timeline.contention_fraction * hidden_s + met_s
        assert taken_s == pytest.approx(
            in_passes_s + timed.endings[stage].gradients_s + timed.endings[stage].weights_s, rel=1e-6, abs=1e-8
        )


SCHEDULED = ("pp4-dp2", "recompute", "zero bubble", "gpipe", "interleaved")


@pytest.mark.parametrize("name", SCHEDULED)
def test_waits_are_those_of_the_simulated_step(name: str) -> None:
    found = predict(small(name))
    run, machine, simulated_step = found.step.run, found.machine, found.simulated_step
    assert machine is not None
    assert simulated_step is not None
    for stage in range(run.parallelism.pp):
        rank = int(Grid(run.parallelism).rank(0, stage))
        timeline, gpu = rank_timeline(found, rank), simulated_gpu(machine, rank)
        mine = machine.turns[:, 0] == stage
        passes = simulated_step.passes[mine, 0]
        busy_s = float(np.sum(passes[:, END] - passes[:, START] - passes[:, WAIT]))
        waited_s = sum(item.duration_s for item in timeline.items() if not item.moves or item.kind == "wait")
        exchanged_s = float(simulated_step.sums[gpu, EXCHANGED_S])
        updated_s = float(machine.update_s(0, own_clock_hz(simulated_step, gpu))[stage])
        assert busy_s + waited_s + exchanged_s + updated_s == pytest.approx(simulated_step.step_time_s, rel=0.005)


@pytest.mark.parametrize("name", SCHEDULED)
def test_every_pass_of_every_schedule_is_played(name: str) -> None:
    run = small(name)
    for stage in range(run.parallelism.pp):
        timeline = generate_timeline(run, int(Grid(run.parallelism).rank(0, stage)))
        assert played_flop(timeline) == pytest.approx(workload_flop(run, stage), rel=1e-9)


def communication(name: str) -> list[Item]:
    return [item for item in generate_timeline(small(name), 0).items() if item.kind == "communication"]


def test_what_the_simulated_step_hides_has_its_own_stream() -> None:
    assert {item.stream for item in communication("overlap")} == {"compute", "tp"}
    assert {item.stream for item in communication("fsdp8")} == {"compute", "dp"}
    # Megatron hides some of a backward pass's exchanges without being asked.
    assert {item.stream for item in communication("tp2-pp2-dp2")} == {"compute", "tp"}


@pytest.mark.parametrize("name", ["overlap", "tp2-pp2-dp2", "fsdp8", "cp2-tp2-dp2", "experts"])
def test_hidden_parts_are_as_long_as_the_passes_say(name: str) -> None:
    found = predict(small(name))
    run = found.step.run
    assert found.timed is not None
    timeline = rank_timeline(found, 0)
    in_passes = [item for segment in timeline.segments if _is_pass(segment) for item in segment.repeat * segment.items]
    for axis in ("tp", "dp", "ep", "cp"):
        hidden_s = run.microbatches * sum(part.hidden.get(axis, 0.0) for part in found.timed.passes[0])
        assert sum(item.duration_s for item in in_passes if item.stream == axis) == pytest.approx(hidden_s, abs=1e-8)


def _is_pass(segment: Segment) -> bool:
    return segment.label.endswith(("forward", "backward", "weight"))


def test_gradients_hide_under_the_last_backward_pass_and_weights_under_the_first_forward_one() -> None:
    # Gradients of a small model are one bucket, of which nothing hides.
    request = {"model": "llama3-8b", "cluster": "h200x8", "parallelism": {"overlap": ["dp"]}}
    segments = generate_timeline(resolve_run(merge(request, {"training": {"global_batch_size": 16}})), 0).segments
    labels = [segment.label for segment in segments]
    assert labels[0] == "weights"
    last_forward = max(place for place, label in enumerate(labels) if label.endswith("forward"))
    last_backward = max(place for place, label in enumerate(labels) if label.endswith("backward"))
    assert last_forward < labels.index("gradients") < last_backward
    assert {item.stream for item in segments[labels.index("gradients")].items} == {"dp"}
    plain = [segment.label for segment in generate_timeline(small("tp2-pp2-dp2"), 0).segments]
    assert plain.index("gradients") < plain.index("update") < plain.index("weights")


def test_sends_occupy_few_blocks_and_collectives_many() -> None:
    run = resolve_run(merge(SMALL, {"parallelism": {"tp": 2, "pp": 2, "schedule": "gpipe", "overlap": ["pp"]}}))
    items = [item for item in generate_timeline(run, 0).items() if item.kind == "communication"]
    blocks = {item.name.split()[-1]: item.blocks for item in items}
    assert blocks["send"] < min(count for name, count in blocks.items() if name != "send")


@pytest.mark.parametrize("rank", [-1, 8, 1000])
def test_a_rank_that_is_not_there_is_refused(rank: int) -> None:
    with pytest.raises(SpecError, match="0 to 7"):
        generate_timeline(small("pp4-dp2"), rank)


@pytest.mark.parametrize(
    ("slices", "waits_s", "expected"),
    [
        ((((0, 1.0), (1, 1.0)), ((2, 1.0),)), (0.5, 0.25), ["ab", 0.5, "c", 0.25]),
        ((((0, 1.0),), ((1, 1.0),), ((2, 1.0),)), (0.5, 0.0, 0.25), ["a", 0.5, "bc", 0.25]),
        ((((0, 1.0), (1, 1.0)), ((2, 1.0),)), (0.0, 0.25), ["abc", 0.25]),
        ((((0, 1.0), (1, 0.5)), ((1, 0.5), (2, 1.0))), (0.5, 0.25), ["a", 0.5, "bc", 0.25]),
    ],
    ids=["after two ops", "twice", "at the end", "inside an op"],
)
def test_a_layer_is_parted_after_the_slice_that_waited(
    slices: tuple[tuple[tuple[int, float], ...], ...], waits_s: tuple[float, ...], expected: list[str | float]
) -> None:
    ops = tuple((Item("kernel", name),) for name in "abc")
    layers = _Layers("forward", ops, [])
    whole = Segment("forward", 1, tuple(item for one in ops for item in one))
    parts = _parts(layers, whole, SlicedLayers(slices, 1), iter(waits_s))
    found = [
        one.items[0].duration_s if one.label == "wait" else "".join(item.name for item in one.items) for one in parts
    ]
    # What is left after the last wait, nothing.
    assert found == [*expected, "", 0.0]
