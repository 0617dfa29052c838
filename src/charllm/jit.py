"""Functions that run as machine code where numba is installed, and as they are, slower, where it is not.

A function is compiled at its first call, together with all functions that it calls; importing it does not import numba.
Machine code is kept in a folder named after all that went into it: this file and those of the functions, the constants
and the fields of the named tuples that they refer to, and the versions of Python, numba and llvmlite. The folder lies
beside the package, or in the user's cache where that cannot be written; where neither can, each process compiles anew.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from hashlib import sha256
from pathlib import Path
from pickle import PickleError
from types import FunctionType, ModuleType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

KEPT = 8
"""Folders of machine code that are kept of earlier sources."""


def compiled(function: F) -> F:
    """Let a function run as machine code when Python calls it."""

    @cache
    def build() -> Callable[..., Any]:
        return _build(function)

    @wraps(function)
    def call(*arguments: Any) -> Any:
        return build()(*arguments)

    return call  # type: ignore[return-value]


def cache_folders() -> list[Path]:
    """List where machine code may be kept, best first: beside the package, or in the user's cache."""
    home = os.path.expanduser("~/.cache")
    return [
        Path(__file__).parent / "__pycache__" / "charllm",
        *([Path(home) / "charllm"] if os.path.isabs(home) else []),
    ]


def _build(function: Callable[..., Any]) -> Callable[..., Any]:
    try:
        import numba
    except ImportError:
        return function
    parts = parts_of(function)
    for part in parts.values():
        if isinstance(part, FunctionType) and part is not function:
            _allow_in_compiled(part)
    folder = _writable_folder(parts, numba)
    machine_code = _dispatcher(function, folder)

    def call(*arguments: Any) -> Any:
        nonlocal machine_code
        types = tuple(map(numba.typeof, arguments))
        if types not in machine_code.overloads:
            try:
                # Of processes that start together one compiles, and the others load what it has stored.
                with _locked(folder):
                    machine_code.compile(types)
            except (OSError, EOFError, PickleError):
                # A full disk, or files that were cut short: the next process begins a new folder.
                shutil.rmtree(folder or "", ignore_errors=True)
                machine_code = _dispatcher(function, None)
        return machine_code(*arguments)

    return call


def parts_of(function: Callable[..., Any], found: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return by name what a function's machine code is made of: functions, constants, named tuples it is given."""
    found = {} if found is None else found
    assert isinstance(function, FunctionType)
    found[f"{function.__module__}.{function.__qualname__}"] = function
    for name in function.__code__.co_names:
        value, full = function.__globals__.get(name), f"{function.__module__}.{name}"
        if isinstance(value, FunctionType) and value not in found.values():
            parts_of(value, found)
        elif isinstance(value, ModuleType) and value.__name__ != "numpy":
            raise TypeError(f"compiled code refers to names, not to modules such as {full}")
        elif isinstance(value, int | float | tuple) or hasattr(value, "_fields"):
            found[full] = getattr(value, "_fields", value)
    for kind in function.__annotations__.values():
        if hasattr(kind, "_fields"):
            found[f"{kind.__module__}.{kind.__qualname__}"] = kind._fields
    return found


@cache
def _allow_in_compiled(function: FunctionType) -> None:
    """Tell numba to compile a function where compiled code calls it."""
    from numba.extending import register_jitable

    # Inlined, because a call would copy the fields of every named tuple it is given: eight times the time of a step.
    register_jitable(error_model="numpy", forceinline=True)(function)


def _dispatcher(function: Callable[..., Any], folder: Path | None) -> Any:
    """Return what compiles a function for the types that it is called with, and keeps the code in a folder."""
    from numba import config, njit

    before, config.CACHE_DIR = config.CACHE_DIR, str(folder or "")
    try:
        return njit(function, error_model="numpy", cache=folder is not None)
    finally:
        config.CACHE_DIR = before


def _writable_folder(parts: dict[str, Any], numba: ModuleType) -> Path | None:
    """Return the folder for code of these parts, made where it did not exist; None where none can be written."""
    import llvmlite

    for place in cache_folders():
        try:
            folder = place / _key(parts, sys.version, numba.__version__, llvmlite.__version__)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
            os.utime(folder)
            by_age = sorted(place.iterdir(), key=lambda one: one.stat().st_mtime)
        except OSError:
            continue
        for old in by_age[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)
        return folder
    return None


def _key(parts: dict[str, Any], *versions: str) -> str:
    """Return a name that tells machine code of these parts from all other."""
    files = sorted({part.__code__.co_filename for part in parts.values() if isinstance(part, FunctionType)})
    values = sorted((name, repr(part)) for name, part in parts.items() if not isinstance(part, FunctionType))
    digest = sha256(repr((versions, values)).encode())
    for file in (__file__, *files):
        digest.update(Path(file).read_bytes())
    return digest.hexdigest()[:24]


@contextmanager
def _locked(folder: Path | None) -> Iterator[None]:
    """Hold a folder against other processes."""
    if folder is None:
        yield
        return
    import fcntl

    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
