"""The sampler: regular, cheap, ended by its starter, and killed without loss."""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from charllm.measure import sampler as module
from charllm.measure.host import find_host
from charllm.measure.host import record as host_record
from charllm.measure.host.record import read_host
from charllm.measure.host.source import HostSource
from charllm.measure.quantities import BEATS
from charllm.measure.recording import RecordingError, RecordingWriter, read_recording
from charllm.measure.sampler import ENERGY_PERIOD_S, ENERGY_SHARE, SELF_FILE, Beats, GpuReader, sample
from charllm.measure.telemetry.replay import open_replay
from charllm.measure.telemetry.source import GpuIdentity, Reading, SourceFacts
from charllm.result.files import SAMPLES_FILE
from charllm.units import GIGA
from tests.coverage_off import without_coverage
from tests.measure.host.machine import build as build_machine
from tests.measure.readings import await_readings
from tests.measure.replayed import CAPTURE, write_two_gpus

KILLS = int(os.environ.get("CHARLLM_KILLS", "6"))
AT_ONCE = 8
LONGEST_RUN_S = 3.0
REPLAY = f"replay:{CAPTURE}"
END_S = 120.0


class HandClock:
    """A clock that moves only where it is waited for."""

    def __init__(self) -> None:
        self.now_ns = int(10 * GIGA)

    def monotonic_ns(self) -> int:
        return self.now_ns

    def time_ns(self) -> int:
        return self.now_ns

    def process_time(self) -> float:
        return 0.0

    def sleep(self, seconds_s: float) -> None:
        self.now_ns += round(seconds_s * GIGA)


class Steady:
    """A source that always shows the same, each call taking a while."""

    facts = SourceFacts("steady", (GpuIdentity("GPU-a", "a", 0), GpuIdentity("GPU-b", "b", 1)))

    def __init__(self, clock: HandClock | None = None, call_s: float = 0.0) -> None:
        self.clock, self.call_s = clock or HandClock(), call_s

    def read(self, _gpu: int, quantities: tuple[str, ...]) -> list[Reading]:
        self.clock.sleep(self.call_s)
        return [1.0] * len(quantities)

    def close(self) -> None:
        pass


@contextmanager
def started(folder: Path, *flags: str, telemetry: str = REPLAY) -> Iterator["subprocess.Popen[str]"]:
    """Run the real sampler; whatever happens it does not outlive the test."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "charllm.measure.sampler", str(folder), "--telemetry", telemetry, *flags]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=without_coverage()) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_ready(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


def finish(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """Close the sampler's stdin and return its exit code and what it said on stderr."""
    _, errors = process.communicate(timeout=END_S)
    return process.returncode, errors


def sample_for(
    source: Any, folder: Path, duration_s: float, rate_hz: float = 100.0, gpus: tuple[int, ...] = (0,)
) -> Beats:
    """Sample in this process, closing the pipe after a while."""
    stop_fd, starter_fd = os.pipe()
    timer = threading.Timer(duration_s, os.close, [starter_fd])
    timer.start()
    try:
        return sample(source, gpus, folder, rate_hz, stop_fd)
    finally:
        timer.join()
        os.close(stop_fd)


def sample_by_hand(
    clock: HandClock,
    monkeypatch: pytest.MonkeyPatch,
    source: Any,
    folder: Path,
    duration_s: float,
    rate_hz: float = 100.0,
    gpus: tuple[int, ...] = (0,),
    host: Any = None,
) -> Beats:
    """Sample on a clock that is moved by hand, until the pipe closes."""
    end_ns = clock.now_ns + round(duration_s * GIGA)

    def is_closed(_stop_fd: int, wait_ns: int) -> bool:
        clock.now_ns = min(max(end_ns, clock.now_ns), clock.now_ns + wait_ns)
        return clock.now_ns >= end_ns

    for place in (module, host_record):
        monkeypatch.setattr(place, "time", clock)
    monkeypatch.setattr(module, "_is_closed", is_closed)
    return sample(source, gpus, folder, rate_hz, -1, host)


def test_a_hundred_readings_a_second_are_taken_one_each_10_ms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = HandClock()
    beats = sample_by_hand(clock, monkeypatch, Steady(clock), tmp_path, 1.505)
    times_s = read_recording(tmp_path).fast(0).times_s
    # And one more at the end.
    assert len(times_s) == beats.rows == 152
    assert np.diff(times_s)[:-1] == pytest.approx(0.01)
    assert (beats.missed, beats.late_max_s) == (0, 0.0)
    assert beats.as_table()["rate_hz"] >= 95.0


def test_a_reading_takes_less_than_half_of_its_10_ms_and_its_cost_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with started(folder) as process:
        wait_ready(process)
        await_readings(folder, 100)
        assert finish(process) == (0, "")
    cost = json.loads((folder / SELF_FILE).read_text())
    assert cost["rows"] == len(read_recording(folder).fast(0).times_s)
    assert cost["missed"] >= 0
    assert 0.0 < cost["cpu_fraction"] < 0.5
    # On a busy machine readings may come late; what they cost leaves time for a hundred a second all the same.
    assert cost["cpu_s"] / cost["rows"] < 0.5 * 0.01
    assert 0.0 < cost["read_s"] <= cost["elapsed_s"]
    assert cost["late_max_s"] >= 0.0


def test_it_ends_when_its_stdin_closes(tmp_path: Path) -> None:
    with started(tmp_path / "run") as process:
        wait_ready(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(END_S) == 0


def test_an_interrupt_is_for_the_job(tmp_path: Path) -> None:
    with started(tmp_path / "run") as process:
        wait_ready(process)
        process.send_signal(signal.SIGINT)
        await_readings(tmp_path / "run")
        assert process.poll() is None
        assert finish(process) == (0, "")


def test_ready_means_that_a_first_row_of_each_beat_is_written(tmp_path: Path) -> None:
    with started(tmp_path / "run") as process:
        wait_ready(process)
        series = read_recording(tmp_path / "run").series[0]
        assert all(len(series[beat].times_s) >= 1 for beat in BEATS)
        assert finish(process)[0] == 0


def test_only_the_gpus_that_were_asked_for_are_read(tmp_path: Path) -> None:
    two = write_two_gpus(tmp_path / "two", warmer_k=5.0)
    second = read_recording(two).facts.gpus[1].uuid
    with started(tmp_path / "run", "--gpus", second, telemetry=f"replay:{two}") as process:
        wait_ready(process)
        assert finish(process)[0] == 0
    found = read_recording(tmp_path / "run")
    assert found.sampled == [1]
    assert len(found.facts.gpus) == 2
    assert found.facts.details["sampled"] == "1"


def test_without_gpus_it_still_says_ready_and_ends(tmp_path: Path) -> None:
    with started(tmp_path / "run", telemetry="none") as process:
        wait_ready(process)
        assert finish(process) == (0, "")
    assert read_recording(tmp_path / "run").series == {}


@pytest.mark.parametrize(
    ("flags", "telemetry", "code", "said"),
    [
        ((), "nvlm", 2, "did you mean nvml"),
        ((), "replay:/nowhere", 2, "recording"),
        (("--rate", "0"), REPLAY, 2, "--rate"),
        (("--rate", "nan"), REPLAY, 2, "--rate"),
        (("--rate", "1e12"), REPLAY, 2, "--rate"),
    ],
)
def test_what_cannot_be_sampled_is_one_line(
    tmp_path: Path, flags: tuple[str, ...], telemetry: str, code: int, said: str
) -> None:
    with started(tmp_path / "run", *flags, telemetry=telemetry) as process:
        ended, errors = finish(process)
    assert (ended, errors.count("\n")) == (code, 1)
    assert errors.startswith("charllm: sampler: ")
    assert said in errors


def test_a_folder_that_is_gone_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    command = [sys.executable, "-m", "charllm.measure.sampler", str(tmp_path / "file"), "--telemetry", REPLAY]
    done = subprocess.run(command, input="", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "cannot write the recording" in done.stderr


def test_a_disk_that_is_full_from_the_start_is_one_line(tmp_path: Path) -> None:
    (tmp_path / SAMPLES_FILE).symlink_to("/dev/full")
    with started(tmp_path) as process:
        process.wait(END_S)
        code, errors = finish(process)
    assert (code, errors.count("\n")) == (1, 1)
    assert "No space left on device" in errors
    assert "Traceback" not in errors


def test_a_disk_that_fills_while_it_runs_is_one_line_and_what_is_written_stays(tmp_path: Path) -> None:
    with started(tmp_path) as process:
        wait_ready(process)
        room = (tmp_path / SAMPLES_FILE).stat().st_size + 10_000
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (room, room))
        process.wait(END_S)
        code, errors = finish(process)
    assert (code, errors.count("\n")) == (1, 1)
    assert "cannot write the recording" in errors
    data = (tmp_path / SAMPLES_FILE).read_bytes()
    assert room - 1000 < len(data) <= room
    assert data.endswith(b"\n")
    found = read_recording(tmp_path)
    assert sum(len(series.times_s) for series in found.series[0].values()) == data.count(b"\n") - 1 > 50


def test_a_slow_driver_costs_beats_and_freezes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = HandClock()
    beats = sample_by_hand(clock, monkeypatch, Steady(clock, call_s=0.05), tmp_path, 1.0)
    assert 5 < beats.rows <= 20
    assert beats.missed > 50
    assert beats.rows + beats.missed == pytest.approx(100 * beats.elapsed_s, abs=12)
    assert beats.elapsed_s < 2.0
    assert beats.read_s > 0.5
    times = read_recording(tmp_path).fast(0).times_s
    assert len(times) == beats.rows
    # A reading is never older than the calls of one beat, however many beats were missed.
    assert np.max(np.diff(times)) < 0.5


def test_two_gpus_are_read_on_every_beat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = HandClock()
    beats = sample_by_hand(clock, monkeypatch, Steady(clock), tmp_path, 0.3, rate_hz=50.0, gpus=(0, 1))
    found = read_recording(tmp_path)
    assert beats.rows > 15
    assert [len(found.fast(gpu).times_s) for gpu in (0, 1)] == [beats.rows, beats.rows]
    assert found.facts.details["rate_hz"] == "50.0"


def test_a_source_that_breaks_leaves_what_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Breaks(Steady):
        reads = 0

        def read(self, gpu: int, quantities: tuple[str, ...]) -> list[Reading]:
            self.reads += 1
            if self.reads > 20:
                raise RuntimeError("broken")
            return super().read(gpu, quantities)

    clock = HandClock()
    with pytest.raises(RuntimeError, match="broken"):
        sample_by_hand(clock, monkeypatch, Breaks(clock), tmp_path, 0.5)
    assert len(read_recording(tmp_path).fast(0).times_s) > 10


def test_a_full_disk_ends_sampling_with_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / SAMPLES_FILE).symlink_to("/dev/full")
    with pytest.raises(RecordingError, match=f"cannot write the recording in {tmp_path}: No space left on device"):
        sample_for(Steady(), tmp_path, 0.2)


def test_without_time_there_is_no_rate() -> None:
    assert Beats(0, 0, 0.0, 0.0, 0.0, 0.0).as_table()["rate_hz"] == 0.0
    table = Beats(90, 10, 2.0, 0.1, 0.05, 0.001).as_table()
    assert (table["rate_hz"], table["cpu_fraction"]) == (45.0, 0.05)


class Board(HandClock):
    """A clock, and a board on it that shows new power every 100 ms and whose calls take as long as they are said to."""

    facts = SourceFacts("board", (GpuIdentity("GPU-a", "a", 0),))

    def __init__(self, energy_call_s: float, *, idle: bool = False) -> None:
        super().__init__()
        self.energy_call_s, self.idle = energy_call_s, idle
        self.spent_ns = 0
        self.energy_at_s: list[float] = []

    def read(self, _gpu: int, quantities: tuple[str, ...]) -> list[Reading]:
        if "energy_j" in quantities:
            self.energy_at_s.append(self.now_ns / GIGA)
            self.now_ns += int(self.energy_call_s * GIGA)
            self.spent_ns += int(self.energy_call_s * GIGA)
        shown = 80.0 if self.idle else float(self.now_ns // int(0.1 * GIGA))
        return [shown] * len(quantities)

    def close(self) -> None:
        pass


def beats_of(
    board: Board,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    duration_s: float = 60.0,
    counters_s: float | None = None,
) -> None:
    monkeypatch.setattr(module, "time", board)
    reader = GpuReader(board, RecordingWriter(folder, board.facts, {}), 0, counters_s)
    due_ns, end_ns = board.now_ns, board.now_ns + int(duration_s * GIGA)
    while due_ns < end_ns:
        board.now_ns = max(board.now_ns, due_ns)
        reader.beat(board.now_ns)
        due_ns += int(0.01 * GIGA)


@pytest.mark.parametrize("call_s", [0.0001, 0.001, 0.0034, 0.02])
def test_the_counter_takes_no_more_than_its_share_of_a_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call_s: float
) -> None:
    board = Board(call_s)
    beats_of(board, tmp_path, monkeypatch)
    assert board.spent_ns / GIGA / 60.0 <= ENERGY_SHARE * 1.02
    # And no less often than that, or the board, allows.
    between_s = np.diff(board.energy_at_s)
    assert np.max(between_s) < max(call_s / ENERGY_SHARE, ENERGY_PERIOD_S) + 0.12


def test_a_cheap_counter_is_read_once_for_each_of_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board = Board(0.0001)
    beats_of(board, tmp_path, monkeypatch)
    between_s = np.diff(board.energy_at_s)
    assert np.median(between_s) == pytest.approx(0.1, abs=0.001)
    assert np.min(between_s) >= ENERGY_PERIOD_S


def test_beside_a_trace_counters_are_read_at_each_of_their_steps_whatever_that_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = Board(0.006)
    beats_of(board, tmp_path, monkeypatch, 20.0, counters_s=0.09)
    assert len(board.energy_at_s) == pytest.approx(200, abs=5)


def test_an_idle_board_that_shows_the_same_is_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = Board(0.0001, idle=True)
    beats_of(board, tmp_path, monkeypatch)
    assert np.max(np.diff(board.energy_at_s)) < 0.3


def opened_by_duckdb(folder: Path) -> int:
    """Count the fast rows with a tool that knows nothing of recordings."""
    query = f"SELECT count(power_instant_w) FROM '{folder / SAMPLES_FILE}' WHERE beat = 'fast'"
    with duckdb.connect() as connection:
        (count,) = connection.execute(query).fetchone()
    return int(count)


def waited_s(process: int) -> float:
    """Return how long a process has waited for a core so far, where the kernel counts that."""
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text().split()[1]) / GIGA
    except OSError:
        return 0.0


def kill_once(folder: Path, run_s: float) -> float:
    """Kill a sampler after a while; return how much time before the kill its record lacks, having read it.

    Time in which it had no core to run on does not count.
    """
    with started(folder) as process:
        wait_ready(process)
        waited_before_s = waited_s(process.pid)
        time.sleep(run_s)
        late_s = waited_s(process.pid) - waited_before_s
        kill_s = time.monotonic()
        process.kill()
        process.wait(END_S)
    assert process.returncode == -signal.SIGKILL
    found = read_recording(folder)
    data = (folder / SAMPLES_FILE).read_bytes()
    assert sum(len(series.times_s) for series in found.series[0].values()) == data.count(b"\n") - 1
    assert opened_by_duckdb(folder) == len(found.fast(0).times_s)
    times = found.fast(0).times_s
    assert np.all(np.diff(times) > 0)
    return float(kill_s - times[-1]) - late_s


def test_a_kill_at_any_instant_loses_less_than_a_second(tmp_path: Path) -> None:
    instants = random.Random(KILLS)
    runs_s = [instants.uniform(0.0, LONGEST_RUN_S) for _ in range(KILLS)]
    folders = [tmp_path / str(number) for number in range(KILLS)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        losses_s = list(pool.map(kill_once, folders, runs_s))
    print(f"{KILLS} kills: at most {max(losses_s):.3f} s lost, {np.mean(losses_s):.3f} s in the mean")
    assert len(losses_s) == KILLS
    assert max(losses_s) < 1.0


def test_the_host_is_read_once_a_second_beside_the_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = HandClock()
    host = dict(find_host("auto", build_machine(tmp_path / "machine")))

    def read_slowly() -> list[Reading]:
        clock.sleep(0.004)
        return [1.0]

    host["slow"] = HostSource(("runnable_tasks:slow",), read_slowly)
    source = open_replay(str(CAPTURE))
    beats = sample_by_hand(clock, monkeypatch, source, tmp_path, 2.3, rate_hz=50.0, host=host)
    found = read_host(tmp_path)
    assert found is not None
    # At the start, after each second, and once more at the end.
    assert list(found.times_s - found.times_s[0]) == pytest.approx([0.0, 1.0, 2.0, 2.3], abs=0.02)
    assert found.columns["system_power_w:acpi"][0] == 5200.0
    assert beats.host_s == pytest.approx(4 * 0.004)
    assert beats.host_s < beats.elapsed_s
    assert len(read_recording(tmp_path).fast(0).times_s) > 25


def test_host_readings_can_be_left_out(tmp_path: Path) -> None:
    with started(tmp_path / "run", "--host", "none") as process:
        wait_ready(process)
        assert finish(process) == (0, "")
    assert not (tmp_path / "run" / "host.csv").exists()


def test_a_wrong_host_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    with started(tmp_path / "run", "--host", "everything") as process:
        code, errors = finish(process)
    assert code == 2
    assert errors == "charllm: sampler: --host: got 'everything'; expected auto, none or redfish:FILE\n"
