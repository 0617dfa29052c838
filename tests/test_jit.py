"""Compiled functions: what they take and return, where their code is stored, and when it is compiled anew."""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

from charllm import jit as compiler
from charllm.jit import SUFFIX, ObjectCode, jit

LAW = """
from charllm.jit import jit

FACTOR = 2.0

@jit
def square(x):
    return x * x

@jit
def law(x):
    return FACTOR * square(x) + 1.0
"""


class Pair(NamedTuple):
    """Arrays and numbers under names."""

    rows: Any
    first: int
    scale: float


@jit
def total(pair: Pair, at: tuple[Any, Any], only_even: bool) -> float:
    """Add the chosen rows of a table."""
    found = 0.0
    for place in range(pair.first, len(pair.rows)):
        if not only_even or place % 2 == 0:
            for one in at[0]:
                found += pair.scale * pair.rows[place, one] + at[1][one]
    return found


@jit
def fill(row: Any, value: float) -> None:
    """Write a value everywhere."""
    for place in range(len(row)):
        row[place] = value


@jit
def count_below(row: Any, value: float) -> int:
    """Count the entries below a value."""
    found = 0
    for one in row:
        if one < value:
            found += 1
    return found


@jit
def allocates(size: int) -> float:
    """Allocate an array."""
    return float(np.ones(size).sum())


def _law(folder: Path, source: str) -> ModuleType:
    path = folder / "made_law.py"
    path.write_text(source, encoding="utf-8")
    spec = spec_from_file_location("made_law", path)
    assert spec is not None
    made = module_from_spec(spec)
    # Not through importlib: its bytecode is named by a second, within which these tests write a source twice.
    exec(compile(source, str(path), "exec"), vars(made))
    return made


def _stored(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob(f"*{SUFFIX}"))


def test_machine_code_gives_what_the_function_gives_on_arrays_tuples_and_numbers() -> None:
    """Rows of another stride and order, too."""
    rows = np.arange(24.0).reshape(4, 6)
    for table in (rows, rows.T, rows[::2], rows[:, ::-1]):
        pair, at = Pair(table, 1, 0.5), (np.array([0, 1]), np.linspace(0, 1, 8)[::2])
        for only_even in (False, True):
            assert total(pair, at, only_even) == total.function(pair, at, only_even)


def test_a_compiled_function_writes_into_its_arrays_and_returns_nothing_or_a_whole_number() -> None:
    """A part of an array is written alone."""
    row = np.zeros(6)
    assert fill(row[1::2], 3.0) is None
    assert row.tolist() == [0, 3, 0, 3, 0, 3]
    assert count_below(row, np.float64(1.0)) == 3


def test_what_a_compiled_function_cannot_take_is_named() -> None:
    """A list, an argument by name, an array of its own."""
    with pytest.raises(TypeError, match="got list; expected a number, an array"):
        fill([1.0], 2.0)
    with pytest.raises(TypeError, match="got value by name"):
        fill(np.zeros(1), value=2.0)
    with pytest.raises(TypeError, match=r"allocates needs .*; expected a function that allocates no arrays"):
        allocates(3)


@pytest.mark.parametrize(
    "change", [("x * x", "x * x * x"), ("FACTOR = 2.0", "FACTOR = 3.0"), ("+ 1.0", "+ 2.0")], ids=str
)
def test_an_edit_of_anything_compiled_reaches_the_next_process(tmp_path: Path, change: tuple[str, str]) -> None:
    """Of what it calls, of a constant, of itself; the old code is removed."""
    before = _law(tmp_path, LAW)
    assert before.law(3.0) == 19.0
    old = _stored(tmp_path)
    after = _law(tmp_path, LAW.replace(*change))
    assert after.law(3.0) == after.law.function(3.0) != 19.0
    assert len(old) == len(_stored(tmp_path)) == 1
    assert old != _stored(tmp_path)


def test_stored_code_is_loaded_and_damaged_code_compiled_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing compiles while the store is whole."""
    assert _law(tmp_path, LAW).law(3.0) == 19.0
    compiled: list[str] = []
    compile_now: Callable[..., ObjectCode] = compiler._compile

    def count(*given: Any) -> ObjectCode:
        compiled.append("once")
        return compile_now(*given)

    monkeypatch.setattr(compiler, "_compile", count)
    assert _law(tmp_path, LAW).law(3.0) == 19.0
    assert not compiled
    path = next(tmp_path.rglob(f"*{SUFFIX}"))
    path.write_bytes(path.read_bytes()[:-1])
    assert _law(tmp_path, LAW).law(3.0) == 19.0
    assert compiled == ["once"]


def test_code_is_stored_in_the_users_cache_or_nowhere_if_the_source_cannot_be_written_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file stands where each folder would be."""
    source, cache = tmp_path / "installed", tmp_path / "cache"
    source.mkdir()
    (source / "__pycache__").write_text("", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    assert _law(source, LAW).law(3.0) == 19.0
    assert len(_stored(cache)) == 1
    assert not _stored(source)
    monkeypatch.setenv("XDG_CACHE_HOME", str(source / "__pycache__"))
    assert _law(source, LAW.replace("2.0", "4.0")).law(3.0) == 37.0


def test_a_second_process_loads_the_simulation_without_numba() -> None:
    """The first has compiled it."""
    program = (
        "import sys, charllm; r = charllm.simulate(model='llama3-8b', cluster='h200x8', gbs=8);"
        "print(r.metrics['step_time_s'], 'numba' in sys.modules)"
    )
    found = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(2)
    ]
    assert found[0][0] == found[1][0]
    assert found[1][1] == "False"


def test_without_numba_functions_run_as_they_are(tmp_path: Path) -> None:
    """The same result, and nothing is stored."""
    program = (
        "import sys; sys.modules['numba'] = None; sys.path.insert(0, '.'); import made_law; print(made_law.law(3.0))"
    )
    (tmp_path / "made_law.py").write_text(LAW, encoding="utf-8")
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment).stdout
    assert said == "19.0\n"
    assert not _stored(tmp_path)
