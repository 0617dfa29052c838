"""Limits shifted within a node, by hand: a budget of 1,000 W over GPUs whose speeds are told at a few limits."""

from typing import Any

import numpy as np
import pytest

from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.plan.cap_shift import (
    CapTable,
    best_rate,
    corrected,
    halfway,
    lower_hull,
    node_budget_w,
    packages_of,
    present_caps_w,
    slowness_at,
    tabulate_caps,
    uniform_caps,
    with_cap,
    with_caps,
)
from charllm.spec.run import RunSpec

LIMITS_W = np.array([400.0, 500.0, 600.0])
# GPU 0 gains from watts, GPU 1 does not.
TABLE = CapTable(LIMITS_W, np.array([[1.25, 1.0], [1.0, 1.0], [0.8, 1.0]]), 1000.0)


def run(cluster: str = "h200x8", **conditions: Any) -> RunSpec:
    return resolve_run({"model": "llama3-8b", "cluster": cluster, "conditions": conditions})


def test_a_package_has_one_limit() -> None:
    assert packages_of(run()) == 8
    assert packages_of(run("mi250x8")) == 4


def test_a_budget_is_the_sum_of_the_limits_of_the_poorest_node() -> None:
    assert node_budget_w(run()) == 8 * 700.0
    assert (
        node_budget_w(run("charllm-ppt-h200", capped_gpus=[9, 10], capped_power_w=[500.0, 600.0])) == 8 * 700.0 - 300.0
    )
    assert node_budget_w(run("mi250x8", power_cap_w=500.0)) == 4 * 500.0


def test_a_budget_is_shared_evenly_between_packages_and_refused_where_no_limit_can_keep_it() -> None:
    assert (present_caps_w(uniform_caps(run(), 4000.0)) == 500.0).all()
    assert (present_caps_w(uniform_caps(run("mi250x8"), 1800.0)) == 450.0).all()
    assert uniform_caps(run(), None) == run()
    gpu = run().cluster.gpu
    for packages_w in (gpu.power_cap_w + 1, gpu.power_cap_min_w - 1):
        with pytest.raises(SpecError, match="node-budget"):
            uniform_caps(run(), 8 * packages_w)
    for packages_w in (gpu.power_cap_w, gpu.power_cap_min_w):
        assert node_budget_w(uniform_caps(run(), 8 * packages_w)) == 8 * packages_w


def test_limits_are_tried_in_whole_steps_up_to_a_quarter_around_the_mean() -> None:
    # 480 W: 360 to 600 W; 640 W: 480 W to the highest, 700 W.
    for mean_w, limits_w in ((480.0, [360, 420, 480, 540, 600]), (640.0, [480, 535, 590, 645, 700])):
        table = tabulate_caps(with_cap(run(), mean_w), lambda one: 1000 / present_caps_w(one))
        assert table.caps_w.tolist() == pytest.approx(limits_w, abs=5.0)
        assert (table.caps_w % 5 == 0).all()
        assert (table.caps_w[0], table.caps_w[-1]) == (limits_w[0], limits_w[-1])
        assert table.slowness[:, 3] == pytest.approx(1000 / table.caps_w)
        assert table.budget_w == 8 * mean_w


def test_slowness_is_interpolated_between_limits_and_corrected_upwards_only() -> None:
    assert slowness_at(TABLE, [450.0, 450.0]) == pytest.approx([1.125, 1.0])
    seen = corrected(TABLE, [500.0, 500.0], np.array([1.1, 0.9]))
    assert seen.slowness == pytest.approx(TABLE.slowness * [1.1, 1.0])
    assert corrected(TABLE, [], np.array([])) is TABLE


def test_the_lower_hull_of_a_convex_curve_is_its_pieces_and_leaves_out_what_lies_above() -> None:
    # From (400, 1.25) over (500, 1) to (600, 0.8).
    lines = np.array(lower_hull(LIMITS_W, TABLE.slowness[:, 0]))
    assert lines == pytest.approx(np.array([[-0.0025, 2.25], [-0.002, 2.0]]))
    assert np.array(lower_hull(LIMITS_W, np.array([1.2, 1.15, 0.8]))) == pytest.approx(np.array([[-0.002, 2.0]]))
    assert lower_hull(np.array([500.0]), np.array([1.5])) == [(0.0, 1.5)]
    # Of two values at one limit the lower counts.
    assert lower_hull(np.array([400.0, 400.0, 600.0]), np.array([1.4, 1.2, 1.0]))[0][0] == pytest.approx(-0.001)


def test_a_budget_is_spent_where_it_gains_most() -> None:
    # GPU 0 with 600 W does 1 / 0.8 = 1.25, GPU 1 with the 400 W that are left does 1.
    assert best_rate(TABLE, [[0], [1]], 1) == pytest.approx(2.25, rel=0.01)
    # With 900 W GPU 0 has 500 W: on the line from 0.8 at 400 W to 1.25 at 600 W, which bounds it, that is 1.025.
    assert best_rate(TABLE._replace(budget_w=900.0), [[0], [1]], 1) == pytest.approx(2.025, rel=0.005)
    # Both in one group: each needs what the slower needs; GPU 1 is never faster than 1, for which GPU 0 needs 500 W.
    assert best_rate(TABLE, [[0, 1]], 1) == pytest.approx(1.0, rel=0.01)
    # Both in one package, whose one limit is all of the budget.
    assert best_rate(TABLE._replace(budget_w=500.0), [[0], [1]], 2) >= 2.0


def test_halfway_is_the_mean_of_both_limits_in_whole_steps() -> None:
    before, after = with_cap(run(), 500.0), with_caps(run(), np.array([600.0, 432.0] + [500.0] * 6))
    assert present_caps_w(halfway(before, after)).tolist() == [550.0, 465.0] + [500.0] * 6
