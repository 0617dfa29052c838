"""What plain modules launch, by hand."""

from dataclasses import replace

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.gpu.memory_bound import WAITING
from charllm.spec.run import RunSpec
from charllm.workload.kernel_calls import Launched, moving, sized, tiny
from charllm.workload.op import Op
from charllm.workload.plain_launches import (
    CHUNK_ELEMENTS,
    accumulate_small,
    add_rows_up,
    bring_tokens,
    cut_to_chunks,
    finish_embedding,
    later_share,
    lay_out_heads,
    pick_rows,
    route,
    sum_bias_gradient,
    take_norm,
    turn_halves,
    update_in_chunks,
    weigh,
)


def run(layers: int = 32, sequences: int = 32, model: str = "llama3-8b") -> RunSpec:
    """Return a run on eight GPUs."""
    found = resolve_run({"model": model, "cluster": "h200x8", "training": {"global_batch_size": sequences}})
    return replace(found, model=replace(found.model, layers=layers))


def counts(found: tuple[Launched, ...]) -> list[tuple[str, int, int]]:
    """Return kinds, elements and times."""
    return [(one.shape.kind, one.shape.dims[0], one.times) for one in found]


@pytest.mark.parametrize(("layers", "launches"), [(6, 1), (7, 2), (55, 8), (56, 9)])
def test_counters_of_steps_take_a_launch_for_each_110_tensors_of_16_a_layer(layers: int, launches: int) -> None:
    counted, updated = update_in_chunks(sized("adam", (10,)), 1.0, run(layers))
    assert (counted.times, counted.shape.dims) == (launches, (1,))
    assert updated.looped == updated.events == 1


@pytest.mark.parametrize(("elements", "launches"), [(1.13e9, 54), (1.34e9, 64), (CHUNK_ELEMENTS, 1), (1.0, 1)])
def test_a_kernel_over_all_weights_is_cut_into_pieces(elements: float, launches: int) -> None:
    one = cut_to_chunks(sized("norm", (10,)), elements)
    assert (one.looped, one.events, one.times) == (launches, launches, 1)
    norm, joined = take_norm(sized("norm", (10,)), elements)
    assert (norm.looped, joined.times, joined.calls) == (launches, 7, 0.85)


def test_later_microbatches_add_to_gradients() -> None:
    # Four microbatches on each of eight ranks: three of four find gradients.
    assert later_share(run()) == 0.75
    (added,) = accumulate_small(run(), 3)
    assert (added.times, added.calls, added.small, added.events) == (3, 0.75, 0.0, 0.75)
    assert accumulate_small(run(sequences=8), 3) == ()


def test_halves_of_heads_are_turned_kernel_by_kernel() -> None:
    angles, *forward = turn_halves(100, "forward")
    assert (angles.times, angles.calls, angles.small) == (11, 0.85, 0.0)
    assert counts(tuple(forward)) == [*(("strided_add", 50, 1),) * 4, *(("add", 50, 1),) * 2, ("strided_cat", 100, 1)]
    assert [one[:2] for one in counts(turn_halves(100, "backward"))] == [
        *(("strided_add", 50),) * 4, *(("strided", 50),) * 3, *(("fill", 100),) * 2, *(("add", 50),) * 2, ("add", 100)
    ]  # fmt: skip


def test_heads_are_copied_once_forward_and_both_parts_backward() -> None:
    assert counts(lay_out_heads(100, (0.8, 0.2), "forward")) == [("strided", 80, 1)]
    assert counts(lay_out_heads(100, (0.8, 0.2), "backward")) == [("strided", 80, 1), ("strided", 20, 1)]


def test_a_router_calls_small_operators_and_chooses() -> None:
    forward, backward = (route(Op("r", "router", shape=(64, 8), direction=way), 16) for way in ("forward", "backward"))
    assert [(one.times, one.calls) for one in forward] == [(17, 0.85), (24, 0.25), (1, 1.0)]
    assert forward[-1].shape.dims == (64, 16)
    assert [(one.times, one.calls) for one in backward] == [(19, 0.85), (8, 0.25)]


def test_rows_are_picked_and_added_up_by_index() -> None:
    assert pick_rows(6, 4, 8, "forward") == (sized("permute", (6, 8)),)
    cleared, own, inner, put = pick_rows(6, 4, 8, "backward")
    assert (cleared, put) == (sized("fill", (4, 8)), sized("permute", (6, 8)))
    assert [(one.times, one.calls) for one in (own, inner)] == [(5, 0.85), (7, 0.25)]
    assert add_rows_up(6, 4, 8, "forward") == (moving(192.0), sized("fill", (4, 8)), sized("index_add", (6, 8)))
    picked, product, total, other = add_rows_up(6, 4, 8, "backward")
    assert (picked, total) == (sized("permute", (6, 8)), sized("add", (48,)))
    assert (product, other) == (moving(192.0), moving(96.0))


def test_tokens_are_brought_and_positions_added() -> None:
    op = Op("embedding", "embedding", shape=(100, 64))
    (brought,) = bring_tokens(op, run())
    assert (brought.times, brought.calls) == (2, 0.85)
    _brought, own, added = bring_tokens(op, run(model="gpt2-xl"))
    assert (own.times, added) == (2, moving(6.0 * 6400, "add"))


def test_gradients_of_an_embedding_are_sorted_where_there_are_many() -> None:
    few, many = (Op("embedding", "embedding", shape=(rows, 64), direction="backward") for rows in (3072, 3073))
    (added,) = finish_embedding(few, run(), 1000)
    assert (added.shape, added.events) == (moving(6.0 * 1000 * 0.75, "add").shape, 0.75)
    sort, _added = finish_embedding(many, run(), 1000)
    assert (sort.times, sort.calls) == (29, 0.25)
    assert finish_embedding(few, run(sequences=8), 1000) == ()
    # Learned positions are three operators more, and the head's gradient of the tied table is added each time.
    own, tied = finish_embedding(few, run(model="gpt2-xl"), 1000)
    assert (own.times, tied.events) == (3, 1.75)


def test_a_bias_gradient_is_summed_over_tokens() -> None:
    op = Op("b", "bias gradient", 0.0, 480.0, 40.0, shape=(12, 20), direction="backward")
    summed, waited, added = sum_bias_gradient(op, run())
    assert summed == moving(520.0, "column_sum")
    assert (waited.times, waited.calls, waited.events) == (5, 0.05, 0.2)
    assert added.events == 0.75


def test_operators_take_the_host_time_of_their_kind() -> None:
    product, norm, looped, small = weigh((
        sized("gemm", (1, 2, 3, 4)), sized("rmsnorm", (2, 3)), sized("gemm", (1, 2, 3, 4))._replace(looped=2.0), tiny(2)
    ))  # fmt: skip
    assert (product.calls, norm.calls, looped.calls, small.calls) == (1.45, 2.1, 1.0, 0.0)
    assert norm.shape.variant == WAITING
    assert product.shape.variant != WAITING
