"""A study: groups of axes over a common request, unfolded into named cases.

    about = "what it asks"
    request = { cluster = "h200x32" }                      # common to all cases
    [[groups]]
    axes.strategy = { "tp8" = { parallelism = { tp = 8 } }, "tp4" = { parallelism = { tp = 4 } } }
    axes.mbs = { field = "training.micro_batch_size", values = [1, 2, 4, 8] }

Each group is the product of its axes; a case is named by its labels. What the axes change is `swept`: columns of the
study's table, named as the fields are (``parallelism.tp``), and the label of each axis of labelled changes.
"""

import json
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from charllm.catalog.tables import find
from charllm.errors import SpecError
from charllm.result.metrics import METRICS
from charllm.spec.request import Table, merge, nest, read_toml

MAX_CASES = 1_000_000
KEYS = ("about", "corrections", "request", "groups", "name")
TAKEN = ("case", "exit_code", "message", *METRICS)
"""Columns that every table of cases has; an axis of such a name is called `axis NAME`."""


class Case(NamedTuple):
    """One run of a study."""

    name: str
    request: Table
    swept: dict[str, Any]
    """Label of each axis, and value of each field that the study varies; None where this case leaves it open."""


class Study(NamedTuple):
    """A named set of cases."""

    name: str
    about: str
    corrections: tuple[str, ...]
    """What differs from the source it was taken from, and why."""
    cases: tuple[Case, ...]
    table: Table
    """What it was unfolded from."""

    @property
    def swept(self) -> tuple[str, ...]:
        """Names of the axes and fields that the study varies."""
        return tuple(self.cases[0].swept)


def load_study(asked: str) -> Study:
    """Return a study by its name in the catalog, or from a TOML file."""
    if asked.endswith(".toml"):
        return unfold(Path(asked).stem, read_toml(asked, "STUDY"))
    entry = find("studies", asked, "STUDY")
    return unfold(entry.name, dict(entry.values))


def unfold(name: str, table: Mapping[str, Any]) -> Study:
    """Unfold a study table into its cases."""
    # As JSON, so that a study read back from its folder, or a case sent to a worker, is the very same.
    plain: Table = json.loads(json.dumps(table, default=str))
    for key in plain:
        if key not in KEYS:
            raise SpecError(f"STUDY.{key}", key, ", ".join(KEYS))
    common = _table(plain.get("request", {}), "STUDY.request")
    groups = plain.get("groups", [])
    if not isinstance(groups, list) or not groups:
        raise SpecError("STUDY.groups", groups, "at least one group of axes")
    cases = [case for group in groups for case in _unfold_group(common, _table(group, "STUDY.groups"))]
    if not cases:
        raise SpecError("STUDY.groups.axes", "an axis without values", "at least one value on each axis")
    if len(cases) > MAX_CASES:
        raise SpecError("STUDY.groups", f"{len(cases)} cases", f"at most {MAX_CASES}")
    corrections = plain.get("corrections", [])
    if not isinstance(corrections, list):
        raise SpecError("STUDY.corrections", corrections, "a list of texts")
    about = str(plain.get("about", ""))
    return Study(name, about, tuple(map(str, corrections)), tuple(_complete(cases)), plain)


def _complete(cases: list[Case]) -> list[Case]:
    """Give every case a value for all that the study varies; what its group leaves open is None until it has run."""
    names = dict.fromkeys(name for case in cases for name in case.swept)
    return [
        case._replace(swept={name: case.swept.get(name, find_setting(case.request, name)) for name in names})
        for case in cases
    ]


class _Choice(NamedTuple):
    """One value of an axis."""

    label: str
    change: Table
    columns: dict[str, Any]


def _unfold_group(common: Table, group: Table) -> list[Case]:
    request = merge(common, _table(group.get("request", {}), "STUDY.groups.request"))
    axes = [_choices(name, axis) for name, axis in _table(group.get("axes", {}), "STUDY.groups.axes").items()]
    size = 1
    for axis in axes:
        size *= len(axis)
    if size > MAX_CASES:
        raise SpecError("STUDY.groups.axes", f"{size} cases", f"at most {MAX_CASES}")
    cases = []
    for choices in product(*axes):
        merged = request
        for choice in choices:
            merged = merge(merged, choice.change)
        columns = {name: value for choice in choices for name, value in choice.columns.items()}
        cases.append(Case(" / ".join(choice.label for choice in choices) or "only", merged, columns))
    return cases


def _choices(name: str, axis: Any) -> list[_Choice]:
    """Read an axis: one field over values, or a table of labelled changes."""
    table = _table(axis, f"STUDY.groups.axes.{name}")
    if set(table) == {"field", "values"} and isinstance(table["values"], list):
        changes = [nest(str(table["field"]), value) for value in table["values"]]
        labels = [f"{name} {value}" for value in table["values"]]
        return [_Choice(label, change, list_settings(change)) for label, change in zip(labels, changes, strict=True)]
    labelled = {label: _table(change, f"STUDY.groups.axes.{name}.{label}") for label, change in table.items()}
    column = f"axis {name}" if name in TAKEN else name
    return [_Choice(label, change, {column: label, **list_settings(change)}) for label, change in labelled.items()]


def list_settings(change: Table, prefix: str = "") -> dict[str, Any]:
    """Return the fields that a change sets, by dotted name in SI; a base is the name of what it is the base of."""
    found: dict[str, Any] = {}
    for key, value in merge({}, change).items():
        if isinstance(value, Mapping):
            found.update(list_settings(dict(value), f"{prefix}{key}."))
        else:
            found[f"{prefix}{key}".removesuffix(".base")] = value
    return found


def find_setting(table: Mapping[str, Any], name: str) -> Any:
    """Return the value of a dotted field in a request or a spec; of a table, its name; None where there is none."""
    value: Any = table
    for key in name.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value.get("name", value.get("base")) if isinstance(value, Mapping) else value


def _table(value: Any, field: str) -> Table:
    if not isinstance(value, Mapping):
        raise SpecError(field, value, "a table")
    return dict(value)
