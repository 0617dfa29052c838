"""A recording gives back what was read, whatever ends it."""

import errno
import json
import math
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from charllm.errors import SpecError
from charllm.measure.quantities import BEATS, COUNTERS, QUANTITIES
from charllm.measure.recording import FLUSH_S, TIMES, RecordingError, RecordingWriter, read_recording
from charllm.measure.telemetry.source import REASONS, Capability, GpuIdentity, Reading, SourceFacts
from charllm.result.files import HEADER_FILE, SAMPLES_FILE
from charllm.units import GIGA, NANO
from tests.measure.replayed import header, one_row, recording, samples, write_copy

FACTS = SourceFacts(
    "nvml",
    (GpuIdentity("GPU-a", "NVIDIA H200", 0, "00:06.0"), GpuIdentity("GPU-b", "NVIDIA H200", 3)),
    {"GPU-a": {"energy_j": Capability(True, "", 0.003), "margin_k": Capability(False, "not_supported", 1e-5)}},
    {"driver": "580.1"},
)
ROW_NS = (5_000_000_000, 1_794_786_270_876_632_882, 120_000)

NAMES = samples().decode().split("\n", 1)[0]
GOOD = one_row("fast", 2.0, power_instant_w=100.0, power_average_w=100.0, temperature_c=40.0, clock_hz=1e9, limits=0.0)

readings = st.one_of(st.floats(-1e29, 1e29), st.sampled_from(REASONS))


def write_rows(folder: Path, rows: list[tuple[str, int, list[Reading]]]) -> None:
    writer = RecordingWriter(folder, FACTS, {"rate_hz": "100"})
    for beat, gpu, values in rows:
        writer.write(beat, gpu, ROW_NS, values)
    writer.close()


@given(st.lists(st.tuples(st.sampled_from(list(BEATS)), st.integers(0, 1), st.data()), max_size=6))
def test_what_is_written_comes_back(tmp_path_factory: pytest.TempPathFactory, drawn: list[Any]) -> None:
    folder = tmp_path_factory.mktemp("written")
    rows: list[tuple[str, int, list[Reading]]] = [
        (beat, gpu, [data.draw(readings) for _ in BEATS[beat]]) for beat, gpu, data in drawn
    ]
    write_rows(folder, rows)
    found = read_recording(folder)
    for gpu in (0, 1):
        for beat, names in BEATS.items():
            own = [values for of_beat, of_gpu, values in rows if (of_beat, of_gpu) == (beat, gpu)]
            series = found.series[gpu][beat]
            for place, name in enumerate(names):
                written = [values[place] for values in own]
                numbers = [math.nan if isinstance(value, str) else value for value in written]
                assert np.array_equal(series.columns[name], numbers, equal_nan=True)
                assert series.missing.get(name, Counter()) == Counter(v for v in written if isinstance(v, str))


def test_times_and_facts_come_back(tmp_path: Path) -> None:
    write_rows(tmp_path, [("energy", 1, [2.5])])
    found = read_recording(tmp_path)
    series = found.series[1]["energy"]
    assert [series.times_s[0], series.wall_s[0], series.duration_s[0]] == pytest.approx(
        [time * NANO for time in ROW_NS]
    )
    assert found.facts.gpus == FACTS.gpus
    assert found.facts.capabilities == FACTS.capabilities
    assert found.facts.details == {"driver": "580.1", "rate_hz": "100"}
    assert found.sampled == [1]


def test_a_counter_of_months_still_counts_millijoules(tmp_path: Path) -> None:
    months_j = 700.0 * 86_400 * 365
    write_rows(tmp_path, [("energy", 0, [months_j + 0.123]), ("energy", 0, [months_j + 0.124])])
    energy = read_recording(tmp_path).known(0, "energy_j")[1]
    assert energy[1] - energy[0] == pytest.approx(0.001, rel=0.01)


def test_a_missing_value_is_nan_with_its_reason_and_never_nought(tmp_path: Path) -> None:
    write_rows(tmp_path, [("energy", 0, ["lost"]), ("energy", 0, [math.nan]), ("energy", 0, [math.inf])])
    series = read_recording(tmp_path).series[0]["energy"]
    assert np.all(np.isnan(series.columns["energy_j"]))
    assert series.missing == {"energy_j": Counter(not_finite=2, lost=1)}
    assert series.reasons == {"energy_j": {0: "lost", 1: "not_finite", 2: "not_finite"}}
    assert [len(part) for part in series.known("energy_j")] == [0, 0]


def test_the_capture_tells_why_it_has_no_links() -> None:
    slow = recording().series[0]["slow"]
    assert slow.missing["link_sent_bytes"] == Counter(not_supported=23)
    assert np.all(np.isnan(slow.columns["link_sent_bytes"]))
    assert {name for name, found in slow.missing.items() if found} == {
        "link_sent_bytes", "link_received_bytes", "faults", "hotspot_c",
    }  # fmt: skip


def test_a_quantity_newer_than_the_recording_is_missing_not_supported() -> None:
    assert "faults" not in header()["beats"]["slow"]
    slow = recording().series_of(0, "faults")
    assert slow is recording().series[0]["slow"]
    assert slow.missing["faults"] == Counter(not_supported=len(slow.times_s))
    assert len(recording().known(0, "faults")[0]) == 0


def test_a_recording_says_itself_on_which_beat_a_quantity_was_read(tmp_path: Path) -> None:
    beats = {"fast": ["energy_j"], "slow": [name for name in QUANTITIES if name != "energy_j"]}
    names = ",".join((*TIMES, *QUANTITIES, "missing"))
    cells = ["fast", "0", "1000000000", "1", "1", *("42" if name == "energy_j" else "" for name in QUANTITIES), ""]
    folder = write_copy(tmp_path, f"{names}\n{','.join(cells)}\n".encode(), beats=beats)
    found = read_recording(folder)
    assert found.series_of(0, "energy_j") is found.series[0]["fast"]
    assert found.known(0, "energy_j")[1].tolist() == [42.0]
    assert set(found.series[0]) == set(BEATS)
    with pytest.raises(KeyError):
        found.series_of(0, "no such quantity")


def rows_of(data: bytes) -> list[bytes]:
    return data[: data.rfind(b"\n") + 1].split(b"\n")[:-1]


@given(st.integers(0, len(samples())))
def test_cut_at_any_byte_it_loses_at_most_the_last_row(tmp_path_factory: pytest.TempPathFactory, size: int) -> None:
    folder = write_copy(tmp_path_factory.mktemp("cut"), samples()[:size])
    found, whole = read_recording(folder).series[0], recording().series[0]
    kept = rows_of(samples()[:size])
    for beat, series in found.items():
        count = sum(row.startswith(f"{beat},".encode()) for row in kept)
        assert len(series.times_s) == count
        for name, values in series.columns.items():
            assert np.array_equal(values, whole[beat].columns[name][:count], equal_nan=True)


@pytest.mark.parametrize(
    "row",
    [
        "fast,0,1,2",
        GOOD.replace("fast,0,", "fast,zero,"),
        GOOD.replace("2000000000", "soon"),
        GOOD.replace("40.0", "x"),
        GOOD.replace("40.0", ""),
        f"{GOOD},1",
        GOOD[:-1],
        GOOD.replace("2000000000", f"1{'0' * 400}"),
        GOOD.replace("fast", "quick"),
        GOOD.replace("fast,0,", "fast,7,"),
        f"{GOOD}lost",
        "\ufffd\ufffd",
        "\0\0\0\0",
    ],
)
def test_a_row_that_cannot_be_read_spoils_no_other(tmp_path: Path, row: str) -> None:
    folder = write_copy(tmp_path, f"{NAMES}\n{GOOD}\n{row}\n{GOOD}\n".encode())
    assert recording_times(folder) == [2.0, 2.0]


def recording_times(folder: Path) -> list[float]:
    return [float(time_s) for time_s in read_recording(folder).fast(0).times_s]


def test_a_reading_that_no_quantity_reaches_is_none(tmp_path: Path) -> None:
    row = one_row(
        "fast", 3.0, power_instant_w=1e300, power_average_w=100.0, temperature_c=40.0, clock_hz=1e9, limits=0.0
    )
    found = read_recording(write_copy(tmp_path, "\n".join((NAMES, GOOD, row, "")).encode())).fast(0)
    assert found.missing["power_instant_w"] == {"not_finite": 1}
    assert found.known("power_instant_w")[1].tolist() == [100.0]


def test_bytes_that_are_no_text_spoil_no_row(tmp_path: Path) -> None:
    lines = [NAMES.encode(), GOOD.encode(), b"\xff\xfe\x00", GOOD.encode(), b""]
    assert recording_times(write_copy(tmp_path, b"\n".join(lines))) == [2.0, 2.0]


def test_a_recording_without_rows_has_empty_series(tmp_path: Path) -> None:
    (write_copy(tmp_path, b"") / SAMPLES_FILE).unlink()
    found = read_recording(tmp_path)
    assert [len(series.times_s) for series in found.series[0].values()] == [0, 0, 0]
    assert found.sampled == []
    assert [len(part) for part in found.known(0, "faults")] == [0, 0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "valid JSON"),
        ('{"format": "charllm-rec', "valid JSON"),
        ("[]", "charllm-recording"),
        ('"text"', "charllm-recording"),
        ('{"format": "other", "version": 1}', "charllm-recording"),
        ('{"format": "charllm-recording", "version": 1}', "version 1.*expected version 2"),
        ('{"format": "charllm-recording", "version": 2}', "KeyError: 'gpus'"),
        (json.dumps({**header(), "gpus": [{"name": "x"}]}), "header with"),
        (json.dumps({**header(), "gpus": 3}), "recording.json, gpus: got 3"),
        (json.dumps({**header(), "beats": ["fast"]}), "recording.json, beats: got"),
        (json.dumps({**header(), "beats": {"fast": None}}), "recording.json, beats.fast: got nothing"),
        (json.dumps({**header(), "capabilities": {"GPU": {"energy_j": {"new": 1}}}}), "header with"),
        (json.dumps({**header(), "details": None}), "recording.json, details: got nothing"),
    ],
)
def test_a_wrong_header_is_explained(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / HEADER_FILE).write_text(text)
    with pytest.raises(SpecError, match=said) as caught:
        read_recording(tmp_path)
    assert caught.value.field.split(", ")[0] in ("recording", str(tmp_path / HEADER_FILE))


def test_a_folder_that_is_no_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="No such file"):
        read_recording(tmp_path)
    folder = write_copy(tmp_path / "run", b"")
    (folder / SAMPLES_FILE).unlink()
    (folder / SAMPLES_FILE).mkdir()
    with pytest.raises(SpecError, match=f"readable {SAMPLES_FILE}"):
        read_recording(folder)


def test_rows_are_with_the_operating_system_after_a_quarter_of_a_second(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path, FACTS, {})
    start_ns = int(5 * GIGA)
    writer.write("energy", 0, (start_ns, 0, 0), [1.0])
    assert len(recording_energy(tmp_path)) == 1
    writer.write("energy", 0, (start_ns + int(0.1 * GIGA), 0, 0), [2.0])
    assert len(recording_energy(tmp_path)) == 1
    writer.write("energy", 0, (start_ns + int(FLUSH_S * GIGA), 0, 0), [3.0])
    assert len(recording_energy(tmp_path)) == 3
    writer.close()


def recording_energy(folder: Path) -> list[float]:
    return [float(value) for value in read_recording(folder).known(0, "energy_j")[1]]


class SmallDisk:
    """os.write on a disk with so much room: writes what fits, then ENOSPC."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._write = os.write

    def __call__(self, file: int, data: memoryview) -> int:
        if self.room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        size = min(self.room, len(data), 1000)
        self.room -= size
        return self._write(file, data[:size])


def write_numbers(writer: RecordingWriter, count: int) -> None:
    for number in range(count):
        writer.write("energy", 0, (int((number + 1) * FLUSH_S * GIGA), 0, 0), [float(number)])


@given(st.integers(0, 3000))
def test_a_full_disk_is_said_and_everything_before_stays_readable(
    tmp_path_factory: pytest.TempPathFactory, room: int
) -> None:
    folder = tmp_path_factory.mktemp("full")
    writer = RecordingWriter(folder, FACTS, {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "write", SmallDisk(room))
        with pytest.raises(RecordingError, match="No space left on device"):
            write_numbers(writer, 200)
    writer.close()
    energy = recording_energy(folder)
    assert energy == [float(number) for number in range(len(energy))]
    data = (folder / SAMPLES_FILE).read_bytes()
    # What is there ends with a whole row, for tools that know nothing of rows cut short.
    assert room - 200 < len(data) <= room or room < 800
    assert data[-1:] in (b"", b"\n")
    assert len(energy) == max(0, data.count(b"\n") - 1)


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="No such file") as caught:
        RecordingWriter(tmp_path / "nowhere", FACTS, {})
    assert caught.value.exit_code == 1


def test_every_quantity_is_read_on_one_beat_and_says_what_it_is() -> None:
    assert sorted(name for names in BEATS.values() for name in names) == sorted(QUANTITIES)
    assert set(COUNTERS) <= set(QUANTITIES)
    assert all(quantity.meaning.endswith(".") for quantity in QUANTITIES.values())
    assert (QUANTITIES["faults"].beat, "faults" in COUNTERS) == ("slow", True)


def test_a_sampler_that_is_started_again_goes_on_below_the_same_header(tmp_path: Path) -> None:
    for _ in range(2):
        write_rows(tmp_path, [("fast", 0, [1.0 for _ in BEATS["fast"]])])
    lines = (tmp_path / SAMPLES_FILE).read_text().splitlines()
    assert len(lines) == 3
    assert sum(line.startswith("beat,") for line in lines) == 1
