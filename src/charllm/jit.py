"""Functions that run as machine code where numba is installed, and as they are, slower, where it is not.

numba compiles a function at its first call, with all functions that it calls. Its object code is stored, and other
processes load that with llvmlite alone: 30 ms and 30 MB, where numba takes 0.5 s and 120 MB.
Machine code is kept in a folder named after all that went into it: the files of these functions, the constants and the
fields of the named tuples that they refer to, the versions of Python, numba and llvmlite, and the CPU. The folder lies
beside the package, or in the user's cache where that cannot be written; where neither can, each process compiles anew.
A compiled function is given numbers, arrays and tuples of them, returns a number or nothing, and allocates no arrays.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple, TypeVar

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])
Run = Callable[[list[Any]], Any]
"""Runs machine code on flattened arguments."""

KEPT = 16
"""Folders of machine code that are kept of earlier sources."""
SUFFIX = ".machine"
"""Of a file with a line of JSON and object code."""
RETURNED = ("float64", "int64", "bool", "none")
"""Types of results, as numba calls them."""
DESTRUCTOR = "NRT_MemInfo_call_dtor"
"""numba's code counts references to arrays that it has allocated; it allocates none, so this is never called."""


class MachineCode(NamedTuple):
    """Object code, its entry point and what that returns."""

    symbol: str
    returns: str
    code: bytes


def compiled(function: F) -> F:
    """Let a function run as machine code when Python calls it; several threads may run it at once."""
    loaded: dict[tuple[Any, ...], Run | None] = {}

    @wraps(function)
    def call(*arguments: Any) -> Any:
        values: list[Any] = []
        types = tuple([flatten(argument, values) for argument in arguments])
        if types not in loaded:
            loaded[types] = _prepare(function, types, arguments, values)
        run = loaded[types]
        return function(*arguments) if run is None else run(values)

    return call  # type: ignore[return-value]


def flatten(argument: Any, values: list[Any]) -> Any:
    """Append what machine code receives for an argument; returns the argument's type.

    numba passes an array as owner, parent, items, bytes of an item, data, shape and strides, and a tuple as its items.
    """
    if isinstance(argument, np.ndarray) and argument.ndim:
        data, flags = argument.__array_interface__["data"][0], argument.flags
        values += (None, None, argument.size, argument.itemsize, data, *argument.shape, *argument.strides)
        # As numba tells layouts apart: an array that is contiguous both ways, such as one row, is no type of its own.
        layout = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
        return argument.dtype.str, argument.ndim, layout, flags.writeable
    if isinstance(argument, tuple):
        fields = getattr(argument, "_fields", None)
        return (type(argument).__name__, fields, *[flatten(one, values) for one in argument])
    for kind in (bool, int, float):
        if isinstance(argument, kind):
            values.append(kind(argument))
            return kind.__name__
    if not isinstance(argument, np.ndarray | np.generic):
        raise TypeError(f"got {type(argument).__name__}; expected a number, an array or a tuple of them")
    values.append(argument.item())
    return argument.dtype.str


def runs_uncompiled() -> bool:
    """Tell whether a function was called that would run as machine code if numba were installed."""
    return _versions.cache_info().currsize > 0 and _versions() is None


def cache_folders() -> list[Path]:
    """List where machine code may be kept, best first: beside the package, or in the user's cache."""
    home = os.path.expanduser("~/.cache")
    return [
        Path(__file__).parent / "__pycache__" / "charllm",
        *([Path(home) / "charllm"] if os.path.isabs(home) else []),
    ]


def _prepare(
    function: Callable[..., Any], types: tuple[Any, ...], arguments: tuple[Any, ...], values: list[Any]
) -> Run | None:
    """Return what runs a function for arguments of these types, stored or compiled now; None without numba."""
    versions = _versions()
    if versions is None:
        return None
    parts = parts_of(function)
    folder = _writable_folder(_key(parts, *versions))
    path = folder and folder / f"{function.__name__}-{sha256(repr(types).encode()).hexdigest()[:16]}{SUFFIX}"
    found = path and _read(path)
    if not found:
        # Of processes that start together one compiles, and the others load what it has stored.
        with _locked(folder):
            found = path and _read(path)
            if not found:
                found = _compile(function, parts, arguments)
                _write(found, path)
    return _load(found, values)


@cache
def _versions() -> tuple[str, ...] | None:
    """Return what machine code depends on beside its sources; None where nothing compiles."""
    numba = find_spec("numba")
    if numba is None or numba.origin is None:
        return None
    import llvmlite.binding as llvm

    # Its version without importing it.
    version = Path(numba.origin).with_name("_version.py").read_text(encoding="utf-8")
    cpu = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    return sys.version, version, repr(llvm.llvm_version_info), *cpu


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


def _writable_folder(name: str) -> Path | None:
    """Return the folder of this name, made where it did not exist; None where none can be written."""
    for place in cache_folders():
        try:
            folder = place / name
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
    for file in (*files, __file__):
        digest.update(Path(file).read_bytes())
    return digest.hexdigest()[:24]


def _read(path: Path) -> MachineCode | None:
    """Return stored machine code; None where there is none, or it was cut short."""
    try:
        head, code = path.read_bytes().split(b"\n", 1)
        symbol, returns, digest = json.loads(head)
    except (OSError, ValueError):
        return None
    return MachineCode(symbol, returns, code) if digest == sha256(code).hexdigest() else None


def _write(found: MachineCode, path: Path | None) -> None:
    if path is None:
        return
    head = json.dumps([found.symbol, found.returns, sha256(found.code).hexdigest()]).encode()
    part = path.with_suffix(f".{os.getpid()}")
    try:
        part.write_bytes(head + b"\n" + found.code)
        part.replace(path)
    except OSError:
        # A full disk: the next process compiles again.
        part.unlink(missing_ok=True)


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


@cache
def _allow_in_compiled(function: FunctionType) -> None:
    """Tell numba to compile a function where compiled code calls it."""
    from numba.extending import register_jitable

    # Inlined, because a call copies every field of the tuples that it is given: eight times the time of a step.
    register_jitable(error_model="numpy", forceinline=True)(function)


def _compile(function: Callable[..., Any], parts: dict[str, Any], arguments: tuple[Any, ...]) -> MachineCode:
    """Compile a function for arguments of these types."""
    import ctypes

    import llvmlite.binding as llvm
    from numba import njit, typeof

    for part in parts.values():
        if isinstance(part, FunctionType) and part is not function:
            _allow_in_compiled(part)
    types = tuple(map(typeof, arguments))
    dispatcher = njit(function, error_model="numpy")
    dispatcher.compile(types)
    result = dispatcher.overloads[types]
    symbol, returns = result.fndesc.llvm_func_name, str(result.signature.return_type)
    if returns not in RETURNED:
        raise TypeError(f"{function.__name__} returns {returns}; expected one of {', '.join(RETURNED)}")
    module = llvm.parse_assembly(dispatcher.inspect_llvm(types))
    for one in module.functions:
        if not one.is_declaration and one.name != symbol:
            one.linkage = llvm.Linkage.internal
    # Leaves out numba's wrappers for Python, which need numba.
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, llvm.create_pass_builder(_target_machine(), llvm.create_pipeline_tuning_options()))
    needed = [one.name for one in module.functions if one.is_declaration and not one.name.startswith("llvm.")]
    # Asked of the process and not of LLVM, which knows numba's functions, too, while numba is loaded.
    lacking = [name for name in needed if name != DESTRUCTOR and not hasattr(ctypes.CDLL(None), name)]
    if lacking:
        raise TypeError(f"{function.__name__} needs {', '.join(lacking)}; expected a function that allocates no arrays")
    return MachineCode(symbol, returns, _target_machine().emit_object(module))


@cache
def _target_machine() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(cpu, features, opt=3, jit=True, codemodel="jitdefault")


@cache
def _engine() -> Any:
    """Return what holds the machine code of this process."""
    import llvmlite.binding as llvm

    llvm.add_symbol(DESTRUCTOR, 1)
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine())


def _load(found: MachineCode, values: list[Any]) -> Run:
    """Return what runs machine code on flattened arguments such as `values`."""
    import ctypes

    import llvmlite.binding as llvm

    engine = _engine()
    engine.add_object_file(llvm.ObjectFileRef.from_data(found.code))
    engine.finalize_object()
    kinds: dict[type, Any] = {int: ctypes.c_int64, float: ctypes.c_double, bool: ctypes.c_bool}
    taken = [kinds.get(type(value), ctypes.c_void_p) for value in values]
    results = (ctypes.c_double, ctypes.c_int64, ctypes.c_bool, ctypes.c_void_p)
    kind: Any = dict(zip(RETURNED, results, strict=True))[found.returns]
    # First come the places of the result and of an exception. Python's lock is free meanwhile.
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *taken)(
        engine.get_function_address(found.symbol)
    )

    def run(values: list[Any]) -> Any:
        result, error = kind(), ctypes.c_void_p()
        if entry(ctypes.addressof(result), ctypes.addressof(error), *values):
            raise RuntimeError(f"{found.symbol} ended in an exception")
        return result.value

    return run
