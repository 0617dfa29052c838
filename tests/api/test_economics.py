"""Prices and whole runs from tables: what is given is taken, the rest is that of the declarations."""

import pytest

from charllm.api.economics import build_economics
from charllm.errors import SpecError
from charllm.plan.money import Tariff
from charllm.plan.whole_run import WholeRun


def test_nothing_given_is_the_usual_tariff_and_no_whole_run() -> None:
    found = build_economics()
    assert (found.tariff, found.whole_run) == (Tariff(), None)


def test_what_is_given_is_taken() -> None:
    found = build_economics({"pue": 1.3, "demand_per_kw_month": 15.0}, {"tokens": 15e12, "restart_s": 60.0})
    assert found.tariff == Tariff(pue=1.3, demand_per_kw_month=15.0)
    assert found.whole_run == WholeRun(tokens=15e12, restart_s=60.0)


@pytest.mark.parametrize(("tariff", "whole"), [({"pue": 0.9}, None), ({"watts": 1}, None), ({}, {"token": 1})])
def test_what_is_no_price_is_refused(tariff: dict[str, float], whole: dict[str, float] | None) -> None:
    with pytest.raises(SpecError):
        build_economics(tariff, whole)
