"""A metric is declared once: whatever shows, stores or limits metrics knows a new one, and no other file names it."""

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from charllm.result.metric import HIGHER, LOWER, metric_value
from charllm.result.metrics import (
    COLUMNS,
    DECLARED,
    METRICS,
    Metrics,
    flat_names,
    numbers_of,
    quantity,
    selected,
    with_derived,
)
from charllm.timeline.labels import LABEL_WORDS
from charllm.units import SHOWN_UNITS, split_suffix

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "src" / "charllm"
DECLARATION = SOURCE / "result" / "metrics.py"
ADDED = """
    power_floor_w: float | None = metric(
        "Smallest 25 ms mean of any GPU.", "lowest power of a GPU", better=HIGHER, heading="floor W"
    )
"""
USE = """
import json, sys
from pathlib import Path
from charllm.database import query_store
from charllm.explorer.frontend import declared_metrics
from charllm.plan.limits import parse_limit
from charllm.plan.objectives import parse_objective
from charllm.report.compare import render_comparison
from charllm.report.page.cases import case_of_run
from charllm.report.page.sides import every_metric
from charllm.report.page.view import RunView
from charllm.report.tables import metric_cells, metric_headings, to_csv
from charllm.result.compare import compare_runs
from charllm.result.metrics import fill_metrics
from charllm.result.result import RunResult
from charllm.result.store import save_run
from charllm.sweep.axes import Case
from charllm.sweep.outcome import summarise
from docs.reference import metrics_page

result = RunResult("measured", {}, fill_metrics({"step_time_s": 2.0, "power_floor_w": 123.25}))
save_run(result, Path(sys.argv[1]) / "run")
figure = every_metric([case_of_run("run", RunView(result))])
limit = parse_limit("power_floor_kw>0.1")
print(json.dumps({
    "attribute": result.metrics.power_floor_w,
    "json": json.loads(result.to_json())["metrics"]["power_floor_w"],
    "csv": to_csv([summarise(Case("case", {}, {}), result)]).splitlines()[0].split(","),
    "sql": query_store(Path(sys.argv[1]), "SELECT power_floor_w FROM runs").rows,
    "table": [metric_headings(["power_floor_w"]), metric_cells(result.metrics, ["power_floor_w"])],
    "comparison": render_comparison(compare_runs(result, result), {}),
    "page": list(figure.columns["metric"].values),
    "limit": [limit.metric, limit.value],
    "objective": parse_objective("max:power_floor_w").metric,
    "script": json.loads(declared_metrics().partition(" = ")[2].rstrip(";"))["power_floor_w"]["title"],
    "reference": [line for line in metrics_page().splitlines() if "power_floor_w" in line],
}))
"""
ALLOWED = {
    "evaluate": "what is scored: kernels and traces have such quantities, too",
    "simulate/work.py": "the field of a request that is refused",
}
"""Folders and files that may write the words of a metric, and why."""


def test_a_metric_that_is_declared_in_one_place_is_known_everywhere(tmp_path: Path) -> None:
    shutil.copytree(SOURCE, tmp_path / "charllm", ignore=shutil.ignore_patterns("__pycache__", "*.nb?"))
    declaration = tmp_path / "charllm" / DECLARATION.relative_to(SOURCE)
    text = declaration.read_text()
    place = text.index("    energy_per_step_j:")
    declaration.write_text(text[:place] + ADDED.lstrip("\n") + text[place:])
    store = tmp_path / "store"
    store.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", USE, str(store)], capture_output=True, text=True, check=False, cwd=ROOT,
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["attribute"] == found["json"] == 123.25
    assert "power_floor_w" in found["csv"]
    assert found["sql"] == [[123.25]]
    assert found["table"] == [["floor W"], ["123"]]
    assert "power_floor_w  123.2 W" in re.sub(" {2,}", "  ", found["comparison"])
    assert "lowest power of a GPU" in found["page"]
    assert found["limit"] == ["power_floor_w", 100.0]
    assert found["objective"] == "power_floor_w"
    assert found["script"] == "Lowest power of a GPU"
    (row,) = found["reference"]
    assert "Smallest 25 ms mean of any GPU." in row
    assert "higher" in row


def _texts(path: Path) -> list[str]:
    """Return the texts in a file of Python, without docstrings; of a script those in double quotes."""
    if path.suffix == ".js":
        return re.findall(r'"([^"\n]+)"', path.read_text())
    tree = ast.parse(path.read_text())
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in told)
    return [node.value for node in constants if isinstance(node.value, str)]


def test_no_other_file_writes_the_words_of_a_metric() -> None:
    names = [quantity(name) for name in flat_names(DECLARED)]
    words = {word.lower() for one in names for word in (one.label, one.short, one.heading) if " " in word}
    # What labels a key of the breakdown stands beside the labels; a step's time heads an answer and a live view.
    words -= {label.lower() for label in LABEL_WORDS.values()} | {"step time"}
    assert "peak temperature" in words
    found = []
    for path in [*SOURCE.rglob("*.py"), *SOURCE.rglob("*.js")]:
        name = path.relative_to(SOURCE).as_posix()
        if path != DECLARATION and "vendor" not in name and not name.startswith(tuple(ALLOWED)):
            found += [f"{name}: {text}" for text in _texts(path) if text.lower() in words]
    assert not found


def test_a_name_that_is_no_metric_is_refused_where_a_table_selects_it() -> None:
    assert selected("step_time_s", "link_bytes.nic") == ("step_time_s", "link_bytes.nic")
    for wrong in ("step_time", "link_bytes.nick", "mfu.tp"):
        with pytest.raises(KeyError, match=wrong):
            selected("step_time_s", wrong)


@pytest.mark.parametrize("name", flat_names(DECLARED))
def test_every_metric_has_words_and_a_unit_that_can_be_shown(name: str) -> None:
    one = quantity(name)
    assert one.meaning.endswith(".")
    assert one.label[0].isalnum()
    assert "{" not in one.label + one.heading
    assert one.better in ("", LOWER, HIGHER)
    assert one.unit in SHOWN_UNITS or "/" in one.unit or not one.unit
    split = split_suffix(name.partition(".")[0])
    if split and not split[0].endswith("_per"):
        assert one.unit in SHOWN_UNITS, "its name says a unit"


def test_labels_and_headings_tell_metrics_apart() -> None:
    shown = [one for one in DECLARED.values() if one.keys is None]
    labels = [one.label for one in shown if one.name != "clock_loss"]
    headings = [one.heading for one in shown]
    assert len({*labels}) == len(labels)
    assert len({*headings}) == len(headings)


def test_an_attribute_is_the_value_of_the_same_name() -> None:
    metrics = Metrics(step_time_s=1.5, clock_loss_fraction={"power": 0.1, "thermal": 0.02, "brake": None})
    assert metrics.step_time_s == metrics["step_time_s"] == 1.5
    assert metrics.power_mean_w is None
    assert metrics.clock_loss == pytest.approx(0.12)
    assert list(metrics) == ["step_time_s", "clock_loss_fraction"]
    with pytest.raises(AttributeError, match="read-only"):
        metrics.step_time_s = 2.0


def test_a_number_is_written_in_the_unit_that_people_read() -> None:
    for name, value, written, cell in (
        ("power_mean_w", 677.6, "678 W", "678"),
        ("clock_mean_hz", 1.6471e9, "1647 MHz", "1647"),
        ("memory_peak_bytes", 1.5 * 2**30, "1.5 GiB", "1.5"),
        ("mfu", 0.4321, "43.2 %", "43.2 %"),
        ("cluster_power_ramp_w_per_s", 17_300.0, "17.30 kW/s", "17.30"),
        ("step_time_s", 0.0123, "12.3 ms", "12.3 ms"),
        ("step_time_s", 9.7734, "9.773 s", "9.773 s"),
        ("energy_per_step_j", 9430.0, "9.43 kJ", "9.43 kJ"),
        ("run_time_s", 86_400.0, "1.0 days", "1.0"),
    ):
        assert METRICS.get(name, DECLARED[name]).write(value) == written
        assert quantity(name).cell(value) == cell
    assert quantity("mfu").cell(None) == "-"
    assert quantity("memory_peak_bytes").spelled == "memory_peak_gib"
    assert quantity("clock_loss_fraction.power").spelled == "clock_loss_percent.power"


def test_tables_of_metrics_are_one_level_of_columns() -> None:
    assert "link_bytes.nic" in COLUMNS
    assert "critical_path" not in COLUMNS
    assert numbers_of({"a": {"b": 1, "c": None}, "fits": True, "name": "x"}) == {"a.b": 1.0, "a.c": None, "fits": 1.0}
    assert metric_value({"link_bytes": {"nic": 3}}, "link_bytes.nic") == 3.0
    assert metric_value({"link_bytes": None}, "link_bytes.nic") is None


def test_what_pages_derive_has_an_interval_where_its_sources_have_one() -> None:
    found = with_derived({"tokens_per_j": 4.0, "tokens_per_j.interval": (2.0, 5.0)})
    assert found["joules_per_token"] == 0.25
    assert found["joules_per_token.interval"] == (0.2, 0.5)
    assert found["clock_loss"] is None
    assert "clock_loss.interval" not in found
