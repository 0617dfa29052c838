"""Figures of traces that are small enough to be worked out by hand."""

from pathlib import Path

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.spec.parallelism import Parallelism
from charllm.trace.analyses.bandwidth import bandwidth_rows, small_message_share
from charllm.trace.analyses.breakdown import break_down
from charllm.trace.analyses.bubble import find_bubbles
from charllm.trace.analyses.critical_path import path_seconds
from charllm.trace.analyses.idle import find_gaps, idle_seconds
from charllm.trace.analyses.kernels import class_seconds, kernel_rows
from charllm.trace.analyses.stragglers import find_straggler
from charllm.trace.analyses.tensor_cores import tensor_core_seconds
from charllm.trace.analyses.waits import split_waits
from charllm.trace.axes import name_axes
from charllm.trace.classes import read_classes
from charllm.trace.summary import summarize
from charllm.units import MICRO
from tests.trace.made import GEMM, Event, collective, event, kernel, launched, run_of, step

TP, DP = (0, 1), (0, 2)


def two_streams() -> list[Event]:
    """Return a step of 100 us: 50 of compute, 40 of communication of which 15 hidden, 5 of copies, 20 idle."""
    return [
        step(0, 0, 100),
        *launched(GEMM, 0, 0, 30, 1),
        collective("allreduce", 20, 25, ranks=TP, group="1", description="TENSOR_MODEL_PARALLEL_GROUP"),
        *launched("vectorized_elementwise_kernel", 10, 50, 20, 2),
        collective("reduce_scatter_tensor", 65, 15, ranks=DP, group="2", description="DATA_PARALLEL_GROUP", stream=21),
        event("Memcpy HtoD", "gpu_memcpy", 78, 7, stream=9, device=0),
        event("cudaDeviceSynchronize", "cuda_runtime", 30, 56),
        event("cudaLaunchKernel", "cuda_runtime", 90, 5, correlation=9),
        kernel("flash_fwd_kernel", 95, 5, correlation=9),
    ]


def test_every_instant_of_a_step_has_one_label(tmp_path: Path) -> None:
    (rank,) = run_of(tmp_path, two_streams()).ranks
    parts = break_down(rank)
    assert parts.step_time_s == pytest.approx(100 * MICRO)
    assert parts.compute_s == pytest.approx(55 * MICRO)
    assert parts.exposed_s == pytest.approx({"tp": 15 * MICRO, "dp": 10 * MICRO})
    assert parts.hidden_s == pytest.approx({"tp": 10 * MICRO, "dp": 5 * MICRO})
    assert parts.copy_s == pytest.approx(5 * MICRO)
    assert parts.idle_s == pytest.approx(15 * MICRO)


def test_a_gap_is_charged_to_what_its_end_waited_for(tmp_path: Path) -> None:
    (rank,) = run_of(tmp_path, two_streams()).ranks
    causes = idle_seconds(find_gaps(rank))
    # 45-50: launched long before. 85-95: launched at 90, after a synchronisation that ended at 86.
    assert causes == pytest.approx(
        {"host": 0, "sync": 10 * MICRO, "kernel_gap": 5 * MICRO, "dependency": 0, "unknown": 0}
    )
    late = [step(0, 0, 50), *launched(GEMM, 0, 0, 10, 1), *launched(GEMM, 30, 33, 17, 2)]
    (rank,) = run_of(tmp_path, late).ranks
    assert idle_seconds(find_gaps(rank))["host"] == pytest.approx(23 * MICRO)
    waits = [step(0, 0, 90), *launched(GEMM, 0, 0, 10, 1), *launched(GEMM, 1, 60, 30, 2)]
    (rank,) = run_of(tmp_path, waits).ranks
    assert idle_seconds(find_gaps(rank))["dependency"] == pytest.approx(50 * MICRO)


def test_the_critical_path_is_as_long_as_the_step(tmp_path: Path) -> None:
    (rank,) = run_of(tmp_path, two_streams()).ranks
    path = path_seconds(rank, find_gaps(rank))
    assert sum(path.values()) == pytest.approx(100 * MICRO)
    assert path["tp all_reduce"] == pytest.approx(25 * MICRO)
    assert path["gemm"] == pytest.approx(20 * MICRO)


def test_classes_add_up_and_kernels_are_listed_by_time(tmp_path: Path) -> None:
    (rank,) = (run := run_of(tmp_path, two_streams())).ranks
    seconds = class_seconds(rank)
    assert seconds["tp all_reduce"] == pytest.approx(25 * MICRO)
    assert seconds["dp reduce_scatter"] == pytest.approx(15 * MICRO)
    assert (seconds["gemm"], seconds["memcpy"]) == pytest.approx((30 * MICRO, 7 * MICRO))
    assert sum(row.seconds for row in kernel_rows(rank)) == pytest.approx(sum(seconds.values()))
    assert tensor_core_seconds(rank, run.classes) == pytest.approx(35 * MICRO)


def test_a_collective_without_arguments_is_named_by_the_range_around_it(tmp_path: Path) -> None:
    exchange = [
        step(0, 0, 100),
        event("nccl:all_to_all", "user_annotation", 1, 20),
        *launched("ncclKernel_SendRecv_RING", 5, 30, 40, 1, stream=9),
        event("nccl:send", "gpu_user_annotation", 75, 20, stream=9, device=0),
        kernel("ncclKernel_SendRecv_RING", 80, 10, 9, correlation=50),
        kernel("something of its own", 91, 1, 9, correlation=51),
        kernel("else", 95, 1, 3, correlation=52),
    ]
    (rank,) = run_of(tmp_path, exchange).ranks
    assert {name: round(seconds / MICRO) for name, seconds in class_seconds(rank).items()} == {
        "all_to_all": 40, "send_recv": 10, "other communication": 1, "unknown": 1,
    }  # fmt: skip


def test_an_unknown_kernel_takes_the_class_of_the_operator_that_launched_it(tmp_path: Path) -> None:
    call = event("cudaLaunchKernel", "cuda_runtime", 2, 1, correlation=4, **{"External id": 77})
    op = event("aten::native_layer_norm", "cpu_op", 1, 5, **{"External id": 77})
    (rank,) = run_of(tmp_path, [step(0, 0, 20), op, call, kernel("my_kernel", 5, 10, correlation=4)]).ranks
    assert list(class_seconds(rank)) == ["norm"]


def three_steps(late_us: float) -> list[Event]:
    """Return steps in which a collective of two ranks ends at 90 us, whenever this rank arrives at it."""
    return [
        one
        for number in range(3)
        for one in (
            step(number, 100 * number, 100),
            *launched(GEMM, 100 * number, 100 * number, late_us, 10 + number),
            collective("allreduce", 100 * number + late_us, 90 - late_us, ranks=(0, 1), group="0"),
        )
    ]


def test_waits_are_told_from_transfers_by_the_last_to_arrive(tmp_path: Path) -> None:
    run = run_of(tmp_path, three_steps(80), three_steps(30))
    found = split_waits(run)
    assert found is not None
    late, early = found.ranks
    assert (late.wait_s, late.transfer_s, late.caused_wait_s) == pytest.approx((0, 10 * MICRO, 50 * MICRO))
    assert (early.wait_s, early.transfer_s, early.caused_wait_s) == pytest.approx((50 * MICRO, 10 * MICRO, 0))
    straggler = find_straggler(found, {rank.rank: break_down(rank) for rank in run.ranks})
    assert straggler is not None
    assert (straggler.rank, straggler.cause) == (0, "more work")


def test_two_groups_of_the_same_ranks_are_matched_apart(tmp_path: Path) -> None:
    twice = [*three_steps(80), *(collective("allreduce", 100 * number + 92, 4, ranks=(0, 1), group="1")
                                 for number in range(3))]  # fmt: skip
    assert split_waits(run_of(tmp_path, twice)) is None
    found = split_waits(run_of(tmp_path, twice, three_steps(30)))
    assert found is not None
    assert [rank.wait_s for rank in found.ranks] == pytest.approx([0, 50 * MICRO])


def test_ranks_that_made_different_calls_are_not_matched(tmp_path: Path) -> None:
    other = [step(0, 0, 90), *launched(GEMM, 0, 0, 9, 1), collective("all_gather", 10, 80, ranks=(0, 1), group="0")]
    assert split_waits(run_of(tmp_path, three_steps(80), other)) is None


def test_bandwidth_is_that_of_the_bus_and_small_messages_are_counted(tmp_path: Path) -> None:
    sized = [
        step(0, 0, 1000),
        *launched(GEMM, 0, 0, 10, 1),
        collective("allreduce", 10, 100, ranks=(0, 1, 2, 3), elements=10**6),
        collective("allreduce", 200, 50, ranks=(0, 1, 2, 3), elements=10**3),
    ]
    large, small = bandwidth_rows(run_of(tmp_path, sized))
    # 2 MB, times 2 * 3 / 4, in 100 us.
    assert (large.size_bytes, large.ranks) == (2 * 10**6, 4)
    assert large.bus_bytes_per_s == pytest.approx(30e9)
    assert large.peak_bytes_per_s is None
    cluster = resolve_run({"model": "llama3-8b", "cluster": "charllm-ppt-h200"}).cluster
    assert bandwidth_rows(run_of(tmp_path, sized), cluster)[0].peak_bytes_per_s == 450e9
    assert small_message_share([large, small]) == pytest.approx(50 / 150)


def test_a_bubble_is_idle_time_and_waiting_in_sends(tmp_path: Path) -> None:
    stage = [
        step(0, 0, 100),
        *launched(GEMM, 0, 0, 10, 1),
        collective("recv", 20, 40, ranks=(0, 1), description="PIPELINE_MODEL_PARALLEL_GROUP"),
        collective("recv", 70, 10, ranks=(0, 1), description="PIPELINE_MODEL_PARALLEL_GROUP"),
        *launched(GEMM, 50, 80, 20, 2),
    ]
    (bubble, other) = find_bubbles(run_of(tmp_path, stage, stage))
    # 20 us idle; of 50 us in receives, 2 transfers of 10 us: 30 us of waiting.
    assert bubble.bubble_s == pytest.approx(50 * MICRO)
    assert (bubble.stage, other.stage) == (0, 1)
    assert bubble.fraction == pytest.approx(0.5)


def test_a_spec_names_groups_by_their_ranks(tmp_path: Path) -> None:
    grid = Parallelism(tp=2, pp=2, dp=2, order="tp-cp-ep-dp-pp")
    events = [
        step(0, 0, 90),
        collective("allreduce", 0, 10, ranks=(0, 1), group="1"),
        collective("allreduce", 10, 10, ranks=(0, 2), group="2"),
        collective("send", 20, 10, ranks=(0, 4), group="3"),
        collective("allreduce", 30, 10, ranks=(0, 1, 2, 3, 4, 5, 6, 7), group="4"),
    ]
    run = run_of(tmp_path, events)
    traces = [rank.trace for rank in run.ranks]
    told = {group.name: axis.name for group, axis in name_axes(traces, read_classes(), grid).items()}
    assert (told["1"], told["2"], told["3"]) == ("tp", "dp", "pp")
    guessed = {group.name: axis for group, axis in name_axes(traces, read_classes()).items()}
    assert (guessed["1"].name, guessed["2"].name, guessed["4"].name) == ("tp", "dp", "dp")
    assert (guessed["3"].serving("send_recv"), guessed["1"].serving("all_to_all")) == ("pp", "ep")


def test_the_advice_names_the_largest_loss(tmp_path: Path) -> None:
    found = summarize(run_of(tmp_path, three_steps(80), three_steps(30)))
    assert found["advice"].startswith("Largest loss: waiting for rank 0, 50.0 % of the step")
    assert found["idle_fraction"] == pytest.approx(0.1, abs=0.05)
