"""Tables that remember what was read."""

import pytest

from charllm.errors import SpecError
from charllm.spec.readers.json_lines import key_lines
from charllm.spec.readers.ledger import MAX_DEPTH, Known, Ledger, Unmodelled, sort_unread
from charllm.spec.readers.patterns import describe_mixers, describe_sparse, shortest_period

KNOWN = Known(("log.*", "seed"), {"offload": Unmodelled("it waits"), "tower*": Unmodelled("no tower", ())}, {
    "fuse": Unmodelled("a kernel more", (True,)),
})  # fmt: skip


def test_what_is_read_is_not_listed() -> None:
    ledger = Ledger({"a": 1, "b": {"c": 2, "d": 3}, "e": None})
    assert (ledger["a"], ledger["b"]["c"], ledger.get("e")) == (1, 2, None)
    assert list(ledger.unread()) == [("b.d", 3)]


def test_asking_whether_a_setting_is_there_is_not_reading_it() -> None:
    ledger = Ledger({"a": 1}).over({"b": 2})
    assert "a" in ledger
    assert "b" in ledger
    assert [*ledger.unread()] == [("a", 1)]


def test_settings_are_sorted_by_what_is_known_of_them() -> None:
    values = {"seed": 1, "log": {"x": 1}, "offload": True, "tower": {"a": 1, "b": 2}, "fuse": False, "typo": 3}
    unread = sort_unread(Ledger(values), KNOWN, {"typo": 9})
    assert [(setting.name, setting.line) for setting in unread.not_understood] == [("typo", 9)]
    assert [setting.name for setting in unread.unmodelled] == ["offload", "tower"]
    assert [setting.name for setting in unread.small] == ["fuse"]


def test_a_setting_that_is_off_changes_nothing() -> None:
    unread = sort_unread(Ledger({"offload": False, "fuse": True}), KNOWN, {})
    assert unread == ((), (), ())


def test_tables_are_not_followed_without_end() -> None:
    deep: dict[str, object] = {}
    for _ in range(MAX_DEPTH + 1):
        deep = {"a": deep}
    with pytest.raises(SpecError):
        Ledger(deep)


def test_keys_of_json_stand_on_their_lines() -> None:
    text = '{\n "a": 1,\n "b": {"c": [1,\n {"x": 2}], "d": "e:\\"f\\""},\n "g": null\n}'
    assert key_lines(text) == {"a": 2, "b": 3, "b.c": 3, "b.d": 4, "g": 5}


@pytest.mark.parametrize("text", ["", "}{", '"a": 1]', '{"a": {"b": }}}', "[" * 100])
def test_lines_of_broken_json_are_no_error(text: str) -> None:
    assert isinstance(key_lines(text), dict)


@pytest.mark.parametrize(
    ("letters", "fields"),
    [
        ("****", {}),
        ("wwww", {"window": 8}),
        ("www*www*", {"window": 8, "full_attention_every": 4}),
        ("*w*w", {"window": 8, "mixers": "*w"}),
        ("DDD*", {"mixers": "DDD*"}),
        ("DDD*DDD*DD", {"mixers": "DDD*"}),
    ],
)
def test_layers_are_described_the_shortest_way(letters: str, fields: dict[str, object]) -> None:
    assert describe_mixers(letters, 8) == fields


def test_experts_are_described_the_shortest_way() -> None:
    assert describe_sparse("--EE") == {"dense_layers": 2}
    assert describe_sparse("-E-E") == {"sparse_layers": "-E"}
    assert shortest_period("abab") == "ab"
