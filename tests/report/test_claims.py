"""Rules of claims: when one holds, fails, or is undecided at the accuracy of the model."""

import pytest

from charllm.report.claims import (
    ENOUGH,
    FAILS,
    HOLDS,
    SCALES,
    SHOWN,
    UNDECIDED,
    Accuracy,
    Claim,
    judge,
    overlap_acts,
    past_a_point,
)


def made(**changes: object) -> Claim:
    return Claim(name="made", text="It gains.", unit="%", least=1.0, **changes)  # type: ignore[arg-type]


def test_a_claim_is_about_all_most_or_some_configurations() -> None:
    effects = {"one": 2.0, "two": 3.0, "three": 0.5}
    assert [judge(made(of=of), effects).verdict for of in ENOUGH] == [FAILS, HOLDS, HOLDS]
    assert [judge(made(of=of), {"one": 2.0, "two": 0.5, "three": 0.5}).verdict for of in ENOUGH] == [
        FAILS,
        FAILS,
        HOLDS,
    ]
    assert judge(made(), {"one": None, "two": 3.0}).verdict == HOLDS
    assert all(of in SHOWN and SHOWN[of] in made(of=of).rule for of in ENOUGH)


def test_a_size_has_to_be_reached() -> None:
    known = made(size=5.0, headline="largest", of="some", accuracy=Accuracy("step time", "sequence", "%"))
    assert judge(known, {"one": 2.0, "two": 3.0}).verdict == UNDECIDED
    assert judge(known, {"one": -20.0, "two": -30.0}).verdict == FAILS
    assert judge(known, {"one": 2.0, "two": 26.0}).verdict == HOLDS
    assert judge(made(size=5.0), {"one": 6.0}).verdict == UNDECIDED
    assert judge(made(size=5.0), {"one": 6.0}, {"one": [5.5, 7.0]}).verdict == HOLDS
    assert "reaches 5" in made(size=5.0).rule


def test_an_effect_within_the_error_of_the_model_decides_nothing() -> None:
    clock = made(accuracy=Accuracy("clock", "microbatch", "points"))
    error = clock.around(0.0)[1]
    assert 1.0 < error < 15.0
    found = judge(clock, {"one": 1.0 + 0.5 * error, "two": 1.0 - 0.5 * error})
    assert (found.verdict, found.open) == (UNDECIDED, ["one", "two"])
    assert judge(clock, {"one": 1.0 + 3 * error}).verdict == HOLDS
    assert judge(clock, {"one": 1.0 - 3 * error}).verdict == FAILS
    assert found.ends is not None
    assert found.ends[0] < 1.0 < found.ends[1]


@pytest.mark.parametrize("scale", SCALES)
def test_an_effect_lies_inside_its_error_on_every_scale(scale: str) -> None:
    low, high = made(accuracy=Accuracy("step time", "strategy", scale)).around(3.0)
    assert low < 3.0 < high


def test_intervals_over_conditions_stand_for_an_error_that_is_not_known() -> None:
    assert judge(made(), {"one": 2.0}, {"one": [0.5, 4.0]}).verdict == UNDECIDED
    assert judge(made(), {"one": 2.0}, {"one": [1.5, 4.0]}).verdict == HOLDS


def test_growth_past_a_point_is_that_of_every_larger_size() -> None:
    def effects(values: list[float]) -> float | None:
        return past_a_point(lambda size, point: values[size] - values[point], len(values))

    assert effects([1.0, 0.5, 2.0, 3.0]) == 1.5
    assert effects([3.0, 2.0, 1.0]) == -1.0
    assert effects([1.0, 5.0, 2.0]) == 1.0
    assert effects([1.0]) is None


def test_effects_at_the_mark_do_not_show_a_claim() -> None:
    found = judge(made(), {"one": 1.0, "two": 1.0})
    assert (found.verdict, found.supporting, found.against) == (FAILS, [], ["one", "two"])
    assert judge(made(), {"one": None}).verdict == UNDECIDED


@pytest.mark.parametrize(
    ("run", "acts"),
    [
        ({"tp": 2, "dp": 1, "is_sparse": False, "is_fsdp": False}, True),
        ({"tp": 1, "dp": 1, "is_sparse": False, "is_fsdp": False}, False),
        ({"tp": 1, "dp": 2, "is_sparse": False, "is_fsdp": False}, True),
        ({"tp": 1, "dp": 8, "is_sparse": True, "is_fsdp": False}, False),
        ({"tp": 8, "dp": 4, "is_sparse": False, "is_fsdp": True}, False),
    ],
)
def test_overlap_flags_act_on_tensor_messages_and_on_gradients_of_dense_models(run: dict[str, int], acts: bool) -> None:
    assert overlap_acts(**run) is acts  # type: ignore[arg-type]
