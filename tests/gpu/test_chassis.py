from dataclasses import replace

import numpy as np
import pytest

from charllm.catalog.resolve import resolve_cluster
from charllm.gpu.chassis import fan_power_w, node_power_w
from charllm.spec.cooling import Cooling

NODE = resolve_cluster("h100x8").node
GPUS = np.full(8, 690.0)


def test_a_node_draws_its_gpus_and_its_overhead() -> None:
    bath = Cooling(kind="immersion")
    assert node_power_w(GPUS, NODE, bath) == pytest.approx(8 * 690 + NODE.overhead_w)


def test_fans_turn_only_in_air_and_cost_the_cube_of_their_speed() -> None:
    assert fan_power_w(NODE, Cooling(kind="liquid")) == 0
    assert fan_power_w(NODE, Cooling(flow_fraction=2.0)) == pytest.approx(8 * fan_power_w(NODE, Cooling()))


def test_the_wall_sees_what_supplies_lose() -> None:
    inside, wall = (node_power_w(GPUS, NODE, Cooling(read_at=side)) for side in ("dc", "wall"))
    assert inside / wall == pytest.approx(NODE.supply_fraction)


def test_eight_h100_in_air_draw_eight_kilowatts() -> None:
    # 8.16 kW in air against 6.99 kW under cold plates (arXiv:2507.16781); 8.4 kW at most (arXiv:2412.08602).
    assert node_power_w(GPUS, NODE, Cooling()) == pytest.approx(8160, rel=0.05)
    assert node_power_w(GPUS, NODE, Cooling(kind="liquid")) == pytest.approx(6990, rel=0.05)


def test_many_nodes_are_summed_each() -> None:
    power = np.stack([GPUS, GPUS / 2])
    assert node_power_w(power, replace(NODE, overhead_w=0.0, fan_w=0.0), Cooling()).tolist() == [5520.0, 2760.0]
