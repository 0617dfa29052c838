"""Marked steps and phases of a measured run, as tables of its result."""

from pathlib import Path

import pytest

from charllm.measure.marked import tabulate_marks
from charllm.measure.marks import Mark
from charllm.measure.recording import read_recording
from charllm.profile import PHASE
from tests.measure.replayed import CAPTURE

RECORDING = read_recording(Path(CAPTURE))
FIRST_S = min(float(RECORDING.fast(gpu).times_s[0]) for gpu in RECORDING.series)
SPANS = {"forward": [(0.1, 0.4), (1.2, 1.4), (1.6, 1.9)], "late": [(2.6, 2.7)], PHASE: [(0.0, 2.0)]}


def marks(steps: int) -> list[Mark]:
    """Mark steps of a second each, with phases inside."""
    found = [Mark(FIRST_S + at, "step", str(at), "") for at in range(steps + 1)]
    for name, spans in SPANS.items():
        for begin_s, end_s in spans:
            found += [Mark(FIRST_S + begin_s, "begin", name, ""), Mark(FIRST_S + end_s, "end", name, "")]
    return sorted(found)


def test_steps_are_those_of_the_process_that_marked_most_since_the_first_reading() -> None:
    found = tabulate_marks(RECORDING, {"0": marks(1), "1": marks(2)})
    assert found["steps"]["start_s"] == pytest.approx([0.0, 1.0])
    assert found["steps"]["end_s"] == pytest.approx([1.0, 2.0])


def test_a_phase_has_its_median_over_steps_and_belongs_to_the_step_it_ends_in() -> None:
    phases = tabulate_marks(RECORDING, {"0": marks(2)})["phases"]
    found = dict(zip(phases["phase"], phases["seconds"], strict=True))
    assert found == {"forward": pytest.approx((0.3 + 0.5) / 2), "late": 0.0}


def test_a_run_without_marked_steps_has_no_such_tables() -> None:
    assert tabulate_marks(RECORDING, {"0": marks(0)}) == {}
    assert tabulate_marks(RECORDING, {}) == {}
