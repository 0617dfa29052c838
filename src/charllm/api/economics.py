"""Prices and settings of a whole run, from tables of keywords."""

from collections.abc import Mapping
from typing import Any

from charllm.plan.metrics import Economics
from charllm.plan.money import Tariff
from charllm.plan.whole_run import WholeRun
from charllm.spec.fields import read
from charllm.spec.request import parse_value


def build_economics(tariff: Mapping[str, Any] | None = None, whole_run: Mapping[str, Any] | None = None) -> Economics:
    """Return economics from tables such as ``{"pue": 1.3}`` and ``{"tokens": 15e12}``; the rest by default."""
    whole = read(WholeRun, _values(whole_run), "whole_run") if whole_run else None
    return Economics(tariff=read(Tariff, _values(tariff), "tariff"), whole_run=whole)


def _values(table: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a table with the numbers that its texts hold."""
    return {name: parse_value(value) if isinstance(value, str) else value for name, value in (table or {}).items()}
