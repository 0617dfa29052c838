"""Doctor names an injected culprit and accuses nobody in healthy runs: a few trials of benchmarks/doctor_trials.py."""

import pytest

from benchmarks.doctor_trials import DEVELOPED, KINDS, describe, judge, make_trial

SEEDS = (0, 1, 2, 3, 5)


@pytest.mark.parametrize("kind", KINDS)
def test_doctor_is_right(kind: str) -> None:
    trials = [make_trial(kind, DEVELOPED[seed % 3], seed) for seed in SEEDS]
    wrong = [describe(trial) for trial in trials if trial is not None and judge(trial) != "right"]
    assert sum(trial is not None for trial in trials) >= 4
    assert not wrong
