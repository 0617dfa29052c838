"""Reports of studies and of several runs, from their folders."""

import json
import shlex
import shutil
from pathlib import Path

import pytest

import charllm
from charllm.api.keywords import build_request
from charllm.api.report import page_of
from charllm.api.report_study import write_flags
from charllm.cli import main
from charllm.cli.parser import build_parser
from charllm.cli.spec_flags import request_from
from charllm.errors import SpecError
from charllm.report.figure import Page
from charllm.sweep.axes import list_settings
from charllm.sweep.study import load_study
from tests.api.tiny import MODEL

STUDY = {
    "about": "What does tp cost?",
    "request": {"model": MODEL, "cluster": "h200x8", "training": {"global_batch_size": 8}},
    "groups": [
        {"axes": {"tp": {"field": "parallelism.tp", "values": [1, 2, 3, 4]}}},
        {"axes": {"cap": {"capped": {"conditions": {"power_cap_w": 300}}}}},
    ],
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studies") / "study"
    charllm.sweep({"name": "small", **STUDY}, out=folder)
    return folder


@pytest.fixture
def study(stored: Path, tmp_path: Path) -> Path:
    """A copy of the study, to break."""
    return Path(shutil.copytree(stored, tmp_path / "study"))


def figure_names(page: Page) -> set[str]:
    return {figure.name for section in page.sections for figure in section.figures if not figure.missing}


def test_a_stored_study_has_its_cases_their_gpus_and_their_commands(stored: Path) -> None:
    page = page_of(stored)
    assert page.title == "Study small"
    assert {"strategies", "pareto", "breakdown", "memory", "power", "clock", "energy", "heat", "links"} <= figure_names(
        page
    )
    assert "rejected" in figure_names(page)
    (scatter,) = [figure for section in page.sections for figure in section.figures if figure.name == "pareto"]
    assert scatter.columns["case"].values == ["tp 1", "tp 2", "tp 4", "capped"]
    assert "--power-cap 300" in scatter.columns["details"].values[-1]["command"]
    folded = {figure.folded.split(":")[0] for section in page.sections for figure in section.figures if figure.folded}
    assert folded == {"tiny tp 1", "tiny tp 2", "tiny tp 4", "tiny capped"}


def test_a_study_in_memory_has_the_same_answer_as_stored(stored: Path) -> None:
    swept = charllm.load(stored)
    assert isinstance(swept, charllm.Sweep)
    page, whole = page_of(swept), page_of(stored)
    assert page.answer == whole.answer
    assert "not stored" in page.warnings[0]


def test_missing_half_written_and_unreadable_cases_are_skipped_with_a_note(study: Path) -> None:
    shutil.rmtree(study / "runs" / "0000")
    (study / "runs" / "0001" / "case.json").write_text('{"case": "tp 2", "exit')
    (study / "runs" / "0003" / "result.json").write_text("{")
    (study / "runs" / "0004" / "result.json").unlink()
    page = page_of(study)
    told = " ".join(page.warnings)
    assert "2 of 5 cases are skipped: not run yet, half-written or deleted (tp 1, tp 2)." in told
    assert "Case tp 4: its result.json cannot be read" in told
    assert "Case capped: its result.json is missing; it is shown by its summary alone." in told
    assert "3 cases: 2 simulated, 1 invalid." in page.further[-1]


def test_hostile_names_stay_texts(study: Path) -> None:
    outcome = json.loads((study / "runs" / "0000" / "case.json").read_text())
    outcome["summary"]["model"] = "<script>alert(1)</script>"
    (study / "runs" / "0000" / "case.json").write_text(json.dumps(outcome))
    charllm.report(study, out=study.parent / "report.html")
    assert "<script>alert(1)" not in (study.parent / "report.html").read_text()


def test_runs_of_a_study_are_compared_by_the_names_of_their_cases(
    stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [str(stored / "runs" / f"000{number}") for number in (0, 1, 3)]
    assert main(["report", *runs, "-o", str(tmp_path / "sides.html")]) == 0
    assert capsys.readouterr().out.strip().endswith("sides.html")
    page = page_of(runs)
    assert page.title == "tp 1 against tp 2 against tp 4"
    assert len(page.answer) == 3
    assert "Settings that differ: " in page.answer[-1]


def test_a_study_among_runs_to_compare_is_refused(stored: Path) -> None:
    with pytest.raises(SpecError, match="the folder of one run"):
        page_of([stored, stored / "runs" / "0000"])
    with pytest.raises(SpecError, match="runs, or the folders"):
        page_of([3, 4])  # type: ignore[list-item]


def test_runs_in_memory_are_named_by_what_they_run() -> None:
    one, two = (charllm.simulate(model=MODEL, cluster="h200x8", gbs=8, tp=tp) for tp in (1, 2))
    assert page_of([one, two]).title == "tiny: dp 8 against tp 2 x dp 4"
    assert page_of([one, one]).title == "tiny: dp 8 against dp 8 (2)"


@pytest.mark.parametrize(
    "name",
    ["charllm-ppt-parallelism", "charllm-ppt-optimization-h100", "charllm-ppt-lora-h200", "charllm-ppt-inference"],
)
def test_the_command_of_a_case_asks_for_the_same_run(name: str) -> None:
    for case in load_study(name).cases[::9]:
        words = shlex.split(write_flags(list_settings(case.request)))
        asked = request_from(build_parser("simulate").parse_args(words))
        assert list_settings(asked) == list_settings(build_request(dict(case.request), {}))
