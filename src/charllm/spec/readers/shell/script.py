"""What reading a script has found so far."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from charllm.errors import SpecError
from charllm.spec.readers.shell.syntax import Node

MAX_VALUE = 2**17
MAX_EXPANDED = 2**21
MAX_STATEMENTS = 20_000
MAX_NESTING = 40

OPEN, CLOSE = "\ue000", "\ue001"
"""Private characters around the number of something unknown inside a value."""

Value = str | list[str] | dict[str, str]
"""A variable: text, an array, or an array by name."""

RANKS = ("RANK", "NODE_RANK", "LOCAL_RANK", "SLURM_PROCID", "SLURM_NODEID", "SLURM_LOCALID", "OMPI_COMM_WORLD_RANK")
"""Variables that a launcher sets to 0 on the first process, which is the one read."""


class Inputs(NamedTuple):
    """What the user says about how a script is started."""

    arguments: tuple[str, ...] | None = None
    """Positional arguments, $1 and on; None: not given."""
    environment: Mapping[str, str] = {}


NO_INPUTS = Inputs()


class Command(NamedTuple):
    """A command that a script starts."""

    words: list[str]
    line: int
    outer: tuple[str, ...] = ()
    """Words of the commands around it: `srun` before `bash -c`."""


class Unknown(NamedTuple):
    """Something that only running the script would tell."""

    text: str
    kind: str
    """`unset`: a variable of the environment; `argument`: a positional argument; `command`: output of a command."""
    root: str = ""
    """The variable behind it."""


@dataclass(slots=True)
class Script:
    """State of one reading of a script."""

    path: str
    folder: Path | None
    inputs: Inputs
    variables: dict[str, Value] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)
    arguments_known: bool = True
    """Whether an argument beyond the last one is empty, and not unknown."""
    functions: dict[str, Node] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    """Files that the script writes from text of its own."""
    unknowns: list[Unknown] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)
    """Words of the lines that begin with #SBATCH."""
    undecided: list[tuple[int, str]] = field(default_factory=list)
    """Line and text of each test that only running the script would decide."""
    flipped: int = -1
    """The undecided test that is answered the other way in this reading."""
    assumed_empty: dict[str, int] = field(default_factory=dict)
    """Variables of the environment that a test compares: name, line."""
    asked_arguments: dict[str, int] = field(default_factory=dict)
    """Positional arguments that a test compares though none were given: name, line."""
    not_found: dict[str, int] = field(default_factory=dict)
    """Scripts that are sourced or started and cannot be read: name, line."""
    exited: int | None = None
    guesses: int = 0
    """Answers so far that rest on a variable or an argument that was not given."""
    outer: tuple[str, ...] = ()
    expanded: int = 0
    statements: int = 0
    nesting: int = 0

    def checked(self, value: str) -> str:
        """Count expanded text, so that variables that double each other cannot fill the memory."""
        self.expanded += len(value)
        if len(value) > MAX_VALUE or self.expanded > MAX_EXPANDED:
            raise SpecError("--from", self.path, f"variables that expand to at most {MAX_EXPANDED:,} characters in all")
        return value

    def count_statement(self) -> None:
        """Count a statement, so that loops end."""
        self.statements += 1
        if self.statements > MAX_STATEMENTS:
            raise SpecError("--from", self.path, f"a script of at most {MAX_STATEMENTS:,} executed statements")

    def unknown(self, text: str, kind: str, root: str = "") -> str:
        """Return a mark that stands for something unknown inside a value."""
        entry = Unknown(text, kind, root or text)
        if entry not in self.unknowns:
            if len(self.unknowns) >= MAX_STATEMENTS:
                raise SpecError("--from", self.path, "a script with fewer unknown values")
            self.unknowns.append(entry)
        return f"{OPEN}{self.unknowns.index(entry)}{CLOSE}"

    def unknowns_in(self, value: str) -> list[Unknown]:
        """List what is unknown inside a value."""
        pieces = value.split(OPEN)[1:]
        numbers = [piece.partition(CLOSE)[0] for piece in pieces]
        return [
            self.unknowns[int(number)] for number in numbers if number.isdigit() and int(number) < len(self.unknowns)
        ]

    def shown(self, value: str) -> str:
        """Return a value as a person reads it, with what is unknown as the script writes it."""
        for number, unknown in enumerate(self.unknowns):
            value = value.replace(f"{OPEN}{number}{CLOSE}", unknown.text)
        return value

    def lookup(self, name: str) -> Value:
        """Return the value of a variable, or a mark that it is not known."""
        if name in self.variables:
            return self.variables[name]
        if name.isdigit():
            index = int(name)
            if 0 < index <= len(self.arguments):
                return self.arguments[index - 1]
            if index == 0:
                return self.path
            return "" if self.arguments_known else self.unknown(f"${name}", "argument")
        if name in RANKS:
            return "0"
        return self.unknown(f"${name}", "unset")


def plain(value: Value) -> str:
    """Return a variable's value where one text is wanted: an array gives its first element."""
    if isinstance(value, str):
        return value
    items = list(value.values()) if isinstance(value, dict) else value
    return items[0] if items else ""


def items_of(value: Value) -> list[str]:
    """Return the elements of a variable; a plain one is its own element."""
    if isinstance(value, str):
        return [value] if value else []
    return list(value.values()) if isinstance(value, dict) else list(value)


def is_known(value: str) -> bool:
    """Say whether nothing in a value is unknown."""
    return OPEN not in value
