"""A run as it is now, from the ends of its files: one node and two, marks, hosts, what is missing, what it costs."""

import json
import time
from itertools import pairwise
from pathlib import Path

import pytest

from charllm.errors import SpecError
from charllm.measure.live.snapshot import Snapshot
from charllm.measure.live.tail import SPANS, LineCount, Tail
from charllm.measure.live.watcher import Watcher, check_run
from charllm.measure.recording import read_recording
from charllm.result.files import SAMPLES_FILE
from charllm.units import NANO
from tests.measure.live.runs import HOST, START_S, STEP_S, append_rows, write_marks, write_node
from tests.measure.replays import CAPTURE


def look(folder: Path) -> Snapshot:
    return Watcher(folder).look()


def test_the_newest_readings_are_those_of_the_whole_recording() -> None:
    (gpu,) = look(CAPTURE).gpus
    recording = read_recording(CAPTURE)
    for name in ("power_instant_w", "temperature_c", "clock_hz", "energy_j", "memory_used_bytes", "margin_k"):
        assert gpu.readings.values[name] == recording.known(0, name)[1][-1], name
    assert gpu.readings.missing == {"link_sent_bytes": "not_supported", "link_received_bytes": "not_supported"}
    times, sent = recording.known(0, "pcie_sent_bytes")
    rate = (sent[-1] - sent[-2]) / (times[-1] - times[-2])
    assert gpu.readings.rates_per_s["pcie_sent_bytes"] == pytest.approx(rate)
    times, energy = recording.known(0, "energy_j")
    assert gpu.energy_used_j == pytest.approx(energy[-1] - energy[0])
    assert gpu.power_mean_w == pytest.approx((energy[-1] - energy[0]) / (times[-1] - times[0]))


def test_a_run_on_one_node_has_gpus_by_number_and_rank(tmp_path: Path) -> None:
    found = look(write_node(tmp_path, gpus=2))
    assert found.state == "running"
    assert [(gpu.node, gpu.gpu, gpu.rank, gpu.uuid) for gpu in found.gpus] == [
        ("0", 0, 0, "GPU-0"),
        ("0", 1, 1, "GPU-1"),
    ]
    assert found.elapsed_s == pytest.approx(3.0, abs=0.2)
    assert found.power_w == pytest.approx(2 * found.gpus[0].readings.values["power_instant_w"])
    assert found.energy_used_j == pytest.approx(2 * (found.gpus[0].energy_used_j or 0.0))


def test_a_run_on_two_nodes_has_ranks_across_them(tmp_path: Path) -> None:
    for rank, name in enumerate(("n1", "n2")):
        details = {"node_rank": rank, "ranks_per_node": 2}
        write_node(tmp_path / "nodes" / name, gpus=2, first_uuid=10 * rank, details=details)
    found = look(tmp_path)
    assert [node.name for node in found.nodes] == ["n1", "n2"]
    assert [(gpu.node, gpu.rank, gpu.uuid) for gpu in found.gpus] == [
        ("n1", 0, "GPU-0"), ("n1", 1, "GPU-1"), ("n2", 2, "GPU-10"), ("n2", 3, "GPU-11"),
    ]  # fmt: skip


def test_a_look_back_gives_every_gpu_of_every_node_once_a_second(tmp_path: Path) -> None:
    for node in range(2):
        write_node(tmp_path / "nodes" / str(node), gpus=2, seconds=6, first_uuid=2 * node)
    (tmp_path / "job.json").write_text("{}")
    past = Watcher(tmp_path).look_back()
    assert 4 <= len(past) <= 7
    assert {(gpu.node, gpu.gpu) for _wall_s, gpus in past for gpu in gpus} == {(n, g) for n in "01" for g in range(2)}
    times_s = [wall_s for wall_s, _gpus in past]
    assert [after - before for before, after in pairwise(times_s)] == [1.0] * (len(past) - 1)
    assert abs(times_s[-1] - time.time()) < 5
    assert all("power_instant_w" in gpu.readings.values for _wall_s, gpus in past for gpu in gpus)
    assert Watcher(tmp_path / "nowhere").look_back() == []


def test_a_node_that_falls_silent_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = time.time()
    monkeypatch.setattr(time, "time", lambda: now_s)
    write_node(tmp_path / "nodes" / "n1")
    write_node(tmp_path / "nodes" / "n2", age_s=60.0)
    found = look(tmp_path)
    assert found.state == "running"
    assert found.missing == {"node n2": "no new readings for 60 s"}
    write_node(tmp_path / "nodes" / "n1", age_s=30.0)
    assert look(tmp_path).state == "silent"


def test_a_rank_is_not_guessed_where_ranks_and_gpus_differ(tmp_path: Path) -> None:
    write_node(tmp_path / "nodes" / "n1", gpus=2, details={"node_rank": 0, "ranks_per_node": 4})
    assert [gpu.rank for gpu in look(tmp_path).gpus] == [None, None]


def test_the_newest_repeat_is_shown(tmp_path: Path) -> None:
    for number in (0, 9, 10):
        write_node(tmp_path / f"repeat-{number}", gpus=number % 9 + 1)
    assert len(look(tmp_path).gpus) == 2


def test_a_run_that_has_not_begun_or_has_ended_says_so(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text("{}")
    assert look(tmp_path).state == "waiting"
    assert look(tmp_path).missing["power_w"] == "no GPU is read"
    write_node(tmp_path, ended=True)
    assert look(tmp_path).state == "ended"


def test_what_cannot_be_read_is_missing_with_its_reason(tmp_path: Path) -> None:
    write_node(tmp_path, gpus=2)
    later_ns = round((START_S + 5) / NANO)
    lost = {"beat": "fast", "gpu": 1, "monotonic_ns": later_ns, "wall_ns": later_ns, "missing": "power_instant_w=lost"}
    append_rows(
        tmp_path, {**lost, "temperature_c": "41.0", "power_average_w": "90.0", "clock_hz": "1e9", "limits": "2.0"}
    )
    found = look(tmp_path)
    assert found.gpus[1].readings.missing["power_instant_w"] == "lost"
    assert "power_instant_w" not in found.gpus[1].readings.values
    assert found.gpus[1].limited_by == ("power",)
    assert found.power_w is None
    assert found.missing["power_w"] == "not known of 1 of 2 GPUs"


def test_a_counter_that_was_reset_has_no_rate_and_begins_anew(tmp_path: Path) -> None:
    write_node(tmp_path)
    later_ns = round((START_S + 5) / NANO)
    times = {"gpu": 0, "monotonic_ns": later_ns, "wall_ns": later_ns, "duration_ns": 1}
    append_rows(
        tmp_path, {**times, "beat": "energy", "energy_j": "1.0"}, {**times, "beat": "slow", "pcie_sent_bytes": "1"}
    )
    (gpu,) = look(tmp_path).gpus
    assert gpu.energy_used_j == 0.0
    assert gpu.power_mean_w is None
    assert "pcie_sent_bytes" not in gpu.readings.rates_per_s


def test_rows_that_are_cut_short_or_torn_are_left_out(tmp_path: Path) -> None:
    before = look(write_node(tmp_path)).gpus[0].readings.values
    with (tmp_path / SAMPLES_FILE).open("ab") as file:
        file.write(b"fast,0,12\nrubbish\n\n\xff\xfe,,\nfast,0,99999")
    assert look(tmp_path).gpus[0].readings.values["memory_used_bytes"] == before["memory_used_bytes"]


def test_marks_give_steps_rates_and_loss(tmp_path: Path) -> None:
    write_marks(write_node(tmp_path), 30, loss=2.0)
    job = look(tmp_path).job
    drawn_w = look(tmp_path).gpus[0].readings.values["power_average_w"]
    assert (job.steps, job.loss) == (30, 32.0)
    assert job.step_time_s == pytest.approx(STEP_S)
    assert job.tokens_per_s == pytest.approx(1000 / STEP_S)
    assert job.tokens_per_j == pytest.approx(1000 / STEP_S / drawn_w)
    assert job.missing == {}


def test_what_is_not_marked_is_missing(tmp_path: Path) -> None:
    write_node(tmp_path)
    assert look(tmp_path).job.missing["steps"].startswith("the job has marked no step")
    write_marks(tmp_path, 0)
    assert look(tmp_path).job.missing["step_time_s"] == "fewer than two steps are marked"
    write_marks(tmp_path, 3, tokens=None)
    job = look(tmp_path).job
    assert job.missing["tokens_per_j"] == "steps are marked without tokens"
    assert job.missing["loss"] == 'no point named "loss" is marked'


def test_the_lowest_rank_that_marks_speaks_for_the_job(tmp_path: Path) -> None:
    write_marks(write_node(tmp_path / "nodes" / "n1"), 5, rank=3)
    write_marks(write_node(tmp_path / "nodes" / "n2"), 9, rank=1)
    assert look(tmp_path).job.steps == 9


def test_steps_are_counted_on_as_marks_are_added(tmp_path: Path) -> None:
    path = write_marks(write_node(tmp_path), 3)
    watcher = Watcher(tmp_path)
    assert watcher.look().job.steps == 3
    with path.open("a") as file:
        file.write(f"{round(1010 / NANO)},1,step,4,1000\n{round(1011 / NANO)},1,st")
    assert watcher.look().job.steps == 4


def test_the_host_is_read_where_it_is_recorded(tmp_path: Path) -> None:
    write_node(tmp_path)
    assert look(tmp_path).nodes[0].host.missing == {"host": "no host readings are recorded"}
    (tmp_path / "host.csv").write_text(HOST)
    host = look(tmp_path).nodes[0].host
    assert host.values["cpu_load_fraction"] == 0.5
    assert host.rates_per_s == {
        "nic_sent_bytes:mlx5_0/1": 2e9,
        "nic_received_bytes:mlx5_0/1": 0.5e9,
        "cpu_energy_j:0": 250.0,
    }
    assert host.missing == {"system_power_w:dcmi": "no_permission"}


def test_a_look_reads_the_same_however_long_the_record_is(tmp_path: Path) -> None:
    write_marks(write_node(tmp_path, gpus=4), 20)
    path = tmp_path / SAMPLES_FILE
    names, _newline, rows = path.read_bytes().partition(b"\n")
    costs = []
    for times in (1, 40):
        path.write_bytes(names + b"\n" + rows * times)
        watcher = Watcher(tmp_path)
        watcher.look()
        start_s = time.process_time()
        for _ in range(20):
            watcher.look()
        costs.append((time.process_time() - start_s) / 20)
    assert path.stat().st_size > 2 * SPANS[-3]
    assert costs[1] < 3 * costs[0] + 0.005
    assert costs[1] < 0.01, "more than 1 % of a core at one look a second"


def test_a_tail_goes_back_as_far_as_it_must(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"first\n" + b"x" * 99 + b"\n" + b"y\n" * 100_000 + b"torn")
    tail = Tail(path)
    lines = tail.newest(lambda lines: len(lines) > 50_000)
    assert 50_000 < len(lines) < 100_001
    assert set(lines) == {b"y"}
    assert tail.newest(lambda lines: b"first" in lines)[0] == b"first"
    assert Tail(tmp_path / "none").newest(lambda _lines: True) == []


def test_lines_are_counted_once_each(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("a,step,\nb\nc,step,")
    count = LineCount(path, b",step,")
    assert [count.update(), count.update()] == [1, 1]
    with path.open("a") as file:
        file.write("\nd,step,\n")
    assert count.update() == 3
    assert LineCount(tmp_path / "none", b"x").update() == 0


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    check_run(CAPTURE)
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(SpecError, match="RUN: got"):
            check_run(folder)
    (tmp_path / "job.json").write_text(json.dumps({}))
    check_run(tmp_path)


def test_a_board_with_the_mean_of_a_second_alone_shows_that(tmp_path: Path) -> None:
    write_node(tmp_path, gpus=1)
    later_ns = round((START_S + 5) / NANO)
    row = {"beat": "fast", "gpu": 0, "monotonic_ns": later_ns, "wall_ns": later_ns, "power_average_w": "90.0"}
    append_rows(tmp_path, {**row, "missing": "power_instant_w=not_supported"})
    found = look(tmp_path)
    assert found.power_w == found.gpus[0].power_w == 90.0
