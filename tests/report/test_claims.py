"""Rules of claims: when one holds, holds partly, or does not hold."""

import pytest

from charllm.report.claims import FAILS, HOLDS, PARTLY, Claim, judge, overlap_acts


def made(**changes: object) -> Claim:
    return Claim(name="made", text="It gains.", unit="%", least=1.0, **changes)  # type: ignore[arg-type]


def test_a_claim_about_some_holds_with_one_and_one_with_a_size_needs_it() -> None:
    assert judge(made(), {"one": 2.0, "two": 0.5}).verdict == PARTLY
    assert judge(made(some=True), {"one": 2.0, "two": 0.5}).verdict == HOLDS
    assert judge(made(size=5.0), {"one": 2.0, "two": 3.0}).verdict == PARTLY
    assert judge(made(size=5.0, headline="largest"), {"one": 2.0, "two": 6.0}).verdict == HOLDS
    assert judge(made(), {"one": None, "two": 3.0}).verdict == HOLDS
    assert "reaches 5" in made(size=5.0).rule


@pytest.mark.parametrize(
    ("changes", "partly"),
    [
        ({}, "; partly if only some do"),
        ({"size": 5.0}, "; partly if only some do or the size is missed"),
        ({"some": True, "size": 5.0}, "; partly if the size is missed"),
        ({"some": True}, "an effect above 1"),
    ],
)
def test_a_rule_says_when_a_claim_holds_partly(changes: dict[str, object], partly: str) -> None:
    assert made(**changes).rule.endswith(partly)


def test_effects_at_the_mark_do_not_show_a_claim() -> None:
    found = judge(made(), {"one": 1.0, "two": 1.0})
    assert (found.verdict, found.supporting, found.against) == (FAILS, [], ["one", "two"])
    assert judge(made(), {"one": None}) == (FAILS, None, [], [])


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
