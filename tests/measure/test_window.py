"""What a real recording says about windows of time."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from charllm.gpu.limits import CAUSES, LIMITS
from charllm.measure.quantities import BEATS
from charllm.measure.recording import Recording, RecordingWriter, read_recording
from charllm.measure.telemetry.source import GpuIdentity, Reading, SourceFacts
from charllm.measure.window import counted, highest, look
from charllm.units import GIGA
from tests.measure.replayed import IDLE_S, JOB_S, STEPS_S, recording

FACTS = SourceFacts("stand-in", (GpuIdentity("GPU-a", "a", 0),))
LONG_S = 5.0


def write_fast(folder: Path, rows: list[tuple[float, dict[str, Reading]]], beat: str = "fast") -> Recording:
    """Write rows of one beat, what is not given being lost, and read them back."""
    writer = RecordingWriter(folder, FACTS, {})
    for time_s, values in rows:
        writer.write(beat, 0, (round(time_s * GIGA), 0, 0), [values.get(name, "lost") for name in BEATS[beat]])
    writer.close()
    return read_recording(folder)


@given(st.floats(*JOB_S), st.floats(LONG_S, 12.0))
def test_instant_power_and_the_counter_agree_in_every_long_window_of_the_job(start_s: float, length_s: float) -> None:
    start_s = min(start_s, JOB_S[1] - length_s)
    seen = look(recording(), 0, start_s, start_s + length_s)
    assert seen.energy_j is not None
    assert seen.instant_energy_j == pytest.approx(seen.energy_j.value, rel=0.03)


@given(st.floats(*STEPS_S), st.floats(0.1, 2.6))
def test_they_agree_within_the_stated_error_while_steps_run(start_s: float, length_s: float) -> None:
    start_s = min(start_s, STEPS_S[1] - length_s)
    seen = look(recording(), 0, start_s, start_s + length_s)
    assert seen.energy_j is not None
    assert seen.instant_energy_j is not None
    box_j = 0.05 * 812.0
    assert abs(seen.instant_energy_j - seen.energy_j.value) < seen.energy_j.error + box_j


@given(st.floats(28.0, 50.0), st.floats(28.0, 50.0), st.floats(28.0, 50.0))
def test_adjoining_windows_add_to_the_whole(first: float, second: float, third: float) -> None:
    start_s, cut_s, end_s = np.sort([first, second, third]) + np.array([0.0, 0.01, 0.02])
    before, after, whole = (
        look(recording(), 0, *window) for window in ((start_s, cut_s), (cut_s, end_s), (start_s, end_s))
    )
    assert before.energy_j is not None
    assert after.energy_j is not None
    assert whole.energy_j is not None
    assert before.energy_j.value + after.energy_j.value == pytest.approx(whole.energy_j.value, rel=1e-3)


def test_an_idle_board_is_seen_as_one() -> None:
    seen = look(recording(), 0, *IDLE_S)
    assert seen.power_mean_w == pytest.approx(80.0, abs=2.0)
    assert seen.clock_mean_hz == pytest.approx(345e6)
    assert seen.clock_std_fraction == pytest.approx(0.0, abs=1e-6)
    assert (seen.temperature_start_c, seen.temperature_mean_c, seen.temperature_end_c) == (38.0, 38.0, 38.0)
    assert seen.limited_fraction == dict.fromkeys(CAUSES, 0.0)
    assert seen.duration_s == pytest.approx(6.0)
    assert seen.readings == pytest.approx(600, rel=0.05)


def test_a_training_job_is_seen_at_its_power_limit() -> None:
    seen = look(recording(), 0, *STEPS_S)
    assert seen.power_mean_w == pytest.approx(680.0, abs=20.0)
    assert seen.power_peak_sensor_w == pytest.approx(812.542)
    assert seen.clock_mean_hz == pytest.approx(1.75e9, rel=0.05)
    assert seen.clock_std_fraction is not None
    assert 0.0 < seen.clock_std_fraction < 0.1
    assert seen.limited_fraction is not None
    assert seen.limited_fraction["power"] == 1.0
    assert seen.limited_fraction["thermal"] == seen.limited_fraction["brake"] == 0.0
    assert seen.temperature_peak_c == 60.0
    assert seen.energy_j is not None
    assert 0.0 < seen.energy_j.error < 0.05 * seen.energy_j.value


def test_outside_of_the_recording_nothing_is_known() -> None:
    seen = look(recording(), 0, 100.0, 101.0)
    assert (seen.energy_j, seen.instant_energy_j, seen.power_mean_w, seen.limited_fraction) == (None, None, None, None)
    assert (seen.temperature_mean_c, seen.clock_mean_hz, seen.clock_std_fraction) == (None, None, None)
    assert seen.readings == 0


def test_where_the_counter_does_not_reach_power_comes_from_the_boxes() -> None:
    seen = look(recording(), 0, 27.0, 28.0)
    assert seen.energy_j is None
    assert seen.power_mean_w == pytest.approx(80.4, abs=0.5)


def test_a_gpu_that_was_lost_is_not_known_rather_than_nought(tmp_path: Path) -> None:
    seen = look(write_fast(tmp_path, [(1.0, {}), (2.0, {})]), 0, 0.5, 2.5)
    assert (*seen[1:11], seen.readings, seen.gaps.number, seen.bounds) == ((None,) * 10 + (0, 0, {}))


def test_a_gpu_that_was_lost_early_has_peaks_and_no_means(tmp_path: Path) -> None:
    alive: dict[str, Reading] = {"power_instant_w": 300.0, "temperature_c": 50.0, "clock_hz": 1e9}
    rows = [(0.1 * number, alive if number < 20 else {}) for number in range(100)]
    found = write_fast(tmp_path, rows)
    lost, before = look(found, 0, 0.0, 10.0), look(found, 0, 0.0, 2.0)
    assert (lost.power_mean_w, lost.instant_energy_j, lost.clock_mean_hz, lost.temperature_mean_c) == (None,) * 4
    assert (lost.power_peak_sensor_w, lost.temperature_peak_c) == (300.0, 50.0)
    assert before.power_mean_w == pytest.approx(300.0)
    assert before.temperature_mean_c == pytest.approx(50.0)


def test_a_few_missed_readings_cost_no_mean(tmp_path: Path) -> None:
    rows: list[tuple[float, dict[str, Reading]]] = [
        (0.1 * number, {} if 40 < number < 48 else {"power_instant_w": 300.0}) for number in range(101)
    ]
    assert look(write_fast(tmp_path, rows), 0, 0.0, 10.0).power_mean_w == pytest.approx(300.0)


def test_a_slow_sampler_still_has_means(tmp_path: Path) -> None:
    rows: list[tuple[float, dict[str, Reading]]] = [(5.0 * number, {"clock_hz": 1e9}) for number in range(9)]
    assert look(write_fast(tmp_path, rows), 0, 11.0, 28.0).clock_mean_hz == pytest.approx(1e9)


def test_means_are_over_time_and_not_over_readings(tmp_path: Path) -> None:
    rows: list[tuple[float, dict[str, Reading]]] = [
        (1.0, {"clock_hz": 1e9, "power_instant_w": 100.0}),
        (1.9, {"clock_hz": 2e9, "power_instant_w": 200.0}),
    ]
    seen = look(write_fast(tmp_path, rows), 0, 1.0, 2.0)
    assert seen.clock_mean_hz == pytest.approx(1.1e9)
    assert seen.power_mean_w == pytest.approx(110.0)
    assert seen.clock_std_fraction == pytest.approx(0.5e9 / 1.1e9)


def test_each_cause_is_counted_by_its_own_bit(tmp_path: Path) -> None:
    bits = [0, LIMITS["power"], LIMITS["power"] | LIMITS["thermal"], LIMITS["brake"] | LIMITS["idle"], LIMITS["other"]]
    rows: list[tuple[float, dict[str, Reading]]] = [
        (float(number), {"limits": float(value)}) for number, value in enumerate(bits, start=1)
    ]
    seen = look(write_fast(tmp_path, rows), 0, 1.0, 5.0)
    assert seen.limited_fraction == pytest.approx({"power": 0.4, "thermal": 0.2, "brake": 0.2})


def test_a_counter_grows_by_what_was_sent_in_a_window() -> None:
    whole = counted(recording(), 0, "pcie_sent_bytes", 27.0, 51.0)
    assert whole == pytest.approx(163_640_776 - 90_789_352)
    limited_s = counted(recording(), 0, "power_limited_s", 44.0, 50.0)
    assert limited_s == pytest.approx(3.18, abs=0.1)
    assert counted(recording(), 0, "power_limited_s", *IDLE_S) == 0.0


def test_a_counter_that_was_not_read_did_not_count_nothing() -> None:
    assert counted(recording(), 0, "link_sent_bytes", 27.0, 51.0) is None
    assert counted(recording(), 0, "faults", 27.0, 51.0) is None
    assert counted(recording(), 0, "pcie_sent_bytes", 60.0, 61.0) is None
    assert counted(recording(), 0, "pcie_sent_bytes", 10.0, 11.0) is None
    with pytest.raises(KeyError):
        counted(recording(), 0, "temperature_c", 27.0, 51.0)


def test_a_counter_that_is_reset_goes_on_counting(tmp_path: Path) -> None:
    rows: list[tuple[float, dict[str, Reading]]] = [
        (float(number), {"pcie_sent_bytes": value}) for number, value in enumerate([100.0, 300.0, 50.0, 90.0])
    ]
    found = write_fast(tmp_path, rows, beat="slow")
    assert counted(found, 0, "pcie_sent_bytes", 0.0, 3.0) == 290.0


def test_the_highest_reading_is_of_the_window() -> None:
    assert highest(recording(), 0, "memory_used_bytes", *IDLE_S) == pytest.approx(0.645e9, rel=0.01)
    assert highest(recording(), 0, "memory_used_bytes", *STEPS_S) == pytest.approx(22.8e9, rel=0.01)
    assert highest(recording(), 0, "faults", *STEPS_S) is None


def test_a_board_that_shows_averaged_power_only_has_a_mean_and_no_peak(tmp_path: Path) -> None:
    rows: list[tuple[float, dict[str, Reading]]] = [(0.1 * place, {"power_average_w": 350.0}) for place in range(100)]
    seen = look(write_fast(tmp_path, rows), 0, 1.0, 9.0)
    assert seen.power_mean_w == pytest.approx(350.0)
    assert seen.power_peak_sensor_w is None
