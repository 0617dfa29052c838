"""The process beside a job that reads every GPU and the machine around them, and writes it down as it goes.

    python -m charllm.measure.sampler FOLDER --telemetry nvml --rate 100 --gpus UUID,UUID --host auto

It says ``ready`` on stdout when the first row is written and ends when its stdin closes, so that it never outlives the
one who started it. What stops it earlier (a full disk, no driver) is one line on stderr and a non-zero exit code. It
needs numpy and the driver's binding only.
"""

import argparse
import json
import os
import select
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import closing, nullcontext
from pathlib import Path
from typing import NamedTuple

from charllm.errors import CharllmError, SpecError
from charllm.measure.host import find_host
from charllm.measure.host.record import HostWriter
from charllm.measure.host.source import HostSource
from charllm.measure.quantities import BEATS
from charllm.measure.recording import RecordingError, RecordingWriter
from charllm.measure.telemetry import open_source
from charllm.measure.telemetry.replay import Replay
from charllm.measure.telemetry.source import Reading, Source
from charllm.units import GIGA, NANO

SLOW_PERIOD_S = 1.0
ENERGY_PERIOD_S, ENERGY_SHARE = 0.09, 0.02
"""The counter is read once for each of its steps, or less often where that would take more than 2 % of a core."""
REFRESH_LATE_S = 0.15
"""Power that stays the same for longer than this (an idle board) does not keep the counter from being read."""
RATE_MAX_HZ = 1000.0
SELF_FILE = "sampler.json"


class Beats(NamedTuple):
    """How regular the sampling was, and what it cost."""

    rows: int
    missed: int
    """Beats skipped because the one before took too long."""
    elapsed_s: float
    cpu_s: float
    read_s: float
    """Time spent inside the driver."""
    late_max_s: float
    host_s: float = 0.0
    """Time spent on host readings."""

    def as_table(self) -> dict[str, float]:
        """Return what is worth keeping beside a recording."""
        return {
            **self._asdict(),
            "rate_hz": self.rows / self.elapsed_s if self.elapsed_s else 0.0,
            "cpu_fraction": self.cpu_s / self.elapsed_s if self.elapsed_s else 0.0,
        }


def sample(
    source: Source,
    gpus: tuple[int, ...],
    folder: Path,
    rate_hz: float,
    stop_fd: int,
    host: Mapping[str, HostSource] | None = None,
    counters_s: float | None = None,
) -> Beats:
    """Read until the other end of `stop_fd` closes; whatever happens, what was read is written.

    With `counters_s`, counters and slow quantities are read this often, whatever that costs.
    """
    writer = RecordingWriter(folder, source.facts, {"rate_hz": str(rate_hz), "sampled": ",".join(map(str, gpus))})
    try:
        readers = [GpuReader(source, writer, gpu, counters_s) for gpu in gpus]
        with closing(HostWriter(folder, host)) if host else nullcontext() as host_writer:
            return _sample(writer, readers, rate_hz, stop_fd, host_writer)
    finally:
        writer.close()


def _sample(
    writer: RecordingWriter, readers: list["GpuReader"], rate_hz: float, stop_fd: int, host: HostWriter | None
) -> Beats:
    period_ns = int(GIGA / rate_hz)
    start_ns = next_ns = host_due_ns = time.monotonic_ns()
    rows = missed = late_max_ns = 0
    cpu_start_s = time.process_time()
    while not _is_closed(stop_fd, max(0, next_ns - time.monotonic_ns())):
        now_ns = time.monotonic_ns()
        late_max_ns = max(late_max_ns, now_ns - next_ns)
        for reader in readers:
            reader.beat(now_ns)
        if host is not None and now_ns >= host_due_ns:
            host.beat()
            host_due_ns += int(SLOW_PERIOD_S * GIGA)
        rows += 1
        if rows == 1:
            writer.flush(now_ns)
            print("ready", flush=True)
        next_ns += period_ns
        behind = (time.monotonic_ns() - next_ns) // period_ns
        if behind > 0:
            missed += behind
            next_ns += behind * period_ns
    # The last moment of a job is seen too, however busy its machine is.
    for reader in readers:
        reader.beat(time.monotonic_ns())
    rows += 1
    if host is not None:
        host.beat()
    elapsed_s = (time.monotonic_ns() - start_ns) * NANO
    cpu_s = time.process_time() - cpu_start_s
    read_ns = sum(reader.read_ns for reader in readers)
    host_s = host.read_ns * NANO if host is not None else 0.0
    return Beats(rows, missed, elapsed_s, cpu_s, read_ns * NANO, late_max_ns * NANO, host_s)


class GpuReader:
    """Reads one GPU: fast quantities on every beat, the counter when the board refreshes, the rest each second."""

    def __init__(self, source: Source, writer: RecordingWriter, gpu: int, counters_s: float | None = None) -> None:
        self._source, self._writer, self._gpu = source, writer, gpu
        self._slow_period_ns = int((counters_s or SLOW_PERIOD_S) * GIGA)
        self._energy_shortest_ns = int((counters_s or ENERGY_PERIOD_S) * GIGA)
        self._energy_share = ENERGY_SHARE if counters_s is None else 1.0
        self.read_ns = 0
        self._shown: list[Reading] = []
        self._slow_due_ns = self._energy_due_ns = 0
        self._energy_period_ns = 0

    def beat(self, now_ns: int) -> None:
        """Read what is due."""
        readings = self._read("fast")
        power = readings[:2]
        refreshed = power != self._shown
        self._shown = power
        if now_ns >= self._energy_due_ns and (refreshed or now_ns >= self._energy_due_ns + int(REFRESH_LATE_S * GIGA)):
            before_ns = self.read_ns
            self._read("energy")
            self._energy_period_ns = max(self._energy_shortest_ns, int((self.read_ns - before_ns) / self._energy_share))
            self._energy_due_ns = now_ns + self._energy_period_ns
        if now_ns >= self._slow_due_ns:
            self._read("slow")
            self._slow_due_ns = now_ns + self._slow_period_ns

    def _read(self, beat: str) -> list[Reading]:
        start_ns, wall_ns = time.monotonic_ns(), time.time_ns()
        readings = self._source.read(self._gpu, BEATS[beat])
        duration_ns = time.monotonic_ns() - start_ns
        self._writer.write(beat, self._gpu, (start_ns, wall_ns, duration_ns), readings)
        self.read_ns += duration_ns
        return readings


def _is_closed(stop_fd: int, wait_ns: int) -> bool:
    """Wait for the next beat; tell whether the one who started us has gone."""
    ready, _, _ = select.select([stop_fd], [], [], wait_ns * NANO)
    return bool(ready) and not os.read(stop_fd, 1)


def main() -> int:
    """Sample until stdin closes, then write what sampling cost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--telemetry", default="auto")
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--gpus", default="")
    parser.add_argument("--host", default="auto")
    parser.add_argument("--counters", type=float)
    parser.add_argument("--began", type=float, help="when a sampler that is started again began, monotonic")
    arguments = parser.parse_args()
    # An interrupt is for the job; the sampler ends when the one who started it closes the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _sample_as_asked(arguments)
    except CharllmError as error:
        print(f"charllm: sampler: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _sample_as_asked(asked: argparse.Namespace) -> None:
    folder, rate_hz = asked.folder, asked.rate
    if not 0 < rate_hz <= RATE_MAX_HZ:
        raise SpecError("--rate", rate_hz, f"more than 0, at most {RATE_MAX_HZ:.0f} readings a second")
    host = find_host(asked.host)
    source = open_source(asked.telemetry)
    if isinstance(source, Replay) and asked.began is not None:
        # A board goes on while nobody reads it.
        source.began_s = asked.began
    wanted = [word for word in asked.gpus.split(",") if word]
    gpus = tuple(place for place, identity in enumerate(source.facts.gpus) if not wanted or identity.uuid in wanted)
    try:
        beats = sample(source, gpus, folder, rate_hz, sys.stdin.fileno(), host, asked.counters)
        (folder / SELF_FILE).write_text(json.dumps(beats.as_table(), indent=1), encoding="utf-8")
    except OSError as error:
        raise RecordingError(folder, error) from None
    finally:
        source.close()


if __name__ == "__main__":
    sys.exit(main())
