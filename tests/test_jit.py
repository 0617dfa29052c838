"""What is compiled is compiled again when anything that went into it has changed, and anywhere it can be run."""

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import charllm
from charllm import jit
from charllm.cli import main
from charllm.jit import SUFFIX, compiled, parts_of
from charllm.simulate.step_loop import simulate_steps
from charllm.timeline.engine import simulate_schedule

SIMULATE = ("simulate", "--model", "llama3-8b", "--cluster", "h200x8", "--gbs", "8", "--json")
KEPT_IN = Path("charllm/__pycache__/charllm")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with a copy of the package that nothing has been compiled for."""
    source = Path(charllm.__file__).parent
    shutil.copytree(source, tmp_path / "charllm", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def start(package: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "charllm", *SIMULATE], cwd=package, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(package), "HOME": os.devnull},
    )  # fmt: skip


def clock_of(program: "subprocess.Popen[str]") -> float:
    out, errors = program.communicate()
    assert program.returncode == 0, errors
    assert "Traceback" not in errors
    return float(json.loads(out)["metrics"]["clock_mean_hz"])


def test_an_edit_of_the_governor_moves_the_clock(package: Path) -> None:
    # Two at once: one compiles, the other loads what it has stored.
    first_hz, other_hz = [clock_of(program) for program in (start(package), start(package))]
    assert first_hz == other_hz
    stored = {path: path.stat().st_mtime_ns for path in (package / KEPT_IN).rglob(f"*{SUFFIX}")}
    assert len(stored) == 2
    assert clock_of(start(package)) == first_hz
    assert {path: path.stat().st_mtime_ns for path in (package / KEPT_IN).rglob(f"*{SUFFIX}")} == stored
    for path in stored:
        path.write_bytes(path.read_bytes()[:-1])
    assert clock_of(start(package)) == first_hz
    physics = package / "charllm/gpu/physics.py"
    line = "    over_k = max(temperature_c - board.operating_c, memory_c - board.memory_operating_c)\n"
    text = physics.read_text()
    assert line in text
    physics.write_text(text.replace(line, f"    allowed = min(allowed, 0.5 * board.asked_clock_hz)\n{line}"))
    assert clock_of(start(package)) == pytest.approx(990e6)


def test_where_nothing_can_be_written_code_is_compiled_for_the_moment(package: Path) -> None:
    (package / KEPT_IN).parent.mkdir()
    (package / KEPT_IN).write_text("a file in the folder's place, which stops root, too")
    assert clock_of(start(package)) > 1e9


def test_all_that_goes_into_machine_code_is_known() -> None:
    parts = parts_of(simulate_steps.__wrapped__)  # type: ignore[attr-defined]
    assert {"charllm.simulate.step_loop.spend", "charllm.gpu.physics.next_clock"} <= set(parts)
    assert parts["charllm.simulate.step_loop.MATRIX_J"] == 3
    assert "repeats" not in parts["charllm.simulate.slices.Slices"]
    assert "table" in parts["charllm.simulate.slices.Slices"]


def test_stored_code_runs_without_numba() -> None:
    program = (
        "import sys, charllm; charllm.simulate(model='llama3-8b', cluster='h200x8', gbs=8);"
        "print('numba' in sys.modules)"
    )
    for _ in range(2):
        said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert said == "False\n"


class Rows(NamedTuple):
    table: Any
    first: int
    scale: float


@compiled
def add_up(rows: Rows, columns: tuple[Any, Any], only_even: bool) -> float:
    found = 0.0
    for place in range(rows.first, len(rows.table)):
        if not only_even or place % 2 == 0:
            for column in columns[0]:
                found += rows.scale * rows.table[place, column] + columns[1][column]
    return found


@compiled
def fill(row: Any, value: float) -> None:
    for place in range(len(row)):
        row[place] = value


@compiled
def has_below(row: Any, value: float) -> bool:
    found = False
    for one in row:
        found = found or one < value
    return found


@compiled
def allocate(size: int) -> float:
    return float(np.ones(size).sum())


@compiled
def two_numbers(size: int) -> tuple[int, float]:
    return size, 1.0


def test_rows_of_any_stride_and_order_are_read_as_python_reads_them() -> None:
    table = np.arange(24.0).reshape(4, 6)
    for one in (table, table.T, table[::2], table[:, ::-1]):
        rows, columns = Rows(one, 1, 0.5), (np.array([0, 1]), np.linspace(0, 1, 8)[::2])
        for only_even in (False, True):
            plain = add_up.__wrapped__  # type: ignore[attr-defined]
            assert add_up(rows, columns, only_even) == plain(rows, columns, only_even)


def test_compiled_code_writes_into_the_arrays_that_it_is_given() -> None:
    row = np.zeros(6)
    fill(row[1::2], 3.0)
    assert row.tolist() == [0, 3, 0, 3, 0, 3]
    assert has_below(row, np.float64(1.0)) is True
    assert has_below(row[1::2], 1.0) is False


def test_what_cannot_be_compiled_or_given_is_named() -> None:
    with pytest.raises(TypeError, match="got list; expected a number, an array"):
        fill([1.0], 2.0)
    with pytest.raises(TypeError, match=r"allocate needs NRT_.*; expected a function that allocates no arrays"):
        allocate(3)
    with pytest.raises(TypeError, match=r"two_numbers returns .*; expected one of float64, "):
        two_numbers(3)


def test_machine_code_agrees_with_python(monkeypatch: pytest.MonkeyPatch) -> None:
    order = np.array([[[0, 0, 0], [1, 0, 0]]])
    arguments = (order, np.ones((3, 1, 4)), np.zeros(1))
    compiled = simulate_schedule(*arguments, blocking=False, chunks=1, microbatches=1)
    from charllm.timeline import engine

    monkeypatch.setattr(engine, "_simulate", engine._simulate.__wrapped__)  # type: ignore[attr-defined]
    plain = simulate_schedule(*arguments, blocking=False, chunks=1, microbatches=1)
    assert all(np.array_equal(one, other) for one, other in zip(compiled, plain, strict=True))


def test_where_numba_is_missing_a_command_names_the_extra_that_makes_it_fast(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["catalog", "gpus"]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(jit, "find_spec", lambda _: None)
    monkeypatch.setattr(jit, "_versions", cache(jit._versions.__wrapped__))
    assert compiled(lambda number: 2 * number)(3.0) == 6.0
    assert main(["catalog", "gpus"]) == 0
    assert capsys.readouterr().err == "charllm: slow without numba: pip install 'charllm[fast]'\n"
