"""Kernels that overlap become states that follow one another; a traced step can be laid over another."""

import numpy as np
import pytest

from charllm.trace.states import IDLE, States, cut, follow, join, part_rests, stretch


def test_compute_wins_over_a_collective_and_what_began_first_over_its_like() -> None:
    start, end = np.array([0.0, 1.0, 2.0]), np.array([2.0, 4.0, 3.0])
    states = follow(start, end, np.array([0, 1, 0], np.int32), np.array([0, 1], np.int32))
    spent = states.seconds_in(np.array([0.0]), np.array([5.0]), 2)
    assert spent[0].tolist() == [3.0, 1.0, 0.0]
    assert states.seconds_in(np.array([0.5]), np.array([1.5]), 2)[0].tolist() == [1.0, 0.0, 0.0]


def test_a_window_outside_what_is_known_is_rest() -> None:
    states = follow(np.array([1.0]), np.array([2.0]), np.array([0], np.int32), np.array([0], np.int32))
    assert cut(states, 0.0, 3.0).state.tolist() == [IDLE, 0, IDLE]
    assert join([]).state.tolist() == []


def test_rests_give_way_before_work_does() -> None:
    step = States(np.array([0.0, 0.6, 1.0]), np.array([0, IDLE], np.int32))
    longer, factor = stretch(step, 10.0, 11.2)
    assert factor == pytest.approx(1.0)
    assert longer.edges_s.tolist() == pytest.approx([10.0, 10.6, 11.2])
    _, factor = stretch(step, 0.0, 0.4)
    assert factor == pytest.approx(0.5)


def test_the_first_part_of_a_rest_is_told_from_the_rest_of_it() -> None:
    states = States(np.array([0.0, 1.0, 1.5, 5.0, 6.0, 6.2, 7.0]), np.array([0, IDLE, IDLE, 1, IDLE, 0], np.int32))
    found = part_rests(states, 2, 1.0)
    assert found.edges_s.tolist() == [0.0, 1.0, 1.5, 2.0, 5.0, 6.0, 6.2, 7.0]
    assert found.state.tolist() == [0, 2, 2, IDLE, 1, 2, 0]
    spent = found.seconds_in(np.array([0.0]), np.array([7.0]), 3)
    assert spent.sum() == 7.0
