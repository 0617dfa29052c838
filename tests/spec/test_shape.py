"""Data of stored files is checked against the types that it should have; what differs is named."""

import re
from typing import Any, Literal, NotRequired, TypedDict

import pytest

from charllm.errors import SpecError
from charllm.spec.run import RunSpec
from charllm.spec.shape import Cell, Number, check_settings, check_shape


class Row(TypedDict):
    rank: int
    power_w: NotRequired[Number]


class Table(TypedDict):
    kind: Literal["a", "b"]
    rows: list[Row]
    cells: NotRequired[dict[str, list[Cell]]]
    rest: NotRequired[dict[str, Any] | None]


SOUND: dict[str, Any] = {
    "kind": "a",
    "rows": [{"rank": 0, "power_w": 1}, {"rank": 1, "power_w": None, "more": "x"}, {"rank": 2}],
    "cells": {"x": [1, 0.5, "a", None, True]},
    "rest": {"any": [{"thing": 1.0}]},
    "unknown": 3,
}


def test_what_has_the_shape_is_accepted_with_whatever_stands_beside_it() -> None:
    check_shape(SOUND, Table, "file")
    check_shape({**SOUND, "rest": None, "rows": []}, Table, "file")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"kind": "c"}, "file, kind: got 'c'; expected one of a, b"),
        ({"kind": ["a"]}, "file, kind: got ['a']; expected one of a, b"),
        ({"rows": {}}, "file, rows: got {}; expected a list, each a table of rank, power_w"),
        ({"rows": [{"rank": 0}, 3]}, "file, rows[1]: got 3; expected a table of rank, power_w"),
        ({"rows": [{"power_w": 1.0}]}, "file, rows[0].rank: got nothing; expected a whole number"),
        ({"rows": [{"rank": 0.0}]}, "file, rows[0].rank: got 0.0; expected a whole number"),
        ({"rows": [{"rank": True}]}, "file, rows[0].rank: got True; expected a whole number"),
        ({"rows": [{"rank": 0, "power_w": "1"}]}, "file, rows[0].power_w: got '1'; expected a number or nothing"),
        ({"rows": [{"rank": 0, "power_w": float("nan")}]}, "file, rows[0].power_w: got nan; expected a number"),
        ({"cells": {"x": [1, float("inf")]}}, "file, cells.x[1]: got inf; expected a number or a text"),
        ({"cells": {"x": [1, [2]]}}, "file, cells.x[1]: got [2]; expected a number or a text"),
        ({"cells": {"x": 1}}, "file, cells.x: got 1; expected a list"),
        ({"rest": {"a": [{"b": float("nan")}]}}, "file, rest.a[0].b: got nan; expected what JSON can hold"),
        ({"rest": 3}, "file, rest: got 3; expected a table or nothing"),
    ],
)
def test_what_differs_is_named(change: dict[str, Any], told: str) -> None:
    with pytest.raises(SpecError, match=re.escape(told)):
        check_shape({**SOUND, **change}, Table, "file")


def test_a_part_that_is_missing_is_named() -> None:
    with pytest.raises(SpecError, match=r"file, rows: got nothing; expected a list"):
        check_shape({"kind": "a"}, Table, "file")
    with pytest.raises(SpecError, match=r"^file: got \[\]; expected a table of kind, rows, cells, rest$"):
        check_shape([], Table, "file")


def test_settings_of_another_version_may_lack_fields_but_have_no_other_types() -> None:
    check_settings(
        RunSpec, {"model": {"layers": 2, "wings": 3}, "cluster": {"mixed": [{"nodes": [1]}]}}, "file", "spec"
    )
    for table, told in (
        ({"model": {"layers": "two"}}, "file, spec.model.layers: got 'two'; expected a whole number"),
        ({"model": 3}, "file, spec.model: got 3; expected a table of settings"),
        (
            {"cluster": {"node": {"gpu": {"power": {"idle_w": None}}}}},
            "file, spec.cluster.node.gpu.power.idle_w: got no",
        ),
        ({"cluster": {"mixed": [{"node": []}]}}, "file, spec.cluster.mixed[0].node: got []"),
        ({"cluster": {"mixed": 3}}, "file, spec.cluster.mixed: got 3; expected a list"),
    ):
        with pytest.raises(SpecError, match=re.escape(told)):
            check_settings(RunSpec, table, "file", "spec")
