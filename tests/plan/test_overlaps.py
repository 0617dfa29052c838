import numpy as np
import pytest

from charllm.plan.overlaps import Traits, list_overlaps, number_traits

EVERY = (frozenset[str](), frozenset({"dp"}), frozenset({"dp", "pp"}), frozenset({"tp", "dp", "pp", "ep"}))


def traits(**changes: object) -> Traits:
    return Traits(tp=True, dp=True, pp=True, ep=True, pipelined=True, chunked=True, full=False, zero=1)._replace(
        **changes
    )


@pytest.mark.parametrize(
    ("program", "changes", "expected"),
    [
        (None, {}, ((), ("dp",), ("dp", "pp"), ("tp", "dp", "pp", "ep"))),
        (None, {"pp": False, "ep": False}, ((), ("dp",), ("tp", "dp"))),
        (None, {"dp": False}, ((), ("pp",), ("tp", "pp", "ep"))),
        ("megatron", {"chunked": False}, ((), ("dp",), ("dp", "pp"))),
        ("megatron", {"full": True}, ((), ("dp",), ("dp", "pp"))),
        ("megatron", {}, ((), ("dp",), ("dp", "pp"), ("tp", "dp", "pp", "ep"))),
        ("nemo", {}, ((), ("dp",), ("dp", "pp"))),
        ("nemo", {"zero": 2}, (("dp",), ("dp", "pp"))),
        ("torchtitan", {}, (("dp", "pp"),)),
    ],
)
def test_only_axes_with_something_to_hide_are_tried_and_only_as_the_program_hides_them(
    program: str | None, changes: dict[str, object], expected: tuple[tuple[str, ...], ...]
) -> None:
    assert list_overlaps(traits(**changes), EVERY, program) == expected


def test_every_trait_has_a_number_of_its_own() -> None:
    each = [traits(), *(traits(**{name: not getattr(traits(), name)}) for name in Traits._fields[:-1])]
    each += [traits(zero=zero) for zero in (0, 2, 3)]
    columns = Traits(*(np.array(column) for column in zip(*each, strict=True)))
    assert len(set(number_traits(columns).tolist())) == len(each)
    assert int(number_traits(traits(tp=False, dp=False, pp=False, ep=False, pipelined=False, chunked=False))) == 1
    assert int(number_traits(traits(full=True))) == 0b1111111_0001
