"""The live table: what it shows, how it fits, why things are missing."""

from dataclasses import asdict
from pathlib import Path

import pytest

from charllm.measure.live.watcher import Watcher
from charllm.report.live import render_live
from tests.measure.live.runs import HOST, write_marks, write_node
from tests.measure.replays import CAPTURE


def draw(folder: Path, width: int = 200, height: int | None = None) -> str:
    return render_live(asdict(Watcher(folder).look()), width, height)


def test_every_gpu_has_its_power_temperature_clock_and_links() -> None:
    head, row = (line.split() for line in draw(CAPTURE).splitlines() if line.startswith(("GPU", "0 ")))
    assert head[:4] == ["GPU", "rank", "W", "mean"]
    assert row == ["0", "0", "128", "180", "700", "41", "46", "1980", "0.6", "0", "-", "-", "0.00", "0.00"]


def test_the_head_has_totals_steps_and_the_host(tmp_path: Path) -> None:
    write_marks(write_node(tmp_path, gpus=2), 8, loss=1.5)
    (tmp_path / "host.csv").write_text(HOST)
    lines = draw(tmp_path).splitlines()
    assert lines[0].startswith(f"{tmp_path}: running, 0:03 since the command began; 2 GPUs")
    assert lines[1].startswith("power 160 W; energy 0.6 kJ so far")
    assert lines[2].startswith("step 8; 0.5 s/step; 2,000 tokens/s; loss 9.5000; ")
    assert lines[3] == "host: CPU 50 %, CPU 250 W, memory 7 GiB, NIC out 2.00 in 0.50 GB/s, inlet 22 C"


def test_nodes_are_named_where_there_are_several(tmp_path: Path) -> None:
    for name in ("alpha", "beta"):
        write_node(tmp_path / "nodes" / name, gpus=2)
        (tmp_path / "nodes" / name / "host.csv").write_text(HOST)
    shown = draw(tmp_path)
    assert "4 GPUs on 2 nodes" in shown
    assert [line.split()[0] for line in shown.splitlines() if line.startswith(("alpha", "beta"))] == [
        "alpha", "alpha", "beta", "beta",
    ]  # fmt: skip
    assert "host beta: CPU 50 %" in shown


@pytest.mark.parametrize("width", [40, 60, 80, 100, 132])
def test_no_line_is_wider_than_the_terminal(tmp_path: Path, width: int) -> None:
    write_marks(write_node(tmp_path, gpus=8), 8)
    lines = draw(tmp_path, width).splitlines()
    assert max(map(len, lines)) <= width
    assert any(line.split()[:1] == ["7"] for line in lines)


def test_gpus_without_room_are_counted(tmp_path: Path) -> None:
    write_node(tmp_path, gpus=20)
    lines = draw(tmp_path, 150, 16).splitlines()
    assert len(lines) <= 16
    (more,) = [line for line in lines if "more GPUs have no room" in line]
    shown = [line for line in lines if line.split()[:1] and line.split()[0].isdecimal()]
    assert int(more.strip("(").split()[0]) + len(shown) == 20


def test_what_is_missing_says_why(tmp_path: Path) -> None:
    shown = " ".join(draw(CAPTURE).split())
    assert "missing: link_sent_bytes not_supported;" in shown
    assert "no host readings are recorded" in shown
    (tmp_path / "job.json").write_text("{}")
    waiting = draw(tmp_path)
    assert "waiting for the first reading; 0 GPUs" in waiting
    assert "steps: the job has marked no step" in waiting
