"""From an adapter's name and a run to the command that trains it."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from charllm.api.keywords import Spec, build_request
from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.measure.adapters import Program, Request, prepare_program
from charllm.measure.adapters.adapter import DEFAULT_STEPS
from charllm.measure.adapters.programs import beside, find_adapter, with_program
from charllm.measure.logs.pattern import own_pattern
from charllm.measure.logs.read import AUTO, check_kind
from charllm.spec.run import RunSpec

MOST_STEPS = 100_000_000


def build_program(
    command: Sequence[str],
    folder: Path,
    *,
    adapter: str | None = None,
    script: str | None = None,
    steps: int | None = None,
    log_kind: str | None = None,
    log_pattern: str | None = None,
    spec: Spec | None = None,
    run: Mapping[str, Any] | None = None,
) -> Program:
    """Return the program that a command line asks for: an adapter's for a run, or the command itself.

    `run` holds keywords of a run, as of `charllm.simulate`. With the run of a command known, MFU is, too.
    """
    if isinstance(command, str) or not all(isinstance(word, str) for word in command):
        raise SpecError("COMMAND", command, "a list of words")
    name = adapter or "command"
    find_adapter(name)
    if steps is not None and not 1 <= steps <= MOST_STEPS:
        raise SpecError("--steps", steps, f"1 to {MOST_STEPS}")
    check_kind(log_kind or AUTO)
    if log_pattern is not None:
        own_pattern(log_pattern)
    described: RunSpec | None = None
    if spec is not None or run:
        described = resolve_run(with_program(name, build_request(spec, run or {})))
    request = Request(
        run=described,
        words=tuple(command),
        script=script,
        steps=steps or DEFAULT_STEPS,
        config=beside(folder),
        python=sys.executable,
    )
    program = prepare_program(name, request)
    return replace(program, log_kind=log_kind or program.log_kind, log_pattern=log_pattern)
