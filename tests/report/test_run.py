import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from charllm.analysis.advice import Effect
from charllm.analysis.comment import comment
from charllm.api.simulation import run_simulation
from charllm.catalog.resolve import resolve_run
from charllm.report.run import render_memory, render_run
from charllm.report.time import BAR_WIDTH, render_changes, render_links, render_stages, render_waterfall
from charllm.result.columns import Columns, columns_of, rows_of
from charllm.result.metrics import fill_metrics
from charllm.result.result import RunResult
from charllm.result.store import load_run
from charllm.simulate.predict import predict, simulate
from charllm.simulate.settings import SimulateSettings
from charllm.units import GIB

RUN = resolve_run(
    {
        "model": "mixtral-8x7b",
        "cluster": "charllm-ppt-h200",
        "parallelism": {"tp": 2, "pp": 2, "ep": 4, "overlap": ["dp"]},
        "training": {"recompute": "full"},
    }
)
SMALL: dict[str, Any] = {"model": "llama3-8b", "cluster": "h200x8", "training": {"global_batch_size": 16}}
MIXED = {"base": "charllm-ppt-h200", "mixed": [{"node": "hgx-h100", "nodes": [1, 2]}]}
REQUESTS: dict[str, dict[str, Any]] = {
    "dense": {**SMALL, "parallelism": {"tp": 2, "pp": 2}},
    "one-stage": {**SMALL, "parallelism": {"tp": 2}},
    "one-gpu": {"model": "gpt2", "cluster": "h200x1", "training": {"global_batch_size": 8}},
    "experts": {
        "model": "mixtral-8x7b",
        "cluster": "charllm-ppt-h200",
        "parallelism": {"ep": 8},
        "conditions": {"power_cap_w": 500},
    },
    "does-not-fit": {"model": "gpt3-175b", "cluster": "charllm-ppt-h200", "parallelism": {"pp": 32}},
    "cold": {**SMALL, "parallelism": {"tp": 2}, "conditions": {"steps": 3}},
    "mixed": {**SMALL, "cluster": MIXED, "parallelism": {"tp": 2, "pp": 2}},
    "defaults": {**SMALL, "framework": "nemo", "parallelism": {"tp": 2, "pp": 4}},
    "braked": {
        **SMALL,
        "cluster": {"base": "charllm-ppt-h200", "nodes": 2},
        "parallelism": {"tp": 8},
        "conditions": {"braked_nodes": [1]},
    },
}


def table_of(result: RunResult, name: str) -> Columns:
    found = result.table(name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", REQUESTS)
def test_a_stored_run_is_told_as_it_was_when_it_was_simulated(name: str, tmp_path: Path) -> None:
    result = run_simulation(REQUESTS[name], SimulateSettings(out=tmp_path / "run")).found.result
    stored = load_run(tmp_path / "run")
    for full in (False, True):
        assert render_run(stored, full=full) == render_run(result, full=full)


def test_a_run_that_lacks_tables_says_so_and_tells_the_rest() -> None:
    bare = replace(simulate(RUN), tables={})
    text = render_run(bare, full=True)
    for part in ("Memory per stage", "Parameters", "Communication by axis", "Best single changes", "pipeline stage"):
        assert re.search(rf"{part}: not stored in this run", text), part
    assert text.startswith("simulated run: mixtral-8x7b on charllm-ppt-h200")
    assert "GPUs by slot" in text
    assert "Matrix FLOPs" in text


@pytest.mark.parametrize("name", REQUESTS)
def test_a_simulated_run_is_told_on_one_screen(name: str) -> None:
    lines = render_run(run_simulation(REQUESTS[name]).found.result).splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 100
    assert lines[0].startswith(f"{REQUESTS[name]['model']} on ")
    assert lines[-1] in ("--full prints every table", "--full prints every table, and the notes that are left out here")
    labels = {line.split("  ")[0] for line in lines}
    timed = {"Step time", "Time goes", "Power", "Heat", "Clock", "Paced by", "Would help"}
    assert {"Memory", *(timed if name != "does-not-fit" else ())} <= labels


def test_full_has_all_tables() -> None:
    full = render_run(comment(predict(RUN)), full=True)
    for part in ("Parameters", "Matrix FLOPs", "Communication traffic", "by pipeline stage", "GPUs ("):
        assert part in full


def test_a_faster_link_is_never_said_to_be_slower() -> None:
    rows = rows_of(table_of(run_simulation(REQUESTS["mixed"]).found.result, "best_changes"))
    links = [row for row in rows if "as fast" in row["change"]]
    assert links
    assert all(row["low_fraction"] >= 0 for row in links)


def test_long_pipelines_show_their_ends() -> None:
    deep = simulate(resolve_run({"model": "gpt3-175b", "cluster": "charllm-ppt-h200", "parallelism": {"pp": 32}}))
    text = render_memory(deep, table_of(deep, "memory"))
    assert "20 stages between not shown" in text
    assert len(text.splitlines()) == 3 + 12 + 1


# time


def test_a_report_begins_with_the_answers_and_ends_with_what_would_help() -> None:
    result = comment(predict(RUN))
    told = {**result.tables, "explanations": lambda: {"text": ["because of this"]}}
    text = render_run(replace(result, tables=told), full=True)
    parts = [
        "mixtral-8x7b on charllm-ppt-h200",
        "conditions:",
        "Step time  ",
        "Power  ",
        "Temperature  ",
        "Clock  ",
        "Memory  ",
        "Bottleneck",
        "Best changes",
        "Explanation: because of this",
        "Breakdown of the step time (mean",
        "Breakdown of the step time by pipeline stage",
        "Communication by axis",
        "GPUs by slot",
        "Memory per stage",
        "Communication traffic",
    ]
    places = [text.index(part) for part in [*parts, "Best single changes"]]
    assert places == sorted(places)


def test_a_report_without_times_shows_none() -> None:
    tight = resolve_run({"model": "gpt3-175b", "cluster": "charllm-ppt-h200", "parallelism": {"pp": 32}})
    text = render_run(simulate(tight), full=True)
    assert "Memory per stage" in text
    assert "conditions:" in text
    assert not any(word in text for word in ("Step time", "Breakdown", "Best single"))


def test_the_waterfall_has_a_bar_for_each_label_that_takes_time() -> None:
    text = render_waterfall({"compute": 6.0, "recompute": 0.0, "tp_exposed": 3.0, "bubble": 0.999, "overhead": 0.001})
    rows = text.splitlines()[3:]
    assert [row.split("  ")[0].strip() for row in rows] == ["compute", "tp exposed", "bubble", "overhead", "step"]
    bars = [row.count("#") for row in rows]
    assert bars == [24, 12, 4, 1, 0]
    ends = [row.rfind("#") for row in rows[:-1]]
    assert rows[1].index("#") == ends[0] + 1
    assert max(ends) - rows[0].index("#") < BAR_WIDTH
    assert "60.0 %" in rows[0]
    assert "100.0 %" in rows[-1]


def test_the_table_of_stages_adds_up_to_the_step() -> None:
    result = simulate(RUN)
    rows = render_stages(result, table_of(result, "breakdown")).splitlines()[3:]
    assert len(rows) == RUN.parallelism.pp
    for row in rows:
        shares = [float(share) for share in re.findall(r"([\d.]+) %", row)]
        assert sum(shares) == pytest.approx(100, abs=0.5)


def test_links_are_told_by_axis_with_their_messages() -> None:
    result = simulate(RUN)
    text = render_links(result, table_of(result, "traffic"))
    axes = [row.split()[0] for row in text.splitlines()[3:]]
    assert axes == ["tp", "pp", "dp", "ep"]
    by_link = dict.fromkeys(("nvlink", "nic"), 0.0)
    for row in text.splitlines()[3:]:
        nvlink, _pcie, nic = (cell.strip() for cell in re.split(r"\s{2,}", row)[-3:])
        for link, cell in (("nvlink", nvlink), ("nic", nic)):
            by_link[link] += 0.0 if cell == "-" else float(cell.rstrip(" %"))
    for link, percent in by_link.items():
        assert percent == pytest.approx(100 * result.metrics["link_utilization_fraction"][link], abs=0.21)


def test_a_gpu_alone_uses_no_links() -> None:
    alone = resolve_run({"model": "llama3-8b", "cluster": "h200x1", "training": {"lora_rank": 8}})
    result = simulate(alone, ignore_memory=True)
    assert "single GPU" in render_links(result, table_of(result, "traffic"))


def test_gains_are_listed_or_said_to_be_none() -> None:
    text = render_changes(tabulate([Effect("--mbs 2", 9.0, 0.111, 70 * GIB), Effect("--sp", 10.0, 0.001, 64.25 * GIB)]))
    assert [line.split() for line in text.splitlines()[3:]] == [
        ["--mbs", "2", "9.000", "s", "+11.1", "%", "tokens/s", "70.0"],
        ["--sp", "10.00", "s", "+0.1", "%", "tokens/s", "64.2"],
    ]
    assert "no change that was tried" in render_changes(tabulate([]))


def tabulate(effects: Sequence[Effect]) -> Columns:
    return columns_of(Effect._fields, effects)


# measured


def measured(nodes: list[dict[str, float]]) -> str:
    return render_run(RunResult("measured", {"command": ["true"]}, fill_metrics({}), [], list(nodes)))


def test_a_measured_node_shows_what_was_read_of_its_host() -> None:
    shown = measured([{"node": 0, "power_mean_w": 5213.0, "cpu_load_fraction": 0.125, "fan_mean_hz": 90.0}])
    heading, _, row = shown.splitlines()[-3:]
    assert heading.split() == ["node", "mean", "W", "CPU", "load", "fan", "rpm"]
    assert row.split() == ["0", "5213", "12.5", "%", "5400"]


def test_a_node_of_which_nothing_was_read_has_no_table() -> None:
    assert "Nodes" not in measured([{"node": 0}])


def test_an_emulated_rank_is_told_beside_its_prediction() -> None:
    predicted: Columns = {"metric": ["step_time_s", "power_mean_w"], "value": [1.5, 600.0]}
    result = RunResult("emulated", {}, fill_metrics({"power_mean_w": 612.5}), tables={"predicted": lambda: predicted})
    rows = [line.split() for line in render_run(result).splitlines()[-2:]]
    assert rows == [["step_time_s", "1.5", "-"], ["power_mean_w", "600", "612.5"]]
