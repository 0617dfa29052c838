"""From an adapter's name and a run to the command that trains it."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from charllm.api.keywords import Spec, build_request
from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.measure.adapters.adapter import Program, Request
from charllm.measure.adapters.programs import beside, prepare_program, with_program
from charllm.measure.adapters.settings import ProgramSettings
from charllm.spec.run import RunSpec


def build_program(
    command: Sequence[str],
    folder: Path,
    settings: ProgramSettings,
    spec: Spec | None = None,
    run: Mapping[str, Any] | None = None,
) -> Program:
    """Return the program that a command line asks for: an adapter's for a run, or the command itself.

    `run` holds keywords of a run, as of `charllm.simulate`. With the run of a command known, MFU is, too.
    """
    if isinstance(command, str) or not all(isinstance(word, str) for word in command):
        raise SpecError("COMMAND", command, "a list of words")
    name = settings.adapter or "command"
    described: RunSpec | None = None
    if spec is not None or run:
        described = resolve_run(with_program(name, build_request(spec, run or {})))
    request = Request(
        run=described,
        words=tuple(command),
        script=settings.script,
        steps=settings.steps,
        config=beside(folder),
        python=sys.executable,
    )
    program = prepare_program(name, request)
    return replace(program, log_kind=settings.log_kind or program.log_kind, log_pattern=settings.log_pattern)
