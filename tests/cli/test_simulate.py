"""simulate as a user meets it: the report with its times, and the files it writes."""

import json
from pathlib import Path

import pytest

from charllm.cli import main
from charllm.report import perfetto
from charllm.timeline.rank_timeline import read_timeline

TINY = [
    "--set", "model.name=tiny", "--set", "model.layers=4", "--set", "model.hidden=64", "--set", "model.ffn=128",
    "--set", "model.heads=4", "--set", "model.vocab=64", "--seq", "32",
]  # fmt: skip
SIMULATE = ["simulate", *TINY, "--cluster", "h200x8", "--tp", "2", "--pp", "2", "--gbs", "8"]
TOO_BIG = ["simulate", "--model", "gpt3-175b", "--cluster", "charllm-ppt-h200", "--pp", "32"]


def test_the_report_tells_seconds_and_what_would_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SIMULATE, "--full"]) == 0
    printed = capsys.readouterr().out
    for part in (
        "Parameters",
        "Step time",
        "Breakdown of the step time (mean",
        "Breakdown of the step time by pipeline stage",
        "Best single changes",
    ):
        assert part in printed


def test_a_run_that_does_not_fit_has_no_times_and_writes_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / "trace.json", tmp_path / "rank.json"]
    words = ["--perfetto", str(files[0]), "--timeline", str(files[1])]
    assert main([*TOO_BIG, *words]) == 3
    printed = capsys.readouterr()
    assert "Step time" not in printed.out
    assert printed.err.count("not written: a run that does not fit") == 2
    assert not any(file.exists() for file in files)
    assert main([*TOO_BIG, *words, "--ignore-memory"]) == 0
    assert "Step time" in capsys.readouterr().out
    assert all(file.exists() for file in files)


def test_a_trace_is_written_beside_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "trace.json"
    assert main([*SIMULATE, "--perfetto", str(file), "--json"]) == 0
    printed = capsys.readouterr()
    events = json.loads(file.read_text())["traceEvents"]
    end_us = max(event["ts"] + event.get("dur", 0) for event in events)
    assert end_us / 1e6 == pytest.approx(json.loads(printed.out)["metrics"]["step_time_s"], abs=1e-8)
    assert "--perfetto" not in printed.err


def test_what_a_trace_leaves_out_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = [
        "simulate",
        "--model",
        "llama3-70b",
        "--cluster",
        "charllm-ppt-h200",
        "--tp",
        "4",
        "--pp",
        "4",
        "--gbs",
        "512",
    ]
    file = tmp_path / "trace.json"
    assert main([*long, "--perfetto", str(file), "--json"]) == 0
    assert "slices of ops are too many" in capsys.readouterr().err
    assert len(json.loads(file.read_text())["traceEvents"]) < perfetto.MAX_EVENTS


def test_a_written_timeline_is_the_one_that_emulate_would_play(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written, printed = tmp_path / "written.json", tmp_path / "printed.json"
    assert main([*SIMULATE, "--timeline", str(written), "--rank", "5"]) == 0
    capsys.readouterr()
    assert main(["emulate", *SIMULATE[1:], "--rank", "5", "--print-timeline"]) == 0
    printed.write_text(capsys.readouterr().out)
    assert read_timeline(written) == read_timeline(printed)
    assert read_timeline(written).rank == 5


@pytest.mark.parametrize("flag", ["--perfetto", "--timeline"])
def test_a_file_that_cannot_be_written_ends_in_2(flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SIMULATE, flag, str(tmp_path / "nowhere" / "file.json")]) == 2
    printed = capsys.readouterr()
    assert f"{flag}: got" in printed.err
    assert printed.out == ""


def test_a_rank_that_is_not_there_ends_in_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SIMULATE, "--timeline", str(tmp_path / "rank.json"), "--rank", "8"]) == 2
    assert "--rank: got 8; expected 0 to 7" in capsys.readouterr().err
