"""A command loads what it uses: the modules of each, listed in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import charllm
from charllm.analysis.advice import best_changes
from charllm.catalog.resolve import resolve_run
from charllm.cli import COMMANDS, main
from charllm.simulate.predict import predict

HEAVY = {"duckdb", "fastapi", "llvmlite", "numba", "ortools", "pandas", "ray", "rich", "scipy", "torch", "uvicorn"}
"""Packages that no command loads unless it uses them."""
PROGRAM = """
import contextlib, io, json, sys
from charllm.cli import main
with contextlib.redirect_stdout(io.StringIO()):
    code = main(sys.argv[1:])
print(json.dumps([code, sorted(sys.modules)]))
"""
RUN = ("--model", "llama3-8b", "--cluster", "h200x8", "--gbs", "8")
STUDY = """
about = "two strategies"
request = { model = "llama3-8b", cluster = "h200x8", training = { global_batch_size = 8 } }
[[groups]]
axes.tp = { field = "parallelism.tp", values = [1, 2] }
"""
READINGS = (
    "timestamp, index, name, power.draw [W], temperature.gpu\n"
    "2026/01/01 00:00:00.000, 0, NVIDIA H200, 100.0, 40\n"
    "2026/01/01 00:00:01.000, 0, NVIDIA H200, 110.0, 41\n"
)
PREDICTING = {"analysis", "evaluate", "layout", "network", "plan", "simulate", "trace"}
"""Subpackages that price, simulate or judge runs."""


def loaded_by(*words: str) -> set[str]:
    """Return the modules that a command loads."""
    found = subprocess.run([sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, check=True)
    code, modules = json.loads(found.stdout.splitlines()[-1])
    assert code == 0, found.stderr
    return set(modules)


def parts(modules: set[str]) -> set[str]:
    """Return the subpackages and files of charllm among modules."""
    return {name.split(".")[1] for name in modules if name.startswith("charllm.")}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a simulated run, a study of two and a recording of two rows."""
    folder = tmp_path_factory.mktemp("stored")
    (folder / "two.toml").write_text(STUDY)
    (folder / "gpu.csv").write_text(READINGS)
    assert main(["simulate", *RUN, "--out", str(folder / "run")]) == 0
    assert main(["sweep", str(folder / "two.toml"), "--out", str(folder / "study")]) == 0
    assert main(["convert", "nvidia-smi", str(folder / "gpu.csv"), "-o", str(folder / "recorded")]) == 0
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_help_loads_no_more_than_the_settings_of_its_command(command: str) -> None:
    modules = loaded_by(command, "--help")
    assert not HEAVY & modules
    assert not {"analysis", "evaluate", "network"} & parts(modules)
    own = [name for name in modules if name.startswith("charllm.")]
    assert len(own) <= 100
    assert len([name for name in own if name.startswith("charllm.simulate")]) <= 2


def test_the_overview_loads_almost_nothing() -> None:
    assert len([name for name in loaded_by("--help") if name.startswith("charllm")]) <= 4


def test_a_stored_run_is_shown_without_what_predicts_or_measures(stored: Path) -> None:
    modules = loaded_by("show", str(stored / "run"))
    assert not (HEAVY | {"numpy"}) & modules
    assert not (PREDICTING | {"measure", "sweep"}) & parts(modules)
    assert len(modules) <= 230


def test_a_recording_is_shown_without_what_predicts(stored: Path) -> None:
    modules = loaded_by("show", str(stored / "recorded"))
    assert not HEAVY & modules
    assert not (PREDICTING - {"analysis"}) & parts(modules)


def test_a_study_is_shown_and_reported_without_what_predicts_or_measures(stored: Path) -> None:
    for words in (("show",), ("report", "--out", str(stored / "study.html"))):
        modules = loaded_by(*words, str(stored / "study"))
        assert not (HEAVY - {"duckdb"}) & modules
        assert not (PREDICTING | {"plan"}) & parts(modules)
        assert not {name for name in modules if name.startswith("charllm.measure.")} - MEASURE_SETTINGS


MEASURE_SETTINGS = {
    f"charllm.measure.{name}"
    for name in ("settings", "launchers", "launchers.plan", "adapters", "adapters.adapter", "adapters.command",
                 "adapters.programs", "redaction")
}  # fmt: skip
"""What the flags of a sweep are declared in."""


def test_a_simulated_sweep_loads_nothing_that_measures(stored: Path) -> None:
    modules = loaded_by("sweep", str(stored / "two.toml"), "--workers", "1")
    assert not (HEAVY - {"llvmlite"}) & modules
    assert not {name for name in modules if name.startswith("charllm.measure.")} - MEASURE_SETTINGS


def test_what_looks_up_and_compares_loads_nothing_that_predicts(stored: Path) -> None:
    commands: Mapping[tuple[str, ...], set[str]] = {
        ("catalog",): set(),
        ("compare", str(stored / "run"), str(stored / "run")): set(),
        ("query", str(stored), "select count(*) from runs"): {"duckdb"},
        ("convert", "nvidia-smi", str(stored / "gpu.csv"), "-o", str(stored / "again")): {"duckdb"},
    }
    for words, used in commands.items():
        modules = loaded_by(*words)
        assert HEAVY & modules <= used, words
        assert not PREDICTING & parts(modules), words


def test_a_simulation_loads_nothing_that_measures_reads_traces_or_draws_pages(stored: Path) -> None:
    modules = loaded_by("simulate", *RUN)
    assert not (HEAVY - {"llvmlite"}) & modules
    assert not {"measure", "trace", "sweep", "plan", "evaluate", "api.report"} & parts(modules)


def test_importing_the_package_loads_none_of_its_parts() -> None:
    program = "import sys, charllm; print(*[name for name in sys.modules if name.startswith('charllm.')])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "\n"
    assert callable(charllm.simulate)


def test_a_step_is_built_once_for_a_result_and_once_for_each_change_that_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built: list[Any] = []
    resolved: list[Any] = []

    def counting(into: list[Any], function: Any) -> Any:
        def call(given: Any) -> Any:
            into.append(given)
            return function(given)

        return call

    from charllm.catalog import resolve
    from charllm.simulate import long_step
    from charllm.simulate import predict as predicted

    monkeypatch.setattr(resolve, "read_run", counting(resolved, resolve.read_run))
    for module in (long_step, predicted):
        monkeypatch.setattr(module, "build_step", counting(built, module.build_step))
    request = {"model": "llama3-70b", "cluster": "charllm-ppt-h200", "parallelism": {"tp": 4, "pp": 4}}
    run = resolve_run({**request, "training": {"global_batch_size": 128}})
    found = predict(run)
    assert (len(resolved), len(built)) == (1, 1)
    best = best_changes(run, found.result.metrics)
    tried = len(resolved) - 1
    assert 4 <= len(best) <= 5 < tried <= 13
    assert len(built) - 1 <= tried
    assert len({id(one) for one in built}) == len(built)
