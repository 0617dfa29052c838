from dataclasses import dataclass
from typing import Any

import pytest

from charllm.errors import SpecError
from charllm.spec.fields import check_fields, choice, count, counts, flag, normalise, number, read, read_field, words


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    size_bytes: float = number("A size.", 0, 1e12)
    layers: int = count("A count.", 1, 10, 2)
    fast: bool = flag("A flag.", False)
    colour: str = choice("A choice.", ("red", "green"), "red")
    split: tuple[int, ...] = counts("A row.", 0, 5)
    axes: tuple[str, ...] = words("Some words.", ("tp", "dp"))
    limit_w: float | None = number("An option.", 1, 1000, None)

    def __post_init__(self) -> None:
        check_fields(self)


def test_a_value_may_be_written_in_any_unit_of_its_kind() -> None:
    assert read(Sample, {"size_gib": 2}, "sample").size_bytes == 2 * 2**30
    assert read(Sample, {"size_bytes": 5}, "sample").size_bytes == 5.0
    assert read(Sample, {"size_gb": 1, "limit_kw": 0.5}, "sample").limit_w == 500.0


def test_one_value_in_two_units_is_refused() -> None:
    with pytest.raises(SpecError, match="once, not in two units"):
        read(Sample, {"size_gib": 2, "size_bytes": 1}, "sample")


@pytest.mark.parametrize(
    ("table", "field"),
    [
        ({"size_gb": 1, "layers": 0}, "sample.layers"),
        ({"size_gb": 1, "layers": 2.5}, "sample.layers"),
        ({"size_gb": 1, "layers": True}, "sample.layers"),
        ({"size_gb": 1, "layers": "two"}, "sample.layers"),
        ({"size_gb": float("nan")}, "sample.size_gb"),
        ({"size_gb": float("inf")}, "sample.size_gb"),
        ({"size_gb": 1, "fast": 1}, "sample.fast"),
        ({"size_gb": 1, "colour": "blue"}, "sample.colour"),
        ({"size_gb": 1, "split": [1, 9]}, "sample.split"),
        ({"size_gb": 1, "split": "12"}, "sample.split"),
        ({"size_gb": 1, "axes": "tp,xp"}, "sample.axes"),
        ({"size_gb": 1, "limit_w": 5000}, "sample.limit_w"),
        ({"size_gb": 1, "wings": 2}, "sample.wings"),
        ({}, "sample.size_bytes"),
        ({"size_gb": None}, "sample.size_gb"),
        ({"size_gb": {"a": 1}}, "sample.size_gb"),
    ],
)
def test_what_does_not_fit_a_field_is_refused_by_name(table: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as caught:
        read(Sample, table, "sample")
    assert caught.value.field == field


def test_words_come_as_a_list_or_with_commas() -> None:
    assert read(Sample, {"size_gb": 1, "axes": "tp,dp"}, "s").axes == ("tp", "dp")
    assert read(Sample, {"size_gb": 1, "axes": ["dp", "dp"]}, "s").axes == ("dp",)


def test_an_object_made_by_hand_is_checked_too() -> None:
    with pytest.raises(SpecError):
        Sample(size_bytes=-1)


def test_one_field_can_be_read_alone() -> None:
    assert read_field(Sample, "layers", 3, "s") == 3
    with pytest.raises(SpecError):
        read_field(Sample, "layers", 99, "s")


def test_normalising_leaves_texts_and_flags_alone() -> None:
    assert normalise({"size_gib": 1, "note_s": "x", "on_ms": True}) == {
        "size_bytes": 2**30,
        "note_s": "x",
        "on_ms": True,
    }
