"""Parts of a run on one time line: GPUs, marks and windows of every node, on the head's clock."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from charllm.measure.clock import Clock, Comparison
from charllm.measure.finish import finish_record, is_record
from charllm.measure.host.record import HOST_FILE
from charllm.measure.parts import merge, part_folders, part_warnings, read_parts
from charllm.measure.record import NODES, JobRecord, read_job
from charllm.measure.sampling import RESTARTS_FILE
from charllm.result.files import SAMPLES_FILE
from charllm.units import NANO
from tests.measure.replayed import CAPTURE
from tests.measure.replays import uuid

RUN_S = (41.8, 48.0)
BEHIND_S = 10.0


def add_node(run: Path, name: str, rank: int, behind_s: float = 0.0, **details: object) -> Path:
    """Copy the capture as one node's part, its clocks some seconds behind the head's."""
    folder = run / NODES / name
    shutil.copytree(CAPTURE, folder)
    shift_ns = int(behind_s / NANO)
    for path in (folder / SAMPLES_FILE, *folder.glob("marks-*.csv")):
        columns = (2, 3) if path.name == SAMPLES_FILE else (0, 1)
        lines = path.read_text().splitlines()
        rows = [line.split(",") for line in lines[1:]]
        for row in rows:
            for column in columns:
                row[column] = str(int(row[column]) - shift_ns)
        path.write_text("\n".join([lines[0], *(",".join(row) for row in rows)]) + "\n")
    for path in folder.glob("marks-*.csv"):
        path.rename(folder / f"marks-{rank}-1.csv")
    start_s, end_s = RUN_S[0] - behind_s, RUN_S[1] - behind_s
    if rank:
        Clock(Comparison(start_s, behind_s, behind_s, 1e-4, 50), Comparison(end_s, behind_s, behind_s, 1e-4, 50)).write(
            folder
        )
    known = {"node_rank": rank, "ranks_per_node": 1, "exit_code": 0, **details}
    JobRecord(windows_s={"command": [start_s, end_s]}, details=known, ended=True).write(folder)
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    add_node(folder, "b-head", 0)
    add_node(folder, "a-other", 1, BEHIND_S)
    JobRecord(details={"nodes": 2, "exit_code": 0}, ended=True).write(folder)
    return folder


def test_the_head_comes_first_and_clocks_are_brought_together(run: Path) -> None:
    assert is_record(run)
    assert [place.name for place in part_folders(run)] == ["b-head", "a-other"]
    head, other = read_parts(run, read_job(run))
    assert list(head.recording.fast(0).times_s) == pytest.approx(list(other.recording.fast(0).times_s), abs=1e-6)
    assert list(head.recording.fast(0).wall_s) == pytest.approx(list(other.recording.fast(0).wall_s), abs=1e-3)
    (mine,), (theirs,) = head.marks.values(), other.marks.values()
    assert [mark.time_s for mark in mine] == pytest.approx([mark.time_s for mark in theirs], abs=1e-6)
    assert other.job.windows_s["command"] == pytest.approx(list(RUN_S))


def test_two_nodes_are_one_run_with_the_metrics_of_each(run: Path) -> None:
    both = finish_record(run)
    (flat := run.parent / "flat").mkdir()
    for path in (run / NODES / "b-head").iterdir():
        shutil.copy(path, flat)
    alone = finish_record(flat)
    assert [(row["node"], row["rank"], row["uuid"]) for row in both.gpus] == [
        (0, 0, alone.gpus[0]["uuid"]),
        (1, 1, alone.gpus[0]["uuid"]),
    ]
    assert [row["name"] for row in both.nodes] == ["b-head", "a-other"]
    for name in ("step_time_s", "power_mean_w", "temperature_peak_c", "clock_mean_hz"):
        assert both.metrics[name] == pytest.approx(alone.metrics[name], rel=1e-6), name
    assert both.metrics["energy_per_step_j"] == pytest.approx(2 * alone.metrics["energy_per_step_j"], rel=1e-6)
    assert both.metrics["tokens_per_s_per_gpu"] == pytest.approx(alone.metrics["tokens_per_s_per_gpu"] / 2)
    clock = both.provenance["measurement"]["nodes"][1]["clock"]
    assert clock["start"]["monotonic_s"] == BEHIND_S
    assert clock["uncertainty_s"] == 1e-4


def test_gpus_without_a_reading_on_every_beat_end_no_run(run: Path) -> None:
    part = read_parts(run, read_job(run))[0]
    unread = {
        gpu: {**beats, "fast": replace(beats["fast"], times_s=np.zeros(0), columns={})}
        for gpu, beats in part.recording.series.items()
    }
    silent = part._replace(recording=replace(part.recording, series=unread))
    assert silent.last_s == 0.0
    assert part.last_s > 40.0


def test_ranks_follow_the_order_in_which_a_job_sees_its_gpus(tmp_path: Path) -> None:
    folder = add_node(tmp_path / "run", "n1", 0)
    header = json.loads((folder / "recording.json").read_text())
    (identity,) = header["gpus"]
    header["gpus"] = [{**identity, "uuid": uuid(gpu), "number": gpu} for gpu in range(2)]
    (folder / "recording.json").write_text(json.dumps(header))
    (folder / "marks-1-2.csv").write_text("monotonic_ns,wall_ns,kind,name,value\n")
    job = JobRecord(gpus=[uuid(1), uuid(0)], details={"node_rank": 0, "ranks_per_node": 2}).write(folder)
    whole = merge(job, read_parts(tmp_path / "run", job))
    assert {gpu: place.rank for gpu, place in whole.places.items()} == {0: 1, 1: 0}


def test_a_rank_that_cannot_be_known_is_missing_with_a_warning(tmp_path: Path) -> None:
    run = tmp_path / "run"
    folder = add_node(run, "n1", 0, ranks_per_node=3)
    (folder / "marks-1-2.csv").write_text("monotonic_ns,wall_ns,kind,name,value\n")
    JobRecord(ended=True).write(run)
    result = finish_record(run)
    assert [row["rank"] for row in result.gpus] == [None]
    assert any(warning.startswith("rank: ") and warning.endswith("node n1") for warning in result.warnings)


def test_nodes_without_a_record_and_restarted_samplers_are_named(run: Path) -> None:
    (run / NODES / "n3").mkdir()
    restart = {"at_s": RUN_S[0] + 5.0, "why": "the sampler was killed by SIGKILL and started again"}
    (run / NODES / "b-head" / RESTARTS_FILE).write_text(json.dumps([restart]))
    told = part_warnings(read_parts(run, read_job(run)), JobRecord(details={"nodes": 4}))
    assert told[0] == "node n3: nothing was recorded"
    assert told[1].startswith("node b-head: the sampler was killed by SIGKILL and started again: no readings for 0.")
    assert told[1].endswith(" s, from 5.0 s into the command")
    assert told[2] == "1 of 4 nodes left no record"


def write_host(folder: Path, behind_s: float, watts: float, sent_bytes_per_s: float) -> None:
    """Host readings of a node, once a second on its own clock."""
    rows = ["monotonic_ns,wall_ns,duration_ns,system_power_w:dcmi,nic_sent_bytes:mlx5_0/1,missing"]
    for second in range(20, 70):
        own_ns = int((second - behind_s) / NANO)
        rows.append(f"{own_ns},{own_ns},1000,{watts},{second * sent_bytes_per_s},")
    (folder / HOST_FILE).write_text("\n".join(rows) + "\n")


def test_host_readings_of_nodes_are_shifted_and_added_up(run: Path) -> None:
    write_host(run / NODES / "b-head", 0.0, 2000.0, 1e9)
    write_host(run / NODES / "a-other", BEHIND_S, 3000.0, 2e9)
    head, other = read_parts(run, read_job(run))
    assert head.host is not None
    assert other.host is not None
    assert list(head.host.times_s) == pytest.approx(list(other.host.times_s), abs=1e-6)
    both = finish_record(run)
    assert [row["power_mean_w"] for row in both.nodes] == [2000.0, 3000.0]
    assert both.metrics["node_power_mean_w"] == 2500.0
    assert both.metrics["link_bytes"]["nic"] == pytest.approx(3e9 * both.metrics["step_time_s"])


def test_a_node_without_host_readings_leaves_sums_unknown(run: Path) -> None:
    write_host(run / NODES / "b-head", 0.0, 2000.0, 1e9)
    both = finish_record(run)
    assert both.nodes[0]["power_mean_w"] == 2000.0
    assert both.metrics["node_power_mean_w"] is None
    assert both.metrics["link_bytes"]["nic"] is None
