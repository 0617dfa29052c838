"""The chain of passes that a step waits for."""

import itertools
from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.spec.request import merge
from charllm.timeline.critical_path import Link, critical_path, share_path
from charllm.timeline.schedules import BACKWARD, FORWARD
from charllm.timeline.step_time import StepTime, time_step
from charllm.workload.step import Step, build_step

BASE = {
    "model": "gpt3-175b",
    "cluster": "h200x32",
    "parallelism": {"tp": 8, "pp": 4},
    "training": {"global_batch_size": 16},
}
SCHEDULES: dict[str, dict[str, Any]] = {
    "1f1b": {},
    "gpipe": {"parallelism": {"schedule": "gpipe"}},
    "interleaved": {"parallelism": {"vpp": 3}},
    "zero-bubble": {"parallelism": {"schedule": "zero-bubble"}},
    "overlapped": {"parallelism": {"overlap": ["pp"]}},
}


def path_of(changes: dict[str, Any]) -> tuple[Step, StepTime, list[Link]]:
    step = build_step(resolve_run(merge(BASE, changes)))
    timed = time_step(step)
    return step, timed, critical_path(step, timed)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_path_is_a_chain_from_the_first_pass_to_the_last(name: str) -> None:
    _, timed, links = path_of(SCHEDULES[name])
    assert (links[0].stage, links[0].kind, links[0].chunk, links[0].start_s) == (0, FORWARD, 0, 0.0)
    assert links[-1].end_s == pytest.approx(float(timed.events.end_s[:, -1].max()), rel=0.02)
    for before, after in itertools.pairwise(links):
        assert after.start_s - before.end_s == pytest.approx(after.gap_s, abs=1e-12)
        assert after.gap_s >= -1e-12


@pytest.mark.parametrize("name", SCHEDULES)
def test_passes_and_transfers_of_a_path_add_up_to_its_length(name: str) -> None:
    _, _, links = path_of(SCHEDULES[name])
    share = share_path(links)
    assert sum(share.stage_s.values()) + share.transfer_s == pytest.approx(links[-1].end_s, rel=1e-9)
    assert share.crossings == sum(after.stage != before.stage for before, after in itertools.pairwise(links))


def test_a_path_reaches_every_stage_of_a_pipeline_and_comes_back() -> None:
    _, _, links = path_of({})
    assert set(share_path(links).stage_s) == {0, 1, 2, 3}
    assert links[-1].kind == BACKWARD
    assert links[-1].stage == 0


def test_the_longest_stage_has_most_of_the_path() -> None:
    uneven = {"parallelism": {"layers_per_stage": [20, 36, 20, 20]}, "training": {"global_batch_size": 64}}
    _, _, links = path_of(uneven)
    stage_s = share_path(links).stage_s
    assert max(stage_s, key=lambda stage: stage_s[stage]) == 1
    assert stage_s[1] > 0.8 * sum(stage_s.values())
