"""Condition maps: which settings each kind of finding is judged under."""

import pytest

from charllm.reproduce.conditions import Setting
from charllm.reproduce.findings import FINDINGS
from charllm.reproduce.maps import ConditionMap, cooling_map, map_of, network_map


@pytest.mark.parametrize("asked", [cooling_map(), network_map()], ids=["cooling", "network"])
def test_a_map_has_each_setting_once_and_the_nominal_one(asked: ConditionMap) -> None:
    assert len(set(asked.settings)) == len(asked.settings)
    assert Setting() in asked.settings
    assert len({len(row) for row in asked.grid.values()}) == 1


def test_thermal_findings_are_mapped_over_cooling_and_others_over_the_network() -> None:
    assert map_of(FINDINGS["rear-front"]()) is cooling_map()
    assert map_of(FINDINGS["scale-up"]()) is network_map()
