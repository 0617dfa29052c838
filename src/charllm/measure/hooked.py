"""Run someone's Python script or module and have its optimizer's steps drive the profiler, where it marks none itself.

    python -m charllm.measure.hooked SCRIPT.py ...        python -m charllm.measure.hooked -m MODULE ...

`charllm measure --profile` puts this in front of the script of a `python` or `torchrun` command. A hook that torch
calls after every optimizer step (`register_optimizer_step_post_hook`) leaves a mark and counts; nothing of the script
changes. A script that calls `charllm.mark.step` is left to its own marks.

Ignores: optimizers that are not torch's, and all but the first that steps.
"""

import runpy
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import which
from subprocess import DEVNULL, run
from typing import Any

from charllm import mark
from charllm.measure.launchers.torchrun import INTERPRETER
from charllm.measure.marks import OPTIMIZER_STEP

MODULE = "charllm.measure.hooked"
LAUNCHERS = ("torchrun", "torch.distributed.run")
TRIED_S = 60.0
"""Longest wait for a Python to say whether it has charllm."""


def hook_in(command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return a command with its Python script run by this module; as it is where it has none that could be."""
    words = list(command)
    place = _script_place(words)
    if place is None or (words[place] == "-m" and words[place + 1 : place + 2] == ["charllm"]):
        # The reference trainer marks its steps itself.
        return words
    python = words[0] if INTERPRETER.match(Path(words[0]).name) else sys.executable
    return [*words[:place], "-m", MODULE, *words[place:]] if _has_charllm(python, environment) else words


def _script_place(words: Sequence[str]) -> int | None:
    """Return where the script, or the -m of a module, stands in a command of python or torchrun."""
    if not words or not (INTERPRETER.match(Path(words[0]).name) or Path(words[0]).name == LAUNCHERS[0]):
        return None
    begin = 1
    if list(words[1:3]) == ["-m", LAUNCHERS[1]]:
        begin = 3
    found = [at for at in range(begin, len(words)) if words[at] == "-m" or words[at].endswith(".py")]
    return found[0] if found else None


def _has_charllm(python: str, environment: Mapping[str, str]) -> bool:
    found = which(python, path=environment.get("PATH"))
    if found is None:
        return False
    tried = run([found, "-c", f"import {MODULE}"], env=dict(environment), stdout=DEVNULL, stderr=DEVNULL,
                timeout=TRIED_S, check=False)  # fmt: skip
    return tried.returncode == 0


class _OptimizerSteps:
    """Marks and counts the steps of the first optimizer that steps."""

    def __init__(self) -> None:
        self._first: int | None = None
        self._profiler = mark.own_profiler()

    def __call__(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        self._first = id(optimizer) if self._first is None else self._first
        if id(optimizer) != self._first or mark.has_marked_steps():
            return
        mark.point(OPTIMIZER_STEP)
        if self._profiler is not None:
            self._profiler.after_step(mark.write)


def main() -> None:
    """Hook in and run the script as Python would."""
    words = sys.argv[1:]
    try:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(_OptimizerSteps())
    except ImportError:
        print("charllm: no trace: this Python has no torch, or one without hooks of optimizers", file=sys.stderr)
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        sys.path[0] = str(Path(words[0]).parent)
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main()
