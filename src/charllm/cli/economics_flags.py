"""--tariff and --whole-run: prices, and settings of a run of many steps, as NAME=VALUE."""

import argparse
from typing import Any

from charllm.errors import SpecError
from charllm.spec.fields import rules
from charllm.spec.request import parse_value


def add_tariff_flag(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add --tariff, with the names of its settings."""
    from charllm.plan.money import Tariff

    names = ", ".join(rules(Tariff))
    parser.add_argument(
        "--tariff", action="append", default=[], metavar="NAME=VALUE", help=f"a price, one of {names}; may be repeated"
    )


def read_pairs(entries: list[str], flag: str) -> dict[str, Any] | None:
    """Return settings that were given as NAME=VALUE; None without any."""
    pairs = [entry.partition("=") for entry in entries]
    for entry, (name, equals, _value) in zip(entries, pairs, strict=True):
        if not equals or not name:
            raise SpecError(flag, entry, "NAME=VALUE")
    return {name: parse_value(value) for name, _equals, value in pairs} or None
