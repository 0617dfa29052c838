"""The table of constants lists every fitted constant once, and the others with how they are known."""

import pytest

from charllm.evaluate.constants import MODULES, Gain, constants_in_view, describe_module, render_gains
from charllm.evaluate.fit import CONSTANTS
from charllm.spec.grades import HOST_GRADES
from charllm.workload.expert_launches import MAP_KERNELS, ROUTER_KERNELS


def test_every_fitted_constant_has_a_row_with_its_gain() -> None:
    gains = [Gain(constant, 2 * constant.prior, 8, 0.04, 0.055) for constant in CONSTANTS]
    rows = render_gains(gains).splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == [constant.name for constant in CONSTANTS]
    assert all(row.endswith("| 8 | 4.0 % | 5.5 % | +1.5 |") for row in rows)


def test_a_constant_that_moves_no_row_has_no_gain() -> None:
    assert render_gains([Gain(CONSTANTS[0], 1.0, 0, None, None)]).endswith("| 0 | - | - | - |")


@pytest.mark.parametrize("module", MODULES)
def test_other_constants_say_how_they_are_known_and_are_not_fitted(module: str) -> None:
    found = describe_module(module)
    fitted = {constant.name.split(".")[1] for constant in CONSTANTS}
    assert found
    assert fitted.isdisjoint(one.name for one in found)
    assert all(one.value and one.origin in one.text.lower() for one in found)


def test_a_tuple_of_constants_is_one_row() -> None:
    (counted,) = [one for one in describe_module("charllm.workload.expert_launches") if "ROUTER" in one.name]
    assert (counted.name, counted.value) == ("ROUTER_KERNELS, MAP_KERNELS", f"{ROUTER_KERNELS}, {MAP_KERNELS}")


def test_figures_set_with_scored_runs_in_view_are_listed_with_the_value_in_use() -> None:
    found = {one.name: one.value for one in constants_in_view()}
    assert found["usual hosts"] == HOST_GRADES["usual"]
    assert found["matrix_fraction, mi250"] * found["library_fraction, mi250"] == pytest.approx(0.54, abs=0.01)
    assert all(one.text for one in constants_in_view())
