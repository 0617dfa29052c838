"""What is compiled is compiled again when anything that went into it has changed, and anywhere it can be run."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import charllm
from charllm.jit import parts_of
from charllm.simulate.step_loop import simulate_step
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
    stored = {path: path.stat().st_mtime_ns for path in (package / KEPT_IN).rglob("*.nbc")}
    assert clock_of(start(package)) == first_hz
    assert {path: path.stat().st_mtime_ns for path in (package / KEPT_IN).rglob("*.nbc")} == stored
    for index in (package / KEPT_IN).rglob("*.nbi"):
        index.write_bytes(b"")
    assert clock_of(start(package)) == first_hz
    physics = package / "charllm/gpu/physics.py"
    line = "    over_k = temperature_c - board.operating_c\n"
    text = physics.read_text()
    assert line in text
    physics.write_text(text.replace(line, f"    allowed = min(allowed, 0.5 * board.asked_clock_hz)\n{line}"))
    assert clock_of(start(package)) == pytest.approx(990e6)


def test_where_nothing_can_be_written_code_is_compiled_for_the_moment(package: Path) -> None:
    (package / KEPT_IN).parent.mkdir()
    (package / KEPT_IN).write_text("a file in the folder's place, which stops root, too")
    assert clock_of(start(package)) > 1e9


def test_all_that_goes_into_machine_code_is_known() -> None:
    parts = parts_of(simulate_step.__wrapped__)  # type: ignore[attr-defined]
    assert {"charllm.simulate.step_loop.spend", "charllm.gpu.physics.next_clock"} <= set(parts)
    assert parts["charllm.simulate.step_loop.MATRIX_J"] == 4
    assert "repeats" not in parts["charllm.simulate.slices.Slices"]
    assert "table" in parts["charllm.simulate.slices.Slices"]


def test_importing_compiled_code_does_not_import_numba() -> None:
    program = "import sys, charllm.simulate.predict; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_machine_code_agrees_with_python(monkeypatch: pytest.MonkeyPatch) -> None:
    order = np.array([[[0, 0, 0], [1, 0, 0]]])
    arguments = (order, np.ones((3, 1, 4)), np.zeros(1))
    compiled = simulate_schedule(*arguments, blocking=False, chunks=1, microbatches=1)
    from charllm.timeline import engine

    monkeypatch.setattr(engine, "_simulate", engine._simulate.__wrapped__)  # type: ignore[attr-defined]
    plain = simulate_schedule(*arguments, blocking=False, chunks=1, microbatches=1)
    assert all(np.array_equal(one, other) for one, other in zip(compiled, plain, strict=True))
