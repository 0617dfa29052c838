"""The part of a measured run that is described: one choice for its figures and for the doctor."""

from pathlib import Path

import numpy as np
import pytest

from charllm.analysis.doctor import measured as doctor
from charllm.measure import summary
from charllm.measure.finish import finish_record, read_measured
from charllm.measure.marks import Mark
from charllm.measure.measured import Chosen, Measured, choose_window
from charllm.measure.recording import Recording, Series
from charllm.measure.telemetry.source import GpuIdentity, SourceFacts
from tests.measure.replays import CAPTURE


def recorded(*settling_s: float, length_s: float = 100.0) -> Recording:
    """GPUs that warm up by 30 K, each for its own time."""
    times = np.arange(0.0, length_s, 0.1)
    gpus = tuple(GpuIdentity(f"GPU-{number}", "h200", number) for number in range(len(settling_s)))
    series = {
        gpu: {"fast": Series(times, times, times, {"temperature_c": 60.0 - 30.0 * np.clip(1 - times / end_s, 0, 1)})}
        for gpu, end_s in enumerate(settling_s)
    }
    return Recording(SourceFacts("test", gpus), series)


def marked(*ends_s: int) -> dict[str, list[Mark]]:
    return {"0": [Mark(float(end_s), "step", "", "") for end_s in ends_s]}


def test_the_window_begins_with_the_first_step_after_the_last_gpu_has_settled() -> None:
    steps = marked(*range(0, 100, 5))
    chosen = choose_window(Measured(recorded(10.0, 42.0), steps, 0.0, 100.0))
    assert chosen.settled
    assert 40.0 <= chosen.start_s <= 50.0
    assert chosen.start_s % 5 == 0
    assert chosen.end_s == 95.0
    assert len(chosen.steps) == (chosen.end_s - chosen.start_s) / 5


def test_of_a_run_that_never_settles_the_second_half_is_described() -> None:
    chosen = choose_window(Measured(recorded(10.0, 200.0), {}, 0.0, 100.0))
    assert (chosen.settled, chosen.start_s, chosen.end_s) == (False, 50.0, 100.0)


def test_the_figures_of_a_run_and_its_doctor_describe_the_same_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Chosen] = []

    def note(measured: Measured) -> Chosen:
        asked.append(found := choose_window(measured))
        return found

    for module in (summary, doctor):
        monkeypatch.setattr(module, "choose_window", note)
    for file in CAPTURE.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    result = finish_record(tmp_path)
    doctor.observe_measured(result, tmp_path)
    figures, examined = asked
    assert figures == examined == choose_window(read_measured(tmp_path))
    assert result.provenance["measurement"]["window_s"] == figures.end_s - figures.start_s
