"""Prices and settings of a whole run, from tables of keywords."""

from collections.abc import Mapping
from typing import Any

from charllm.plan.metrics import Economics
from charllm.plan.money import Tariff
from charllm.plan.whole_run import WholeRun
from charllm.spec.fields import read


def build_economics(tariff: Mapping[str, Any] | None = None, whole_run: Mapping[str, Any] | None = None) -> Economics:
    """Return economics from tables such as ``{"pue": 1.3}`` and ``{"tokens": 15e12}``; the rest by default."""
    whole = None if whole_run is None else read(WholeRun, dict(whole_run), "whole_run")
    return Economics(tariff=read(Tariff, dict(tariff or {}), "tariff"), whole_run=whole)
