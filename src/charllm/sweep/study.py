"""A study: groups of axes over a common request, unfolded into named cases.

    about = "what it asks"
    request = { cluster = "h200x32" }                      # common to all cases
    [[groups]]
    axes.strategy = { "tp8" = { parallelism = { tp = 8 } }, "tp4" = { parallelism = { tp = 4 } } }
    axes.mbs = { field = "training.micro_batch_size", values = [1, 2, 4, 8] }

Each group is the product of its axes; a case is named by its labels.
"""

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from charllm.catalog.tables import find
from charllm.errors import SpecError
from charllm.spec.request import Table, merge, read_toml

MAX_CASES = 1_000_000
KEYS = ("about", "corrections", "request", "groups", "name")


class Case(NamedTuple):
    """One run of a study."""

    name: str
    request: Table


class Study(NamedTuple):
    """A named set of cases."""

    name: str
    about: str
    corrections: tuple[str, ...]
    """What differs from the source it was taken from, and why."""
    cases: tuple[Case, ...]


def load_study(asked: str) -> Study:
    """Return a study by its name in the catalog, or from a TOML file."""
    if asked.endswith(".toml"):
        return unfold(Path(asked).stem, read_toml(asked, "STUDY"))
    entry = find("studies", asked, "STUDY")
    return unfold(entry.name, dict(entry.values))


def unfold(name: str, table: Mapping[str, Any]) -> Study:
    """Unfold a study table into its cases."""
    for key in table:
        if key not in KEYS:
            raise SpecError(f"STUDY.{key}", key, ", ".join(KEYS))
    common = _table(table.get("request", {}), "STUDY.request")
    groups = table.get("groups", [])
    if not isinstance(groups, list) or not groups:
        raise SpecError("STUDY.groups", groups, "at least one group of axes")
    cases = [case for group in groups for case in _unfold_group(common, _table(group, "STUDY.groups"))]
    corrections = table.get("corrections", [])
    return Study(name, str(table.get("about", "")), tuple(map(str, corrections)), tuple(cases))


def _unfold_group(common: Table, group: Table) -> list[Case]:
    request = merge(common, _table(group.get("request", {}), "STUDY.groups.request"))
    axes = [_labelled(name, axis) for name, axis in _table(group.get("axes", {}), "STUDY.groups.axes").items()]
    size = 1
    for axis in axes:
        size *= len(axis)
    if size > MAX_CASES:
        raise SpecError("STUDY.groups.axes", f"{size} cases", f"at most {MAX_CASES}")
    cases = []
    for choices in product(*axes):
        merged = request
        for _label, change in choices:
            merged = merge(merged, change)
        cases.append(Case(" / ".join(label for label, _change in choices) or "only", merged))
    return cases


def _labelled(name: str, axis: Any) -> list[tuple[str, Table]]:
    """Read an axis as (label, change) pairs: one field over values, or a table of labelled changes."""
    table = _table(axis, f"STUDY.groups.axes.{name}")
    if set(table) == {"field", "values"} and isinstance(table["values"], list):
        return [(f"{name} {value}", _nest(str(table["field"]), value)) for value in table["values"]]
    return [(label, _table(change, f"STUDY.groups.axes.{name}.{label}")) for label, change in table.items()]


def _nest(path: str, value: Any) -> Table:
    for key in reversed(path.split(".")):
        value = {key: value}
    nested: Table = value
    return nested


def _table(value: Any, field: str) -> Table:
    if not isinstance(value, Mapping):
        raise SpecError(field, value, "a table")
    return dict(value)
