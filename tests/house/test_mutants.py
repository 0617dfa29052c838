"""What the mutation run changes, and what it leaves alone."""

import ast
from pathlib import Path

import pytest

from benchmarks.mutation.mutants import apply_mutant, draw_mutants, list_sites, share_out

SOURCE = '''"""Text with 3 numbers."""
from typing import Literal
__slots__ = ("a", "b")
LIMIT: Literal[4] = 4
GUARD = 1e-12
def power(watts: "Literal[5]" = 2.0) -> Literal[6]:
    """Return 7."""
    if watts < 0:
        raise ValueError(f"{watts + 8}")
    return max(watts**2, -LIMIT * watts + 1)
'''


@pytest.fixture
def sites(tmp_path: Path) -> list[tuple[str, str, str]]:
    path = tmp_path / "power.py"
    path.write_text(SOURCE)
    return [(one.function, one.before, one.after) for options in list_sites(path, "power.py") for one in options]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("4", "5"), ("2.0", "4.0"), ("2.0", "1.0"), ("watts < 0", "watts > 0"), ("watts < 0", "watts <= 0"),
        ("max(watts**2, -LIMIT * watts + 1)", "min(watts ** 2, -LIMIT * watts + 1)"),
        ("max(watts**2, -LIMIT * watts + 1)", "watts ** 2"), ("watts**2", "watts * 2"), ("2", "3"),
        ("-LIMIT * watts + 1", "-LIMIT * watts - 1"), ("-LIMIT * watts + 1", "-LIMIT * watts"), ("-LIMIT", "LIMIT"),
        ("-LIMIT * watts", "-LIMIT / watts"), ("-LIMIT * watts", "watts"),
    ],
)  # fmt: skip
def test_operators_signs_exponents_factors_constants_and_bounds_change(
    sites: list[tuple[str, str, str]], before: str, after: str
) -> None:
    assert any((one, other) == (before, f"({after})") for _function, one, other in sites)


def test_texts_annotations_messages_slots_and_guards_stay(sites: list[tuple[str, str, str]]) -> None:
    assert not {"3", "5", "6", "7", "watts + 8", "1e-12"} & {before for _function, before, _after in sites}


def test_a_mutant_is_python_and_knows_its_function_and_its_place() -> None:
    package = Path(__file__).parents[2] / "src" / "charllm"
    drawn = draw_mutants(package, ("gpu", "network"), 60, seed=3)
    assert drawn == draw_mutants(package, ("gpu", "network"), 60, seed=3)
    assert drawn != draw_mutants(package, ("gpu", "network"), 60, seed=4)
    assert len(drawn) == 60
    for one in drawn:
        source = (package / one.file).read_bytes()
        ast.parse(apply_mutant(source, one))
        assert source[: one.start].count(b"\n") == one.line - 1


def test_mutants_are_shared_out_by_the_amount_of_code() -> None:
    assert share_out(10, [6, 3, 1]) == [6, 3, 1]
    assert share_out(4, [1, 1, 1]) == [2, 1, 1]
    assert sum(share_out(300, [7, 11, 13, 400])) == 300
