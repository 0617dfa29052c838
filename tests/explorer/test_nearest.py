"""What the explorer offers beside a request that is not valid."""

from typing import Any

import pytest

from charllm.errors import SpecError
from charllm.explorer.nearest import nearest_valid
from charllm.explorer.request import resolve_words

RUN = {"model": "llama3-70b", "cluster": "h200x32", "tp": 4, "pp": 4, "gbs": 128}


def offered(**changed: Any) -> list[tuple[str, Any]]:
    words = {**RUN, **changed}
    with pytest.raises(SpecError) as refused:
        resolve_words(words)
    offers = nearest_valid(words, refused.value)
    for offer in offers:
        resolve_words({**words, offer["word"]: offer["value"]})
    return [(offer["word"], offer["value"]) for offer in offers]


@pytest.mark.parametrize(
    ("word", "asked", "nearest"),
    [
        ("tp", 5, 4),
        ("pp", 7, 8),
        ("zero", 7, 3),
        ("ep", 4, 1),
        ("nodes", 7, 8),
        ("power_cap", 5000, 700),
        ("power_cap", 10, 200),
        ("optimizer_offload", 2, 1),
        # 96 and 104 GPUs make whole nodes, but no replicas of 16 GPUs that divide a batch of 128.
        ("cluster", "h100x100", "h100x128"),
        ("cluster", "h210x32", "h20x32"),
    ],
)
def test_the_nearest_valid_value_of_what_is_wrong_comes_first(word: str, asked: Any, nearest: Any) -> None:
    assert offered(**{word: asked})[0] == (word, nearest)


def test_another_setting_is_offered_where_two_disagree() -> None:
    assert offered(mbs=3) == [("gbs", 126), ("mbs", 4)]
    assert offered(vpp=2, schedule="1f1b") == [("schedule", None), ("vpp", None)]


def test_nothing_is_offered_for_a_machine_that_resembles_none() -> None:
    assert offered(cluster="zzzz") == []


@pytest.mark.parametrize("asked", [float("inf"), -float("inf"), 10**400, -(10**400)])
def test_a_value_beyond_every_number_is_still_refused_by_its_field(asked: float) -> None:
    assert ("gbs", None) in offered(gbs=asked)
