"""A fence around a process that does what others ask: files outside of a few folders are not read, memory is bounded.

A stored run names what it rests on, and a name may be that of any file. Whatever reads it, Python asks here first.
"""

import os
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from charllm.errors import CharllmError
from charllm.jit import cache_folders
from charllm.units import GIB

MOST_MEMORY_BYTES = int(3 * GIB)
PACKAGE = Path(__file__).parent.parent
"""Where code and catalog lie."""
OF_MACHINE = "/proc/cpuinfo"
"""Read by numba, which is loaded only where a function is compiled; it tells nothing of anybody."""


def bound_memory(most_bytes: int = MOST_MEMORY_BYTES) -> None:
    """Let this process hold so much data at most, from now on; beyond it Python raises MemoryError."""
    resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))


def fence_reads(store: Path | None) -> None:
    """Let this process open files of the store, of Python and of its packages alone, from now on."""
    # `python -m` puts the folder that it was started in first.
    here = os.path.realpath(os.getcwd())
    packages = [folder for folder in sys.path if folder and os.path.realpath(folder) != here]
    python = [sys.prefix, sys.base_prefix, *packages, str(PACKAGE), *map(str, cache_folders())]
    roots = tuple({os.path.realpath(folder) + os.sep for folder in [*python, *([str(store)] if store else [])]})

    def ask(event: str, arguments: Sequence[Any]) -> None:
        if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            path = os.path.realpath(os.fsdecode(arguments[0]))
            if path != OF_MACHINE and not path.startswith(roots):
                raise CharllmError(f"the explorer reads its store alone, not {path[:80]!r}")

    sys.addaudithook(ask)
