"""Groups of axes: the product of their values, each point of which is one case, built when it is asked for."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from charllm.catalog.resolve import NOTES
from charllm.errors import unknown_name
from charllm.result.metrics import METRICS
from charllm.spec.fields import check_path
from charllm.spec.request import Table, as_table, dotted_fields, merge, nest
from charllm.spec.run import RunSpec
from charllm.sweep.constraints import Constraint, read_constraints

KEYS = ("request", "axes", "where")
TAKEN = ("case", "exit_code", "message", *METRICS)
"""Columns that every table of cases has; an axis of such a name is called `axis NAME`."""


class Case(NamedTuple):
    """One run of a study."""

    name: str
    request: Table
    swept: dict[str, Any]
    """Label of each axis, and value of each field that the study varies; None where this case leaves it open."""


class Choice(NamedTuple):
    """One value of an axis."""

    label: str
    change: Table
    columns: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Group:
    """The product of axes over a request, of which the cases that meet all constraints are run."""

    request: Table
    settings: dict[str, Any]
    """The fields that the request sets, by dotted name."""
    axes: tuple[tuple[Choice, ...], ...]
    where: tuple[Constraint, ...] = ()

    @property
    def sizes(self) -> tuple[int, ...]:
        """Values of each axis."""
        return tuple(len(axis) for axis in self.axes)

    @property
    def size(self) -> int:
        """Points of the product, without constraints."""
        return math.prod(self.sizes)

    @property
    def columns(self) -> Iterable[str]:
        """Names of all that the axes vary."""
        return dict.fromkeys(name for axis in self.axes for choice in axis for name in choice.columns)

    def allows(self, number: int) -> bool:
        """Tell whether a point meets the constraints."""
        if not self.where:
            return True
        settings = dict(self.settings)
        for choice in self._choices(number):
            settings |= choice.columns
        return all(constraint.holds(settings) for constraint in self.where)

    def case(self, number: int) -> Case:
        """Return the case at a point; the last axis changes fastest."""
        choices = self._choices(number)
        merged = self.request
        for choice in choices:
            merged = merge(merged, choice.change)
        columns = {name: value for choice in choices for name, value in choice.columns.items()}
        return Case(" / ".join(choice.label for choice in choices) or "only", merged, columns)

    def _choices(self, number: int) -> list[Choice]:
        found = []
        for axis in reversed(self.axes):
            number, position = divmod(number, len(axis))
            found.append(axis[position])
        return found[::-1]


def read_group(common: Table, table: Table, where: Any) -> Group:
    """Read a group of a study; constraints of the study hold for it, too."""
    for key in table:
        if key not in KEYS:
            raise unknown_name(f"STUDY.groups.{key}", key, KEYS)
    request = merge(common, as_table(table.get("request", {}), "STUDY.groups.request"))
    named = as_table(table.get("axes", {}), "STUDY.groups.axes")
    axes = {name: tuple(_choices(name, axis)) for name, axis in named.items()}
    group = Group(request, list_settings(request), tuple(axes.values()))
    known = {name: name for name in (*group.settings, *group.columns)}
    known |= {name: next(iter(axis[0].columns)) for name, axis in axes.items() if axis and axis[0].columns}
    return replace(group, where=read_constraints(where, known) + read_constraints(table.get("where", []), known))


def _is_field(axis: Any) -> bool:
    return isinstance(axis, Mapping) and set(axis) == {"field", "values"} and isinstance(axis["values"], list)


def _choices(name: str, axis: Any) -> list[Choice]:
    """Read an axis: one field over values, or a table of labelled changes."""
    where = f"STUDY.groups.axes.{name}"
    table = as_table(axis, where)
    if _is_field(table):
        check_path(RunSpec, str(table["field"]), f"{where}.field")
        changes = [nest(str(table["field"]), value) for value in table["values"]]
        labels = [f"{name} {value}" for value in table["values"]]
        return [Choice(label, change, list_settings(change)) for label, change in zip(labels, changes, strict=True)]
    labelled = {label: as_table(change, f"{where}.{label}") for label, change in table.items()}
    column = f"axis {name}" if name in TAKEN else name
    for label, change in labelled.items():
        for field in list_settings({part: setting for part, setting in change.items() if part != NOTES}):
            check_path(RunSpec, field, f"{where}.{label}")
    return [Choice(label, change, {column: label, **list_settings(change)}) for label, change in labelled.items()]


def list_settings(change: Table) -> dict[str, Any]:
    """Return the fields that a change sets, by dotted name in SI; a base is the name of what it is the base of."""
    return {name.removesuffix(".base"): value for name, value in dotted_fields(merge({}, change)).items()}


def find_setting(table: Mapping[str, Any], name: str) -> Any:
    """Return the value of a dotted field in a request or a spec; of a table, its name; None where there is none."""
    value: Any = table
    for key in name.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value.get("name", value.get("base")) if isinstance(value, Mapping) else value
