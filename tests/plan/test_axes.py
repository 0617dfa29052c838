"""The values of a plan's axes: read from words, found from a run, and counted."""

from dataclasses import replace
from typing import Any

import pytest

from charllm.api.plan import build_space
from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.plan.axes import default_axes, divisors, parse_axis, pinned_axes, read_axes
from charllm.plan.share import hidden_sets
from charllm.plan.space import Variant
from charllm.spec.parallelism import Parallelism
from charllm.spec.run import RunSpec


def run(**parallelism: Any) -> RunSpec:
    return resolve_run({"model": "llama3-8b", "cluster": "h200x8", "training": {"global_batch_size": 24},
                        "parallelism": parallelism})  # fmt: skip


@pytest.mark.parametrize(
    ("number", "expected"),
    [(1, (1,)), (2, (1, 2)), (7, (1, 7)), (12, (1, 2, 3, 4, 6, 12)), (36, (1, 2, 3, 4, 6, 9, 12, 18, 36))],
)
def test_divisors_are_those_by_hand(number: int, expected: tuple[int, ...]) -> None:
    assert divisors(number) == expected


def test_words_are_read_as_values_of_their_axis() -> None:
    assert parse_axis(" tp = 1, 2 ,4") == ("tp", [1, 2, 4])
    asked: dict[str, list[Any]] = {
        "micro-batch-size": [1, 1, 2],
        "overlap": ["none", "tp+dp", ["pp"]],
        "zero": [0],
        "sp": [True],
        "power-cap": ["none", 500],
        "clock_cap": [1200],
        "recompute": ["full:4"],
    }
    assert read_axes(asked) == {
        "mbs": (1, 2),
        "overlap": (frozenset(), frozenset({"tp", "dp"}), frozenset({"pp"})),
        "zero": (0,),
        "power_cap": (None, 500.0),
        "clock_cap": (1.2e9,),
        "sp": (True,),
        "recompute": ("full:4",),
    }


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"tp": [-1]}, "parallelism.tp"),
        ({"tp": [1.5]}, "parallelism.tp"),
        ({"tp": [True]}, "parallelism.tp"),
        ({"sp": ["yes"]}, "parallelism.sp"),
        ({"power_cap": [True]}, "conditions.power_cap_w"),
        ({"power_cap": ["low"]}, "conditions.power_cap_w"),
        ({"overlap": ["tp+xx"]}, "parallelism.overlap"),
        ({"tp": []}, "--axis"),
        ({"tp": "12"}, "--axis"),
        ({"width": [1]}, "--axis"),
    ],
)
def test_a_value_that_no_run_has_names_its_field(asked: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as told:
        read_axes(asked)
    assert told.value.field == field


@pytest.mark.parametrize("text", ["tp", "=1", "tp=", "tp= "])
def test_an_axis_without_a_name_or_values_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        parse_axis(text)


def test_a_request_pins_what_it_states() -> None:
    stated = {"parallelism": {"tp": 2, "overlap": ["dp"]}, "training": {"recompute": "full", "recompute_layers": 3}}
    assert pinned_axes(stated) == {"tp": (2,), "overlap": (frozenset({"dp"}),), "recompute": ("full:3",)}
    assert pinned_axes({"training": {"recompute": "full"}}) == {"recompute": ("full",)}


def test_the_axes_of_a_dense_run_are_those_by_hand() -> None:
    short = replace(run().training, seq_length=2500, global_batch_size=12)
    axes = default_axes(replace(run(), training=short))
    assert axes.tp == axes.pp == (1, 2, 4, 8)
    # Pieces of 1,024 tokens at least.
    assert axes.cp == (1, 2)
    assert axes.vpp == tuple(range(1, 33))
    assert (axes.ep, axes.etp) == ((1,), (1,))
    # Twelve sequences hold microbatches of up to eight.
    assert axes.mbs == (1, 2, 4, 8)
    # Sets of tp, pp and dp.
    assert len(axes.overlap) == len(set(axes.overlap)) == 8
    assert frozenset({"tp", "pp", "dp"}) in axes.overlap
    assert axes.power_cap == pytest.approx((None, 630.0, 560.0, 490.0, 420.0))
    highest = run().cluster.gpu.clock_max_hz
    assert axes.clock_cap[1:] == pytest.approx([0.9 * highest, 0.8 * highest, 0.7 * highest, 0.6 * highest])


def test_a_sparse_run_has_axes_of_experts() -> None:
    sparse = resolve_run({"model": "mixtral-8x7b", "cluster": "h200x8", "training": {"global_batch_size": 8}})
    axes = default_axes(sparse)
    assert (axes.ep, axes.etp) == ((1, 2, 4, 8), None)
    assert len(axes.overlap) == 16


def test_the_combinations_of_degrees_are_counted() -> None:
    words = {"model": "mixtral-8x7b", "cluster": "h200x8", "gbs": 16, "cp": 1}
    axes = {"tp": [1, 2], "pp": [1, 2, 4], "ep": [1, 8], "sp": [True], "mbs": [1, 2], "vpp": [1, 2, 4],
            "schedule": ["1f1b", "interleaved"], "etp": [1, 2, 4]}  # fmt: skip
    # 2 tp x 3 pp x 2 ep x 2 mbs x 3 etp, on 1f1b and interleaved with two or four chunks.
    assert build_space(None, axes, words).space.combinations == 72 * 3
    # Where etp is one or tp, each counts.
    del axes["etp"]
    assert build_space(None, axes, words).space.combinations == 48 * 3


def test_caps_are_tried_one_at_a_time_unless_one_is_pinned() -> None:
    words = {"model": "llama3-8b", "cluster": "h200x8", "gbs": 16}
    axes: dict[str, list[Any]] = {"power_cap": ["none", 500], "clock_cap": ["none", 1200]}
    assert build_space(None, axes, words).space.caps == ((None, None), (None, 1.2e9), (500.0, None))
    pinned: dict[str, list[Any]] = {**axes, "clock_cap": [1200]}
    assert build_space(None, pinned, words).space.caps == ((None, 1.2e9), (500.0, 1.2e9))


def test_a_strategy_is_written_into_the_run() -> None:
    space = build_space(None, {}, {"model": "llama3-8b", "cluster": "h200x8", "gbs": 16}).space
    found = space.run(space.cell(0), Variant("full:3", 1, 0, (), 500.0, None))
    assert (found.training.recompute, found.training.recompute_layers) == ("full", 3)
    assert (found.conditions.power_cap_w, found.conditions.clock_cap_hz) == (500.0, None)


@pytest.mark.parametrize(
    ("degrees", "expected"),
    [
        (Parallelism(), [set()]),
        (Parallelism(tp=2), [set()]),
        (Parallelism(tp=2, sp=True), [set(), {"tp"}]),
        (Parallelism(ep=2), [set(), {"ep"}]),
        (Parallelism(tp=2, sp=True, ep=2), [set(), {"tp"}, {"ep"}, {"tp", "ep"}]),
    ],
)
def test_only_axes_that_exchange_something_may_be_hidden(degrees: Parallelism, expected: list[set[str]]) -> None:
    assert hidden_sets(replace(run(), parallelism=degrees)) == [frozenset(one) for one in expected]


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("parallelism", "tp", [1]),
        ("parallelism", "cp", "a"),
        ("parallelism", "zero", 4),
        ("parallelism", "schedule", [1]),
        ("training", "micro_batch_size", {}),
        ("conditions", "power_cap_w", [700]),
    ],
)
def test_a_pinned_value_that_its_field_does_not_take_is_refused(part: str, name: str, value: Any) -> None:
    with pytest.raises(SpecError, match=f"{part}.{name}"):
        pinned_axes({part: {name: value}})
