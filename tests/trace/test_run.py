"""Traced runs: files and folders, figures over ranks, and what else reads them."""

import json
import shutil
from pathlib import Path

import pytest

import charllm
from charllm.report.trace import render_trace
from charllm.trace.run import read_run
from tests.trace.made import GEMM, collective, event, launched, step, text

EXAMPLES = Path(__file__).parents[2] / "examples" / "traces"
KEYS = ("step_time_s", "busy_fraction", "exposed_communication_fraction", "overlapped_communication_fraction",
        "idle_fraction", "unknown_fraction")  # fmt: skip


@pytest.fixture(scope="module")
def found() -> charllm.Traced:
    return charllm.trace(EXAMPLES)


def test_figures_are_given_for_each_rank_and_over_ranks(found: charllm.Traced) -> None:
    table = json.loads(found.to_json())
    assert [rank["rank"] for rank in table["ranks"]] == [0, 1]
    for name in KEYS:
        each = [rank[name] for rank in table["ranks"]]
        assert min(each) - 1e-12 <= table[name] <= max(each) + 1e-12
    assert sum(one["share"] for one in table["classes"].values()) == pytest.approx(1.0)
    assert table["unknown_fraction"] == 0.0
    assert table["classes"]["gemm"] == {
        "seconds": pytest.approx(0.0085, rel=0.5),
        "joules": None,
        "share": pytest.approx(0.23, rel=0.5),
    }
    assert table["busy_fraction"] + table["idle_fraction"] == pytest.approx(1.0)
    assert [group["name"] for group in table["groups"]] == ["dp"]


def test_a_trace_of_gloo_has_collectives_and_their_axis(found: charllm.Traced) -> None:
    assert set(found["exposed_communication_s"]) == {"dp"}
    assert found["waits_by_axis"]["dp"]["transfer_s"] > 0
    assert any("no GPU events" in text for text in found.warnings)


def test_a_traced_run_is_a_result_that_reports_read(found: charllm.Traced, tmp_path: Path) -> None:
    result = found.to_result()
    assert sum(result.metrics["breakdown_s"].values()) == pytest.approx(result.metrics["step_time_s"])
    assert result.timeline is not None
    assert {"compute", "dp_exposed"} <= set(result.timeline["activity"])
    result.save(tmp_path / "run")
    stored = charllm.load(tmp_path / "run")
    assert isinstance(stored, charllm.RunResult)
    assert stored.metrics.step_time_s == result.metrics.step_time_s
    assert "exposed dp communication" in charllm.report(tmp_path / "run", tmp_path / "run.html").read_text()


def test_a_spec_gives_mfu(tmp_path: Path) -> None:
    (tmp_path / "rank-0.json").write_text(text([step(0, 0, 1e6), *launched(GEMM, 0, 0, 1e6, 1)]))
    found = charllm.trace(tmp_path, model="llama3-8b", cluster="h200x1", gbs=1)
    assert found["mfu"] == pytest.approx(0.42, rel=0.3)
    assert found.to_result().metrics.tokens_per_s == pytest.approx(8192, rel=0.01)
    assert not any("mfu" in told for told in found.warnings)


def test_ranks_are_told_apart_and_missing_ones_named(tmp_path: Path) -> None:
    events = [step(0, 0, 90), collective("allreduce", 0, 10, ranks=(0, 1))]
    (tmp_path / "a.json").write_text(text(events, 1, 4))
    (tmp_path / "b.json").write_text(text([*events, *launched(GEMM, 20, 30, 10, 1)], 1, 4))
    (tmp_path / "c_rank_3.json").write_text(json.dumps({"traceEvents": events}))
    run = read_run([tmp_path])
    assert [rank.rank for rank in run.ranks] == [1, 3]
    assert run.ranks[0].trace.path.name == "b.json"
    assert any("2 files are of rank 1" in told for told in run.warnings)
    assert any("2 of 4 ranks have no trace (0, 2)" in told for told in run.warnings)


def test_a_world_of_any_size_is_counted_without_listing_its_ranks(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text([step(0, 0, 90), *launched(GEMM, 20, 30, 10, 1)], 1, 10**12))
    (said,) = (told for told in read_run([tmp_path]).warnings if "have no trace" in told)
    assert said.startswith("999999999999 of 1000000000000 ranks have no trace (0, 2, 3, 4, 5, 6, 7, 8 ...)")


def test_steps_that_overlap_end_where_the_next_begins(tmp_path: Path) -> None:
    events = [step(0, 0, 80), step(1, 50, 50), *launched(GEMM, 0, 0, 30, 1), *launched(GEMM, 50, 60, 30, 2)]
    (tmp_path / "a.json").write_text(text(events))
    run = read_run([tmp_path / "a.json"])
    assert [round(window.seconds * 1e6) for window in run.ranks[0].windows] == [60, 50]
    assert "ranges of steps overlap" in run.warnings[0]


def test_a_folder_without_a_readable_trace_says_so(tmp_path: Path) -> None:
    (tmp_path / "rank-0.json").write_text('{"schema": "1.1.1-chakra.0.0.4", "nodes": []}')
    found = charllm.trace(tmp_path)
    assert found["step_time_s"] is None
    assert "an execution trace has no times" in repr(found)
    with pytest.raises(charllm.SpecError, match="a trace file or a folder"):
        charllm.trace(tmp_path / "missing")


def test_an_execution_trace_beside_a_profilers_gives_sizes_and_groups(tmp_path: Path) -> None:
    sizes = [{"name": "collective_name", "value": "allreduce"}, {"name": "dtype", "value": "Float"},
             {"name": "in_msg_nelems", "value": 1000}, {"name": "out_msg_nelems", "value": 1000},
             {"name": "pg_name", "value": "0"}]  # fmt: skip
    group = json.dumps([{"pg_name": "0", "pg_desc": "tp", "ranks": [0, 1], "group_size": 2}])
    nodes = [
        {"id": 1, "name": "## process_group:init ##", "inputs": {"values": [group]}},
        *({"id": number, "name": "record_param_comms", "attrs": sizes} for number in (3, 2)),
    ]
    (tmp_path / "et-rank-0.json").write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "nodes": nodes}))
    calls = [event("gloo:all_reduce", "user_annotation", start, 10) for start in (10, 30)]
    (tmp_path / "rank-0.json").write_text(text([step(0, 0, 90), *calls]))
    found = charllm.trace(tmp_path)
    assert list(found["classes"]) == ["tp all_reduce"]
    assert found["links"][0]["size_bytes"] == 4000
    (tmp_path / "rank-0.json").write_text(text([step(0, 0, 90), calls[0]]))
    assert any("holds other collectives" in told for told in charllm.trace(tmp_path).warnings)


def test_one_view_holds_all_ranks(tmp_path: Path) -> None:
    charllm.trace(EXAMPLES, perfetto=tmp_path / "view.json")
    events = json.loads((tmp_path / "view.json").read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1}
    assert any(event["args"].get("class") == "dp all_reduce" for event in events)


def test_the_text_of_a_run_names_what_matters(found: charllm.Traced) -> None:
    shown = render_trace(found.summary)
    for words in (
        "Breakdown of the step time",
        "dp all_reduce",
        "Largest kernels",
        "transfer",
        "Largest loss",
        "Notes:",
    ):
        assert words in shown


def test_packed_and_plain_folders_are_the_same(found: charllm.Traced, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path / "again")
    assert (
        charllm.trace([tmp_path / "again" / "rank-1.json.gz", tmp_path / "again" / "rank-0.json.gz"])["ranks"]
        == found["ranks"]
    )
