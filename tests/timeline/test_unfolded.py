"""Every op on every GPU: the folded engine's time when GPUs are equal, and who waits for whom when they are not."""

from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from charllm.catalog.resolve import resolve_run
from charllm.cost.calibration import CALIBRATION
from charllm.layout.grid import Grid, cached_groups
from charllm.timeline import unfolded
from charllm.timeline.passes import Item
from charllm.timeline.schedules import BACKWARD, FORWARD, order_arrays
from charllm.timeline.step_time import hop_seconds, time_step
from charllm.timeline.unfolded import UnfoldedStep, play_unfolded
from charllm.workload.step import Step, build_step

TINY = {"base": "llama3-8b", "layers": 4}
UNREAD = {"base": "megatron", "sparse_sync": False}


def make_step(
    model: Any = "llama3-8b", cluster: str = "h100x8", framework: Any = "megatron", batch: int = 16, **parts: Any
) -> Step:
    training = {"global_batch_size": batch, "micro_batch_size": 1, **parts.pop("training", {})}
    request = {"model": model, "cluster": cluster, "framework": framework, "training": training, "parallelism": parts}
    return build_step(resolve_run(request))


def slow_down(step: Step, rank: int, factor: float = 1.1) -> UnfoldedStep:
    factors = np.ones(step.run.parallelism.world)
    factors[rank] = factor
    return play_unfolded(step, CALIBRATION, factors)


def ranks_of_stage(step: Step, stage: int) -> NDArray[np.int64]:
    grid = Grid(step.run.parallelism)
    return grid.rank(np.arange(grid.positions), stage)


def other_member(step: Step, rank: int, group: str) -> int:
    (row,) = [row for row in cached_groups(step.run.parallelism, group) if rank in row]
    return int(row[row != rank][0])


class Begin(NamedTuple):
    """Before a pass: the pass, chunk and microbatch it needs, and the hop that takes."""

    needs: tuple[int, int, int] | None
    hop: int | None


class End(NamedTuple):
    """After a pass: what it is known by, and the hop to who needs it."""

    key: tuple[int, int, int]
    hop: int | None


class Rank:
    """One GPU of the reference: what is left to do, last first, and when its GPU and host are free."""

    def __init__(self, step: Step, stage: int) -> None:
        self.left, self.gpu_s, self.host_s, self.waited_s = list_items(step, stage)[::-1], 0.0, 0.0, 0.0

    def run(self, item: Item, factor: float) -> None:
        self.host_s += item.launch_s
        if item.kind == "sync":
            self.host_s = max(self.host_s, self.gpu_s)
        elif item.kind != "host":
            self.gpu_s = max(self.gpu_s, self.host_s) + item.seconds * factor


def list_items(step: Step, stage: int) -> list[Begin | Item | End]:
    degrees, passes = step.run.parallelism, time_step(step).passes
    last, items = len(passes) - 1, list[Begin | Item | End]()
    order = order_arrays(degrees.schedule, degrees.pp, degrees.vpp, step.run.microbatches)[stage].tolist()
    for kind, chunk, mb in order:
        below = (chunk - 1) % degrees.pp if chunk else None
        above = chunk % degrees.pp if chunk < last else None
        if kind == FORWARD:
            begin, end = Begin((FORWARD, chunk - 1, mb) if chunk else None, below), above
        elif kind == BACKWARD:
            begin = Begin((BACKWARD, chunk + 1, mb) if chunk < last else (FORWARD, chunk, mb), above)
            end = below
        else:
            begin, end = Begin((BACKWARD, chunk, mb), None), None
        spans = passes[chunk][kind].spans
        items += [begin, *(item for span in spans for _ in range(span.repeats) for item in span.items)]
        items.append(End((kind, chunk, mb), end))
    return items


class Meeting:
    """Ranks that run on until they lack an input or a member of a collective, round and round: slow and plain."""

    def __init__(self, step: Step, factors: NDArray[np.float64]) -> None:
        self.degrees, self.factors, self.grid = step.run.parallelism, factors, Grid(step.run.parallelism)
        self.hop_s = hop_seconds(step, CALIBRATION) if self.degrees.pp > 1 else np.zeros(1)
        self.ranks = [Rank(step, int(self.grid.stage(rank))) for rank in range(self.degrees.world)]
        self.done: dict[tuple[int, int, int, int], float] = {}
        self.present: dict[tuple[int, ...], set[int]] = defaultdict(set)
        while any(rank.left for rank in self.ranks):
            for number in range(self.degrees.world):
                while self.ranks[number].left and self.advance(number):
                    pass

    def advance(self, number: int) -> bool:
        """Do the next thing of a rank, or tell that it has to wait."""
        rank, position = self.ranks[number], int(self.grid.position(number))
        item = rank.left[-1]
        if isinstance(item, Item) and item.kind == "collective":
            return self.come(number, item.group)
        if isinstance(item, Begin) and item.needs and (*item.needs, position) not in self.done:
            return False
        rank.left.pop()
        if isinstance(item, Item):
            rank.run(item, self.factors[number])
        elif isinstance(item, End):
            self.done[(*item.key, position)] = rank.gpu_s
            if item.hop is not None and "pp" not in self.degrees.overlap:
                rank.gpu_s += self.hop_s[item.hop]
        elif item.needs:
            moved_s = 0.0 if item.hop is None else self.hop_s[item.hop]
            rank.gpu_s = max(rank.gpu_s, self.done[(*item.needs, position)] + moved_s)
        return True

    def come(self, number: int, group: str) -> bool:
        """Come to a collective, and run it if everyone else is there."""
        (members,) = [tuple(row.tolist()) for row in cached_groups(self.degrees, group) if number in row]
        self.present[members].add(number)
        if len(self.present[members]) < len(members):
            return False
        del self.present[members]
        ranks = [self.ranks[member] for member in members]
        for rank in ranks:
            rank.run(rank.left[-1]._replace(seconds=0.0), 1.0)
        latest_s = max(rank.gpu_s for rank in ranks)
        for rank in ranks:
            rank.waited_s += latest_s - rank.gpu_s
            rank.gpu_s = latest_s + rank.left.pop().seconds
        return True


SPECS: dict[str, dict[str, Any]] = {
    "tp pp dp": {"tp": 2, "pp": 2},
    "stages before replicas": {"tp": 2, "pp": 2, "order": "tp-cp-ep-pp-dp"},
    "numbered the other way": {"tp": 2, "pp": 2, "order": "pp-dp-ep-cp-tp"},
    "cp ring": {"cp": 2, "tp": 2, "training": {"seq_length": 16384}},
    "cp all-to-all": {"cp": 2, "pp": 2, "cp_kind": "all-to-all"},
    "all overlap": {"tp": 2, "pp": 2, "overlap": ["tp", "pp", "dp"]},
    "hops inside and between nodes": {"cluster": "h200x32", "tp": 4, "pp": 8, "batch": 32},
    "interleaved": {"tp": 2, "pp": 4, "vpp": 2},
    "gpipe": {"tp": 2, "pp": 4, "schedule": "gpipe"},
    "zero-bubble": {"tp": 2, "pp": 4, "schedule": "zero-bubble"},
    "recomputed": {"tp": 2, "pp": 2, "training": {"recompute": "full", "recompute_layers": 5}},
    "LoRA": {"tp": 2, "pp": 2, "training": {"lora_rank": 16, "lora_targets": ["qkv", "proj"]}},
    "FSDP": {"framework": "fsdp", "zero": 3},
    "hybrid shards": {"framework": "fsdp", "zero": 3, "shard_size": 4, "tp": 2},
    "sharded pipeline": {"framework": "fsdp", "zero": 3, "pp": 2},
    "ep": {"model": "mixtral-8x7b", "ep": 4, "training": {"grouped_gemm": False}},
    "ep tp pp": {"model": "mixtral-8x7b", "cluster": "h200x32", "ep": 8, "tp": 2, "pp": 2},
    "ep, no count is read": {"model": "mixtral-8x7b", "framework": UNREAD, "ep": 4, "tp": 2},
    "ep overlap": {"model": "mixtral-8x7b", "ep": 8, "overlap": ["ep"]},
    "mtp and dense layers": {"model": "deepseek-v3-4l", "cluster": "h200x32", "ep": 8, "pp": 2},
    "one GPU": {"cluster": "h200x1", "framework": "pytorch-eager"},
}  # fmt: skip


@pytest.mark.parametrize("parts", SPECS.values(), ids=SPECS)
def test_equal_gpus_take_as_long_as_one_for_all(parts: dict[str, Any]) -> None:
    step = make_step(**parts)
    folded, unfolded = time_step(step), play_unfolded(step)
    assert unfolded.step_time_s == pytest.approx(folded.step_time_s, rel=1e-9)
    for stage, free_s in enumerate(folded.events.free_s):
        assert unfolded.free_s[ranks_of_stage(step, stage)] == pytest.approx(free_s, rel=1e-9)
    assert not unfolded.collective_wait_s.any()
    assert unfolded.op_events == folded.op_events


DIFFERING = {
    "tp pp dp": {"tp": 2, "pp": 2},
    "stages first": {"tp": 2, "pp": 2, "order": "pp-dp-ep-cp-tp"},
    "interleaved": {"tp": 2, "pp": 2, "vpp": 2},
    "sends overlapped": {"tp": 2, "pp": 4, "overlap": ["pp"]},
    "hops that differ": {"model": {"base": "llama3-8b", "layers": 8}, "cluster": "h200x32", "tp": 4, "pp": 8},
    "shards": {"framework": "fsdp", "zero": 3, "tp": 2},
    "experts": {"model": {"base": "mixtral-8x7b", "layers": 4}, "ep": 2, "tp": 2, "pp": 2},
    "cp": {"cp": 2, "tp": 2, "schedule": "zero-bubble", "pp": 2},
}


@pytest.mark.parametrize("parts", DIFFERING.values(), ids=DIFFERING)
def test_gpus_that_differ_meet_where_ranks_that_run_on_their_own_do(parts: dict[str, Any]) -> None:
    step = make_step(**{"model": TINY, "batch": 8, **parts})
    factors = 1 + np.random.default_rng(7).random(step.run.parallelism.world) / 4
    ranks, unfolded = Meeting(step, factors).ranks, play_unfolded(step, CALIBRATION, factors)
    assert unfolded.free_s == pytest.approx([rank.gpu_s for rank in ranks], rel=1e-9)
    assert unfolded.collective_wait_s == pytest.approx([rank.waited_s for rank in ranks], rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("read", [True, False], ids=["counts read", "no count is read"])
def test_hosts_of_sparse_layers_wait_for_their_gpus_only_where_counts_are_read(read: bool) -> None:
    framework = "megatron" if read else UNREAD
    step = make_step({"base": "mixtral-8x7b", "layers": 4}, framework=framework, ep=4, tp=2)
    kinds = [item.kind for one in time_step(step).passes for part in one for span in part.spans for item in span.items]
    assert "host" in kinds
    assert ("sync" in kinds) == read
    assert play_unfolded(step).step_time_s == pytest.approx(time_step(step).step_time_s, rel=1e-9)


def test_every_op_of_every_layer_microbatch_and_gpu_is_an_event() -> None:
    step = make_step("mixtral-8x7b", "h200x32", ep=8, tp=2, pp=2)
    items = sum(
        span.repeats * sum(item.kind in ("kernel", "collective") for item in span.items)
        for one in time_step(step).passes
        for part in one
        for span in part.spans
    )
    ranks_per_stage = step.run.parallelism.world // 2
    assert play_unfolded(step).op_events == items * step.run.microbatches * ranks_per_stage


def test_one_slow_gpu_keeps_its_peers_its_replicas_and_the_other_stages_waiting() -> None:
    step = make_step(tp=2, pp=2)
    # A rank of the last stage, whose head makes it the one that paces the pipeline.
    rank = int(ranks_of_stage(step, 1)[0])
    equal, slow = play_unfolded(step), slow_down(step, rank)
    some_s = 0.02 * equal.step_time_s
    peer, neighbour, replica = (other_member(step, rank, group) for group in ("tp", "pp", "dp"))
    assert slow.step_time_s > equal.step_time_s + some_s
    assert slow.collective_wait_s[rank] == slow.exchange_wait_s[rank] == 0
    assert slow.collective_wait_s[peer] > some_s
    assert slow.input_wait_s[neighbour] > equal.input_wait_s[neighbour] + some_s
    assert slow.exchange_wait_s[replica] > some_s


def test_equally_slow_gpus_wait_for_nobody() -> None:
    step = make_step(tp=2, pp=2)
    slow = play_unfolded(step, CALIBRATION, np.full(step.run.parallelism.world, 1.1))
    assert play_unfolded(step).step_time_s < slow.step_time_s < 1.1 * play_unfolded(step).step_time_s
    assert not slow.collective_wait_s.any()
    assert not slow.exchange_wait_s.any()


def test_it_is_the_same_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    step = make_step(TINY, tp=2, pp=2, batch=4)
    fast = slow_down(step, 3)
    monkeypatch.setattr(unfolded, "_play_turns", vars(unfolded._play_turns)["py_func"])
    plain = slow_down(step, 3)
    assert plain.step_time_s == pytest.approx(fast.step_time_s, rel=1e-12)
    assert plain.collective_wait_s == pytest.approx(fast.collective_wait_s, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("factors", [[1.0], [0.0] * 8, [1.0] * 9, [float("nan")] * 8], ids=["few", "0", "many", "nan"])
def test_every_rank_has_a_factor(factors: list[float]) -> None:
    with pytest.raises(ValueError, match="slower"):
        play_unfolded(make_step(TINY, tp=2), CALIBRATION, factors)
