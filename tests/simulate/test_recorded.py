"""The timeline of a step as it was simulated: passes, labels and the critical path."""

from typing import Any

import numpy as np
import pytest

from charllm.simulate.recorded import CLOCK, END, START, WAIT, critical_path, stage_events
from charllm.spec.request import merge
from tests.simulate.runs import GPT3, REPLICAS, Done, ran, under
from tests.simulate.test_energy_and_heat import SLICED

INTERLEAVED = merge(REPLICAS, {"parallelism": {"vpp": 2, "overlap": ["pp"]}})
BASES = {"one replica": GPT3, "replicas": REPLICAS, "experts": SLICED["experts"], "interleaved": INTERLEAVED}
CASES: dict[str, dict[str, Any]] = {
    "as delivered": {},
    "a low cap": under(power_cap_w=400.0),
    "one braked node": under(braked_nodes=[1]),
    "spread": under(silicon_spread_fraction=0.05),
}
ROUNDING_S = 1e-9


def passes_of(found: Done, stage: int) -> Any:
    """Return the recorded passes of a stage, in the order in which it works through them."""
    return found.simulated_step.passes[found.machine.turns[:, 0] == stage]


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("case", CASES)
def test_the_labels_of_every_stage_add_up_to_the_step(case: str, base: str) -> None:
    found = ran(CASES[case], BASES[base])
    assert found.whole.timed is not None
    assert len(found.whole.timed.stages) == found.machine.run.parallelism.pp
    for labels in found.whole.timed.stages:
        assert sum(labels.values()) == pytest.approx(found.metrics["step_time_s"], rel=1e-9)
        assert min(labels.values()) >= -ROUNDING_S


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("case", CASES)
def test_passes_of_a_gpu_never_overlap(case: str, base: str) -> None:
    found = ran(CASES[case], BASES[base])
    for stage in range(found.machine.run.parallelism.pp):
        passes = passes_of(found, stage)
        assert np.all(passes[:, :, END] > passes[:, :, START])
        assert np.all(passes[1:, :, START] >= passes[:-1, :, END] - ROUNDING_S)
        assert np.all(passes[:, :, WAIT] >= -ROUNDING_S)
        assert np.all(passes[:, :, WAIT] <= passes[:, :, END] - passes[:, :, START] + ROUNDING_S)
    assert found.simulated_step.passes[:, :, END].max() <= found.simulated_step.step_time_s * (1 + 0.01)


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("case", CASES)
def test_a_pass_never_begins_before_its_input_is_there(case: str, base: str) -> None:
    found = ran(CASES[case], BASES[base])
    passes, turns = found.simulated_step.passes, found.machine.turns
    needing = np.flatnonzero(turns[:, 2] >= 0)
    assert len(needing)
    arrived_s = passes[turns[needing, 2], :, END] + found.machine.moved_s[needing]
    assert np.all(passes[needing, :, START] >= arrived_s - ROUNDING_S)


@pytest.mark.parametrize("node", range(4))
def test_a_braked_node_is_named_first_on_the_critical_path(node: int) -> None:
    found = ran(under(braked_nodes=[node]))
    path = found.metrics["critical_path"]
    assert path[0]["node"] == node
    # Each stage of this run is a node of its own.
    assert path[0]["stage"] == node
    assert [part["seconds"] for part in path] == sorted((part["seconds"] for part in path), reverse=True)
    assert path[0]["seconds"] > 0.5 * sum(part["seconds"] for part in path)


def test_a_braked_node_is_named_among_replicas_too() -> None:
    found = ran(under(braked_nodes=[3]), REPLICAS)
    assert found.metrics["critical_path"][0]["node"] == 3


@pytest.mark.parametrize("base", BASES)
def test_the_critical_path_ends_with_the_last_pass(base: str) -> None:
    found = ran(base=BASES[base])
    path = critical_path(found.machine, found.simulated_step)
    last_s = found.simulated_step.passes[:, :, END].max()
    on_path_s = sum(part.seconds for part in path.parts) + path.transfer_s
    assert on_path_s == pytest.approx(last_s, rel=0.02)
    assert path.passes >= found.machine.run.parallelism.pp
    assert path.crossings >= found.machine.run.parallelism.pp - 1


def test_braked_gpus_are_recorded_at_the_clock_that_the_brake_leaves() -> None:
    found = ran(under(braked_nodes=[2], brake_clock_hz=8e8))
    for stage in range(4):
        clocks = passes_of(found, stage)[:, :, CLOCK]
        assert np.all(clocks <= 8e8 * (1 + 1e-9)) == (stage == 2)


def test_folded_replicas_have_the_passes_of_unfolded_ones() -> None:
    # A spread too small to matter unfolds every replica.
    folded, whole = ran(base=REPLICAS), ran(under(silicon_spread_fraction=1e-12), REPLICAS)
    assert folded.simulated_step.passes.shape[1] < whole.simulated_step.passes.shape[1]
    assert whole.simulated_step.passes.shape[1] == 16
    representative = folded.machine.fold.representative
    for position in range(16):
        one = folded.simulated_step.passes[:, representative[position]]
        other = whole.simulated_step.passes[:, position]
        assert one[:, [START, END]] == pytest.approx(other[:, [START, END]], rel=1e-6, abs=1e-6)
        assert one[:, CLOCK] == pytest.approx(other[:, CLOCK], rel=1e-6)


@pytest.mark.parametrize("base", BASES)
def test_stages_are_drawn_as_they_were_recorded(base: str) -> None:
    found = ran(base=BASES[base])
    timed = found.whole.timed
    assert timed is not None
    events = stage_events(found.machine, timed, found.simulated_step, position=0)
    for stage in range(found.machine.run.parallelism.pp):
        passes = passes_of(found, stage)[:, 0]
        assert events.start_s[stage] == pytest.approx(passes[:, START])
        assert events.end_s[stage] == pytest.approx(passes[:, END])
        assert np.all(events.arrival_s[stage] <= events.start_s[stage] + ROUNDING_S)
