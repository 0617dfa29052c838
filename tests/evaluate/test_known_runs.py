import json
import re
from collections.abc import Callable

import pytest

from charllm.catalog.tables import entries
from charllm.cli import main
from charllm.evaluate.known_runs import (
    KnownRun,
    KnownScore,
    known_runs,
    measured_step_s,
    render_page,
    resolve_known,
    score_run,
    summarise,
)
from charllm.units import GIGA
from charllm.workload.model_flop import model_flop
from tests.shared import shared

RUNS = known_runs()
MEASURES = ({"step_time_s"}, {"tokens_per_s_per_gpu"}, {"tflop_per_s_per_gpu", "flop_per_token"})
MAX_MEDIAN_ERROR, MAX_ERROR = 0.06, 0.2
each_run = pytest.mark.parametrize("run", RUNS, ids=lambda run: run.id)


@pytest.fixture
def score(tmp_path_factory: pytest.TempPathFactory) -> Callable[[KnownRun], KnownScore]:
    """Score a run, once for all tests of this file in whichever process."""
    return lambda run: shared(tmp_path_factory, f"known-run-{run.id}", lambda: score_run(run))


@pytest.fixture
def scores(score: Callable[[KnownRun], KnownScore]) -> list[KnownScore]:
    return [score(run) for run in RUNS]


def test_at_least_twenty_runs_are_scored() -> None:
    assert sum(run.is_scored for run in RUNS) >= 20
    assert len({run.id for run in RUNS}) == len(RUNS)


@each_run
def test_a_run_states_its_source_and_what_was_measured(run: KnownRun) -> None:
    assert re.search(r"arXiv:\d{4}\.\d{5}|MLPerf|BigScience|Megatron-LM|Hugging Face", run.citation)
    assert set(run.measured) in MEASURES
    assert all(value > 0 for value in run.measured.values())
    assert run.derivation
    assert re.search("read in|second-hand|recalled", run.verified)
    assert 0 < run.tolerance_fraction <= 0.05
    assert run.confidence in ("high", "medium", "low")
    assert run.assumed or run.confidence == "high"


@each_run
def test_a_run_resolves_to_the_gpus_it_used(run: KnownRun) -> None:
    spec, _ = resolve_known(run)
    assert spec.parallelism.world == spec.cluster.gpus
    assert spec.cluster.gpu.memory_bytes == pytest.approx(run.gpu_memory_gb * GIGA, rel=0.08)
    assert measured_step_s(run, spec) > 0


@each_run
def test_a_stated_rate_is_possible_on_its_gpu(run: KnownRun) -> None:
    spec, _ = resolve_known(run)
    peak = spec.cluster.gpu.peak_flop_per_s(spec.training.precision)
    utilization = model_flop(spec) / (measured_step_s(run, spec) * spec.parallelism.world * peak)
    assert 0.15 < utilization < 0.62


@each_run
def test_a_papers_flops_are_those_of_the_model_in_its_convention(run: KnownRun) -> None:
    if "flop_per_token" not in run.measured:
        return
    spec, _ = resolve_known(run)
    ratio = run.measured["flop_per_token"] * spec.tokens_per_step / model_flop(spec)
    # Full recomputation counts a third more; attention that is not halved up to 4 % more.
    recomputed = 4 / 3 if spec.training.recompute == "full" else 1.0
    assert recomputed * 0.99 < ratio < recomputed * 1.05


@each_run
def test_a_printed_step_time_is_that_of_the_derivation(run: KnownRun) -> None:
    printed = re.search(r"= ([\d.]+) s\b", run.derivation)
    if printed and "step_time_s" not in run.measured:
        assert measured_step_s(run, resolve_known(run)[0]) == pytest.approx(float(printed[1]), rel=0.005)


def test_only_schedules_that_are_not_known_are_replaced() -> None:
    replaced = {run.id: notes for run in RUNS if (notes := resolve_known(run)[1])}
    assert set(replaced) <= {"deepseek-v3-h800"}


def test_profiles_models_and_clusters_are_those_of_the_catalog() -> None:
    for run in RUNS:
        framework = run.request["framework"]
        assert (framework if isinstance(framework, str) else framework["base"]) in entries("frameworks")


@each_run
def test_a_run_fits_in_memory_as_it_did(run: KnownRun, score: Callable[[KnownRun], KnownScore]) -> None:
    assert score(run).fits


def test_predicted_step_times_are_near_those_of_the_papers(scores: list[KnownScore]) -> None:
    summary = summarise(scores)
    far = {
        row["id"]: round(row["error_fraction"], 3)
        for row in summary["predictions"]
        if row["scored"] and abs(row["error_fraction"]) > MAX_ERROR
    }
    assert not far
    assert summary["median_abs_error_fraction"] <= MAX_MEDIAN_ERROR


def test_the_page_names_every_run_and_its_citation(scores: list[KnownScore]) -> None:
    page = render_page(scores)
    for run in RUNS:
        assert run.name in page
        assert run.citation in page


def test_the_command_prints_a_table_of_at_most_100_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], scores: list[KnownScore]
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    found = {score.run.id: score for score in scores}
    monkeypatch.setattr("charllm.evaluate.known_runs.score_run", lambda run: found[run.id])
    assert main(["validate", "known", "--plots"]) == 0
    text = capsys.readouterr().out
    assert "predicted step time, s" in text
    assert re.search(r"\d+ of \d+ predictions lie within 10 %", text)
    assert max(len(line) for line in text.splitlines()) <= 100
    assert all(run.name in text for run in RUNS)
    assert main(["validate", "known", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["predictions"]) == len(RUNS)


def test_a_file_is_required_except_with_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "ops", "--gpu", "h200"]) == 2
    assert "FILE" in capsys.readouterr().err
