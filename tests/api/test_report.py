"""Runs as pages: fresh, stored, emulated, recorded; from Python and from the command line."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import charllm
from charllm.api.report import page_of
from charllm.api.simulation import run_simulation
from charllm.cli import main
from charllm.report.figure import Figure, Page
from charllm.report.web.html import to_json
from charllm.result.metrics import Metrics
from tests.api.tiny import RUN, TOO_BIG, flags_of
from tests.measure.convert import texts
from tests.measure.live.runs import write_marks, write_node
from tests.measure.replayed import CAPTURE


def figures_of(page: Page) -> dict[str, Figure]:
    return {figure.name: figure for section in page.sections for figure in section.figures}


def data_of(file: Path) -> dict[str, object]:
    """Return the page that an HTML file holds."""
    (text,) = re.findall(r'<script type="application/json" id="page-data">(.*?)</script>', file.read_text(), re.DOTALL)
    found: dict[str, object] = json.loads(text)
    return found


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "run"
    charllm.simulate(**RUN, out=folder, report=folder.with_suffix(".html"))
    return folder


def test_the_report_of_a_stored_run_is_that_of_the_fresh_one(stored: Path) -> None:
    assert data_of(stored.with_suffix(".html")) == json.loads(to_json(page_of(stored)))


def test_a_page_without_tables_is_filled_from_the_same_run_simulated_again(stored: Path) -> None:
    bare = figures_of(page_of(replace(charllm.load(stored), tables={})))  # type: ignore[type-var, arg-type]
    assert not bare["when"].missing
    assert bare["seconds"] == figures_of(page_of(stored))["seconds"]


def test_the_command_writes_what_python_writes(
    stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(stored), "-o", str(tmp_path / "a.html")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'a.html'}\n"
    assert charllm.report(charllm.load(stored), out=tmp_path / "b.html") == tmp_path / "b.html"  # type: ignore[arg-type]
    assert (tmp_path / "a.html").read_text() == (tmp_path / "b.html").read_text()


@pytest.mark.parametrize("request_", [{}, {"tp": 4, "pp": 1}, {"steps": 3}], ids=["pipeline", "one-stage", "cold"])
def test_a_stored_run_has_the_page_that_it_had_when_it_was_simulated(tmp_path: Path, request_: dict[str, Any]) -> None:
    charllm.simulate(**{**RUN, **request_}, out=tmp_path / "whole", report=tmp_path / "at-once.html")
    charllm.simulate(**{**RUN, **request_}, out=tmp_path / "bare")
    at_once = (tmp_path / "at-once.html").read_text()
    for stored in ("whole", "bare"):
        assert charllm.report(tmp_path / stored, out=tmp_path / f"{stored}.html").read_text() == at_once


def test_a_run_of_another_version_is_shown_as_it_was_stored(stored: Path) -> None:
    result = charllm.load(stored)
    assert isinstance(result, charllm.RunResult)
    other = replace(result, metrics=Metrics({**result.metrics, "step_time_s": 123.0}))
    page = page_of(other)
    assert "123.00 s a step" in page.answer[0]
    assert not figures_of(page)["changes"].missing
    changeless = replace(other, tables={name: table for name, table in other.tables.items() if name != "changes"})
    assert "takes too long to simulate again" in figures_of(page_of(changeless))["changes"].missing
    odd = replace(result, spec={**result.spec, "training": {"no": "such field"}})
    assert figures_of(page_of(odd))["heat"].options["airflow"] == "front to rear"


def test_a_table_that_was_cut_short_is_left_out_with_a_note(stored: Path, tmp_path: Path) -> None:
    shutil.copytree(stored, tmp_path / "run")
    (tmp_path / "run" / "signals.parquet").write_bytes(b"PAR1")
    page = page_of(tmp_path / "run")
    assert any(
        text.startswith("table signals: ") and "signals.parquet: got a damaged file" in text for text in page.warnings
    )
    assert not figures_of(page)["seconds"].missing


def test_a_run_that_does_not_fit_has_its_report_and_its_exit_code(tmp_path: Path) -> None:
    words = ["simulate", *flags_of(TOO_BIG), "--json", "--report", str(tmp_path / "page.html")]
    assert main(words) == 3
    page = data_of(tmp_path / "page.html")
    assert "does not fit" in str(page["answer"])


def test_a_recorded_run_shows_its_marked_steps(tmp_path: Path) -> None:
    shutil.copytree(CAPTURE, tmp_path / "run")
    figures = figures_of(page_of(tmp_path / "run"))
    assert figures["when"].options["lanes"] == ["marked steps"]
    assert "35 marked steps" in figures["when"].message
    assert {"seconds", "steps", "heat", "throttled", "energy", "memory"} <= {
        name for name, one in figures.items() if not one.missing
    }
    phases = dict(zip(*(figures["seconds"].columns[name].values for name in ("phase", "time")), strict=True))
    assert set(phases) == {"forward-backward", "update", "not marked"}
    assert sum(phases.values()) == pytest.approx(80.7, abs=0.5)
    spans = figures["when"].tables["spans"]
    power = figures["when"].tables["signals"]
    busy = [
        watts
        for time_s, watts in zip(power["t"].values, power["power"].values, strict=True)
        if spans["start"].values[5] < time_s < spans["end"].values[-1] and watts is not None
    ]
    assert min(busy) > 400


def test_a_run_on_two_nodes_names_them(tmp_path: Path) -> None:
    for number, host in enumerate(("alpha", "beta")):
        node = write_node(tmp_path / "nodes" / host, gpus=2, first_uuid=2 * number, age_s=60.0)
        write_marks(node, 4, rank=number)
    heat = figures_of(page_of(tmp_path))["heat"]
    assert set(heat.columns["node"].values) == {"alpha", "beta"}


def test_a_converted_recording_is_shown(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(texts.nvidia_smi())
    charllm.convert("auto", tmp_path / "log.csv", tmp_path / "run")
    page = page_of(tmp_path / "run")
    assert page.title == "Measured run: converted from log.csv"
    assert {"when", "heat", "throttled", "memory"} <= {
        name for name, one in figures_of(page).items() if not one.missing
    }


def test_what_cannot_be_shown_or_written_is_refused(stored: Path, tmp_path: Path) -> None:
    for asked in (5, None, tmp_path):
        with pytest.raises(charllm.SpecError):
            page_of(asked)  # type: ignore[arg-type]
    with pytest.raises(charllm.SpecError) as caught:
        charllm.report(stored, out=tmp_path / "nowhere" / "page.html")
    assert caught.value.field == "out"
    with pytest.raises(charllm.SpecError) as caught:
        charllm.simulate(**RUN, report=tmp_path / "nowhere" / "page.html")
    assert caught.value.field == "report"
    assert main(["report", str(tmp_path / "nowhere"), "-o", str(tmp_path / "page.html")]) == 2


def test_a_simulation_is_shown_without_being_stored() -> None:
    found = run_simulation({"model": RUN["model"], "cluster": "h200x8", "parallelism": {"tp": 8}})
    assert page_of(found.found.result).title == "tiny on h200x8"


def test_a_plan_is_shown_as_an_object_a_table_and_a_file(tmp_path: Path) -> None:
    fixed: dict[str, Any] = {"pp": 1, "cp": 1, "mbs": 1, "zero": 1, "recompute": "none", "overlap": "dp"}
    plan = charllm.plan(charllm.simulate(**RUN), **fixed, axis={"tp": [2, 4]}, limit="temperature_peak_c<72", top=4)
    page = page_of(plan)
    found = figures_of(page)
    assert [name for name, figure in found.items() if figure.missing] == ["sensitivity"]
    assert plan.own is not None
    runs = {one.run for one in (*plan.best, *plan.others, plan.own)}
    assert len(found["front"].columns["case"].values) == len(runs)
    assert "Your own strategy" in " ".join(page.answer)
    file = tmp_path / "plan.json"
    file.write_text(plan.to_json())
    assert to_json(page_of(file)) == to_json(page_of(plan.as_table())) == to_json(page)
