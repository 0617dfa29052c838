"""A recording played again: the same readings, at the same pace."""

import time
from pathlib import Path

import numpy as np
import pytest

from charllm.errors import SpecError
from charllm.measure.quantities import BEATS, QUANTITIES
from charllm.measure.recording import read_recording
from charllm.measure.telemetry import replay
from charllm.measure.telemetry.replay import Replay, open_replay
from charllm.measure.telemetry.source import Reading, TelemetryError
from tests.measure.replayed import CAPTURE, columns, one_row, recording, samples, write_copy, write_two_gpus

OPENED_S = 1000.0


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now_s = OPENED_S

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(replay, "time", clock)
    return clock


def test_every_row_comes_again_at_its_own_time(clock: Clock) -> None:
    source = Replay(recording())
    series = recording().fast(0)
    for place in range(0, len(series.times_s), 50):
        clock.now_s = OPENED_S + float(series.times_s[place] - series.times_s[0]) + 1e-6
        assert source.read(0, BEATS["fast"]) == [series.columns[name][place] for name in BEATS["fast"]]


def test_each_beat_keeps_its_own_pace(clock: Clock) -> None:
    source = Replay(recording())
    times, energy = recording().known(0, "energy_j")
    start_s = float(recording().fast(0).times_s[0])
    for time_s, value in zip(times[1:], energy[1:], strict=True):
        clock.now_s = OPENED_S + float(time_s) - start_s + 1e-6
        assert source.read(0, ("energy_j",)) == [value]
        clock.now_s -= 1e-3
        assert source.read(0, ("energy_j",)) != [value]


def test_at_its_end_it_stays(clock: Clock) -> None:
    source = Replay(recording())
    clock.now_s = OPENED_S + 1e6
    assert source.read(0, ("power_instant_w",)) == [recording().fast(0).columns["power_instant_w"][-1]]


def test_it_plays_in_real_time() -> None:
    times, values = recording().known(0, "power_average_w")
    opening_s = time.monotonic()
    source = open_replay(str(CAPTURE))
    opened_s = time.monotonic()
    seen: set[Reading] = set()
    while len(seen) < 3:
        from_s = time.monotonic() - opened_s
        reading = source.read(0, ("power_average_w",))[0]
        to_s = time.monotonic() - opening_s
        # What was shown when the recording was as old as the replay is now.
        first, last = np.searchsorted(times - times[0], [from_s, to_s], side="right") - 1
        assert reading in values[first : last + 1]
        seen.add(reading)
        time.sleep(0.005)


def test_what_was_not_read_is_missing_again_for_the_same_reason(tmp_path: Path, clock: Clock) -> None:
    fast: dict[str, float | str] = {
        "power_average_w": "nan",
        "temperature_c": 1,
        "clock_hz": 1,
        "limits": 1,
        "missing": "power_instant_w=lost",
    }
    rows = [
        ",".join(columns()),
        one_row("energy", 1.0, missing="energy_j=lost"),
        one_row("energy", 2.0, energy_j=5),
        one_row("energy", 3.0, missing="energy_j=not_supported"),
        one_row("energy", 4.0, missing="energy_j=not_supported"),
        one_row("fast", 1.0, **fast),
    ]
    source = open_replay(str(write_copy(tmp_path, "".join(f"{row}\n" for row in rows).encode())))
    found: list[Reading] = []
    for second in range(4):
        clock.now_s = OPENED_S + second + 0.5
        found += source.read(0, ("energy_j",))
    assert found == ["lost", 5.0, "not_supported", "not_supported"]
    assert source.read(0, BEATS["fast"]) == ["lost", "not_finite", 1.0, 1.0, 1.0]


def test_a_quantity_newer_than_the_recording_is_not_supported() -> None:
    assert open_replay(str(CAPTURE)).read(0, ("faults", "temperature_c")) == ["not_supported", 38.0]


def test_every_quantity_can_be_asked_for() -> None:
    found = dict(zip(QUANTITIES, open_replay(str(CAPTURE)).read(0, tuple(QUANTITIES)), strict=True))
    assert {name for name, value in found.items() if isinstance(value, str)} == {
        "link_sent_bytes", "link_received_bytes", "faults", "hotspot_c",
    }  # fmt: skip


def test_a_beat_without_rows_is_not_supported(tmp_path: Path) -> None:
    fast_only = b"".join(row + b"\n" for row in samples().split(b"\n") if row.startswith(b"fast"))
    source = open_replay(str(write_copy(tmp_path, fast_only)))
    assert source.read(0, ("energy_j", "margin_k")) == ["not_supported", "not_supported"]


def test_it_says_what_is_replayed() -> None:
    source = open_replay(str(CAPTURE))
    assert source.facts.name == "replay"
    assert source.facts.details["replayed"] == "nvml"
    assert source.facts.gpus == recording().facts.gpus
    source.close()


def test_two_gpus_are_replayed_side_by_side(tmp_path: Path) -> None:
    source = Replay(read_recording(write_two_gpus(tmp_path, warmer_k=5.0)))
    readings = [source.read(gpu, ("temperature_c",))[0] for gpu in (0, 1)]
    assert np.diff(np.array(readings, dtype=float)) == pytest.approx(5.0)


def test_an_empty_recording_cannot_be_replayed(tmp_path: Path) -> None:
    with pytest.raises(TelemetryError, match="holds no readings"):
        open_replay(str(write_copy(tmp_path / "empty", b"")))
    with pytest.raises(TelemetryError, match="holds no readings"):
        open_replay(str(write_copy(tmp_path / "nothing", b"", gpus=[], capabilities={})))


def test_what_is_no_recording_is_explained(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="recording"):
        open_replay(str(tmp_path))
