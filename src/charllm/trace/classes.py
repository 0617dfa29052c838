"""Classes of work by name: kernels, collectives, operators and process groups, by the patterns of classes.toml."""

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from charllm.errors import SpecError
from charllm.trace.collective_kinds import collective_kind

T = TypeVar("T")
COMPUTE, COMMUNICATION, MEMORY = range(3)
"""Families of work: what computes, what communicates, what copies."""
UNKNOWN = "unknown"
HOST = "host"
"""Operators that only prepare others: no work of their own."""
SEND_RECV = "send_recv"
SENDS = ("send", "recv", "coalesced")
"""Kinds that are one side of a send, or several sends at once."""
SECTIONS = {"communication": "kind", "kernel": "class", "op": "class", "axis": "name"}
"""Section of the table: what each of its entries names."""


class Communication(NamedTuple):
    """What a kernel's name says about a collective."""

    kind: str
    axis: str | None = None


@dataclass(frozen=True)
class Classes:
    """Tables of patterns, each tried in order."""

    communication: tuple[tuple[re.Pattern[str], Communication], ...]
    kernel: tuple[tuple[re.Pattern[str], str], ...]
    op: tuple[tuple[re.Pattern[str], str], ...]
    axis: tuple[tuple[re.Pattern[str], str], ...]
    tensor_core: re.Pattern[str]

    def communication_of(self, name: str) -> Communication | None:
        """Return the collective that a kernel or range is named after."""
        return _first(self.communication, name)

    def kernel_class(self, name: str) -> str | None:
        """Return the class of a kernel that computes; None where no pattern matches."""
        return _first(self.kernel, name)

    def op_class(self, name: str) -> str | None:
        """Return the class of an operator of the host."""
        return _first(self.op, name)

    def axis_of(self, description: str) -> str | None:
        """Return the axis that a process group is called after."""
        return _first(self.axis, description)


def communication_kind(name: str) -> str:
    """Return the kind of communication that a collective's recorded name says; both sides of a send are one."""
    kind = collective_kind(name)
    return SEND_RECV if kind in SENDS else kind


def read_classes(path: Path | None = None) -> Classes:
    """Read the built-in table, with the entries of another before its own."""
    return _built_in() if path is None else _compile([_read(path), _built_in_table()], str(path))


@cache
def _built_in() -> Classes:
    return _compile([_built_in_table()], "classes.toml")


def _built_in_table() -> dict[str, Any]:
    return tomllib.loads(files("charllm.trace").joinpath("classes.toml").read_text(encoding="utf-8"))


def _read(path: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SpecError("--classes", str(path), f"a readable TOML file ({error})") from None
    unknown = set(table) - {*SECTIONS, "tensor_core"}
    if unknown:
        raise SpecError("--classes", sorted(unknown)[0], f"one of {', '.join([*SECTIONS, 'tensor_core'])}")
    return table


def _compile(tables: Sequence[Mapping[str, Any]], source: str) -> Classes:
    def entries(section: str, build: Callable[[dict[str, Any]], Any]) -> tuple[tuple[re.Pattern[str], Any], ...]:
        return tuple(
            (_pattern(entry.get("patterns"), f"{source}: {section}"), build(entry))
            for table in tables
            for entry in _listed(table, section, source)
        )

    cores = [_patterns(table.get("tensor_core", {"patterns": []}), f"{source}: tensor_core") for table in tables]
    return Classes(
        communication=entries("communication", lambda entry: Communication(entry["kind"], entry.get("axis"))),
        kernel=entries("kernel", lambda entry: entry["class"]),
        op=entries("op", lambda entry: entry["class"]),
        axis=entries("axis", lambda entry: entry["name"]),
        tensor_core=_pattern([pattern for listed in cores for pattern in listed], f"{source}: tensor_core"),
    )


def _listed(table: Mapping[str, Any], section: str, source: str) -> Iterable[dict[str, Any]]:
    """Return the entries of a section, each with a name and patterns."""
    entries = table.get(section, [])
    named = SECTIONS[section]
    if not isinstance(entries, list) or not all(isinstance(entry, dict) and named in entry for entry in entries):
        raise SpecError("--classes", f"{section} in {source}", f"[[{section}]] entries with {named} and patterns")
    return entries


def _patterns(entry: Any, where: str) -> list[str]:
    patterns = entry.get("patterns") if isinstance(entry, dict) else None
    if not isinstance(patterns, list) or not all(isinstance(pattern, str) for pattern in patterns):
        raise SpecError("--classes", where, "patterns = [...], a list of regular expressions")
    return patterns


def _pattern(patterns: Any, where: str) -> re.Pattern[str]:
    listed = _patterns({"patterns": patterns}, where)
    try:
        return re.compile("|".join(f"(?:{pattern})" for pattern in listed) or r"(?!)", re.IGNORECASE)
    except re.error as error:
        raise SpecError("--classes", where, f"valid regular expressions ({error})") from None


def _first(entries: tuple[tuple[re.Pattern[str], T], ...], name: str) -> T | None:
    return next((found for pattern, found in entries if pattern.search(name)), None)
