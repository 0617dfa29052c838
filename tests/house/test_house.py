"""Rules of the house that a reviewer should not have to check."""

import ast
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from charllm.spec import board, cooling, framework, hardware, model, parallelism, run, training
from charllm.units import SUFFIXES

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "src" / "charllm"
FILES = sorted(SOURCE.rglob("*.py"))
MAX_FILE_LINES, MAX_FUNCTION_LINES = 420, 60
UNITLESS = {
    # Ratios and counts of people's own choosing.
    "oversubscription", "capacity_factor", "routing_skew", "stated_params", "stated_active_params", "traffic_factor",
    # Exponents, depths and lengths of shapes.
    "ramp", "roof_power", "grouped_ramp", "grouped_roof_power", "reread_factor",
    "attention_ramp", "attention_backward_ramp", "attention_widest", "tile_ramp", "softmax_ramp",
}  # fmt: skip


def functions(path: Path) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            yield node


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_and_functions_hold_one_thought(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_FILE_LINES
    for function in functions(path):
        assert (function.end_lineno or 0) - function.lineno < MAX_FUNCTION_LINES, function.name


def test_no_file_is_named_after_nothing() -> None:
    assert not {path.stem for path in FILES} & {"utils", "helpers", "common", "misc", "manager", "base"}


@pytest.mark.parametrize(
    "module",
    [board, cooling, framework, hardware, model, parallelism, run, training],
    ids=lambda module: module.__name__,
)
def test_every_real_number_in_a_spec_says_its_unit(module: object) -> None:
    for settings in vars(module).values():
        if not (isinstance(settings, type) and is_dataclass(settings)):
            continue
        for field in fields(settings):
            if "float" in str(field.type) and field.name not in UNITLESS:
                assert any(field.name.endswith(f"_{suffix}") for suffix in SUFFIXES), (
                    f"{settings.__name__}.{field.name}"
                )


def test_conversions_live_in_one_file() -> None:
    conversion = re.compile(r"[*/]\s*(1e-?[369]|1e12|1000|1024|2(\.0)?\*\*[1-4]0)\b")
    for path in FILES:
        if path.name != "units.py":
            assert not conversion.search(path.read_text()), path


def test_the_environment_is_read_by_nobody_below_the_command_line_and_the_api() -> None:
    for path in FILES:
        # Marks are called from inside someone else's job, and nodes by srun: no command line of ours has run there.
        # Ray takes its token from the environment alone.
        if path.parent.name not in ("cli", "api") and path.name not in ("mark.py", "node.py", "ray.py", "observer.py"):
            assert "os.environ" not in path.read_text(), path


def test_tests_mirror_the_source() -> None:
    rooms = {path.name for path in SOURCE.iterdir() if path.is_dir() and not path.name.startswith("__")}
    tested = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()}
    assert rooms <= tested


def test_assumed_constants_are_few_and_named() -> None:
    assumed = [
        (path.name, line) for path in FILES for line in path.read_text().splitlines() if line.startswith('"""Assumed')
    ]
    assert len(assumed) <= 13, assumed
