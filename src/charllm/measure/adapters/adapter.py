"""What an adapter is given and what it makes of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from charllm.spec.run import RunSpec

DEFAULT_STEPS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A run that a program is to train."""

    run: RunSpec | None
    words: tuple[str, ...] = ()
    """The command, or more words for the program's own."""
    script: str | None = None
    """The program's training script."""
    steps: int = DEFAULT_STEPS
    config: Path = Path("charllm-config")
    """Where a file for the program may be written, but for its suffix."""
    python: str = "python"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A command that is ready to run."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[Path, str] = field(default_factory=dict)
    """Files that it reads: to be written before it starts."""
    log_kind: str = "auto"
    log_pattern: str | None = None
    marks: bool = False
    """Whether it marks its own steps; else they are read from its log."""
    spec: dict[str, Any] | None = None
    """The run that it trains, as a table."""
    ranks: int = 1
    """Processes that the command has to be started as, one for each GPU."""


class Adapter(NamedTuple):
    """A training program that charllm can start."""

    prepare: Callable[[Request], Program]
    about: str
    framework: str | None = None
    """Software profile of the program; the run's unless it names another."""
    overlap: tuple[str, ...] | None = None
    """Axes whose communication the program always overlaps, where the run does not say."""
