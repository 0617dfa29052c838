"""Machine code where numba is installed; the same functions, slower, where it is not.

numba compiles a function once, with every compiled function that it calls. The object code is stored, and later
processes load it with llvmlite alone: 20 ms and 30 MB, where importing numba takes 0.5 s and 120 MB.
A stored file is named by the bytecode and constants of everything compiled, the versions of Python and numba, and the
CPU. It lies beside the source, or in the user's cache where that cannot be written; where neither can, each process
compiles.
A compiled function takes numbers, arrays and tuples of them, returns a number or nothing, and allocates no arrays.
It runs without Python's lock, so that threads can run it side by side on arrays of their own.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache, update_wrapper
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar, cast

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

OPTIONS = {"error_model": "numpy"}
SUFFIX = ".machine"
"""Of a stored file: a line of JSON, then object code."""
DESTRUCTOR = "NRT_MemInfo_call_dtor"
"""numba's code counts references to arrays that it allocated. It allocates none, so that this is never called."""
RETURNED = ("float64", "int64", "bool", "none")
"""Types of results, as numba calls them."""


class ObjectCode(NamedTuple):
    """Object code, its entry point and what that returns."""

    symbol: str
    returns: str
    code: bytes


class Compiled(Generic[Arguments, Result]):
    """A function that runs as machine code."""

    def __init__(self, function: Callable[Arguments, Result]) -> None:
        update_wrapper(self, function)
        self.function = cast(FunctionType, function)
        self.loaded: dict[tuple[Any, ...], Callable[..., Any] | None] = {}
        """Types of arguments: what runs for them, None where nothing compiles."""

    def __call__(self, *arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        """Run it; the first call with arguments of these types loads or compiles it."""
        if named:
            raise TypeError(f"{self.function.__name__}: got {', '.join(named)} by name; expected by position")
        values: list[Any] = []
        types = tuple([_flatten(argument, values) for argument in arguments])
        if types not in self.loaded:
            self.loaded[types] = _prepare(self.function, types, arguments, values)
        run = self.loaded[types]
        return cast(Result, self.function(*arguments) if run is None else run(values))


def jit(function: Callable[Arguments, Result]) -> Compiled[Arguments, Result]:
    """Compile a function when it is first called, with all that it calls and that is marked so, too."""
    return Compiled(function)


def _flatten(argument: Any, values: list[Any]) -> Any:
    """Append what machine code receives for an argument; returns the argument's type.

    numba passes an array as owner, parent, items, bytes of an item, data, shape and strides, and a tuple as its items.
    """
    if isinstance(argument, tuple):
        fields = getattr(argument, "_fields", None)
        return (type(argument).__name__, fields, *[_flatten(one, values) for one in argument])
    for kind in (bool, int, float):
        if isinstance(argument, kind):
            values.append(kind(argument))
            return kind.__name__
    if not hasattr(argument, "__array_interface__"):
        raise TypeError(f"got {type(argument).__name__}; expected a number, an array or a tuple of them")
    if not argument.ndim:
        values.append(argument.item())
        return argument.dtype.str
    data = argument.__array_interface__["data"][0]
    values += (None, None, argument.size, argument.itemsize, data, *argument.shape, *argument.strides)
    flags = argument.flags
    return argument.dtype.str, argument.ndim, flags.c_contiguous, flags.f_contiguous, flags.writeable


def _prepare(
    function: FunctionType, types: tuple[Any, ...], arguments: tuple[Any, ...], values: list[Any]
) -> Callable[[list[Any]], Any] | None:
    """Return what runs a function on flattened arguments, stored or compiled now; None where nothing compiles."""
    host = _host()
    if host is None:
        return None
    prefix = f"{function.__module__}.{function.__name__}-{_digest(types, host)}-"
    name = f"{prefix}{_digest(list(_contents(function, set())))}{SUFFIX}"
    stored = next(filter(None, (_read(folder / name) for folder in _folders(function))), None)
    if stored is None:
        stored = _compile(function, arguments)
        _store(stored, function, prefix, name)
    return _load(stored, values)


@cache
def _host() -> tuple[str, ...] | None:
    """Return what machine code depends on beside its source; None where nothing compiles."""
    from importlib.util import find_spec

    found = find_spec("numba")
    if found is None or found.origin is None:
        return None
    import llvmlite.binding as llvm

    version = Path(found.origin).with_name("_version.py").read_text(encoding="utf-8")
    features = llvm.get_host_cpu_features().flatten()
    return repr(OPTIONS), str(sys.implementation.cache_tag), version, llvm.get_host_cpu_name(), features


def _digest(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _contents(function: FunctionType, seen: set[FunctionType]) -> Iterator[Any]:
    """List all that the code of a function follows from: bytecode and constants, its own and of what it calls."""
    seen.add(function)
    yield function.__defaults__
    for code in _codes(function.__code__):
        yield code.co_code, code.co_names, code.co_varnames
        yield [constant for constant in code.co_consts if not isinstance(constant, CodeType)]
        for name in code.co_names:
            value = function.__globals__.get(name)
            if not isinstance(value, Compiled):
                yield name, _constants(value, code.co_names)
            elif value.function not in seen:
                yield from _contents(value.function, seen)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """List the code of a function and of those inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _constants(value: Any, names: tuple[str, ...]) -> Any:
    """Return what compiled code knows of a global: its value, or of a module or type the parts that are used."""
    if isinstance(value, ModuleType):
        return [_constants(getattr(value, name), ()) for name in names if hasattr(value, name)]
    if isinstance(value, bool | int | float | str | tuple):
        return value
    return value.tobytes() if hasattr(value, "tobytes") else getattr(value, "_fields", None)


def _folders(function: FunctionType) -> Iterator[Path]:
    """List where machine code may be stored, the best place first."""
    yield Path(function.__code__.co_filename).parent / "__pycache__"
    try:
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "charllm"
    except RuntimeError:
        return


def _read(path: Path) -> ObjectCode | None:
    try:
        head, code = path.read_bytes().split(b"\n", 1)
        symbol, returns, digest = json.loads(head)
    except (OSError, ValueError):
        return None
    return ObjectCode(symbol, returns, code) if digest == hashlib.sha256(code).hexdigest() else None


def _store(found: ObjectCode, function: FunctionType, prefix: str, name: str) -> None:
    """Write machine code in place of what its earlier source gave, in the first folder that can be written."""
    head = json.dumps([found.symbol, found.returns, hashlib.sha256(found.code).hexdigest()])
    for folder in _folders(function):
        part = folder / f"{name}.{os.getpid()}"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            part.write_bytes(head.encode() + b"\n" + found.code)
            part.replace(folder / name)
            for old in folder.glob(f"{prefix}*{SUFFIX}"):
                if old.name != name:
                    old.unlink(missing_ok=True)
        except OSError:
            continue
        return


def _compile(function: FunctionType, arguments: tuple[Any, ...]) -> ObjectCode:
    """Compile a function for arguments of these types."""
    import ctypes

    import llvmlite.binding as llvm
    from numba import typeof

    dispatcher = _with_numba(function, {})
    signature = tuple(typeof(argument) for argument in arguments)
    dispatcher.compile(signature)
    compiled = dispatcher.overloads[signature]
    symbol, returns = compiled.fndesc.llvm_func_name, str(compiled.signature.return_type)
    if returns not in RETURNED:
        raise TypeError(f"{function.__name__} returns {returns}; expected one of {', '.join(RETURNED)}")
    module = llvm.parse_assembly(dispatcher.inspect_llvm(signature))
    for one in module.functions:
        if not one.is_declaration and one.name != symbol:
            one.linkage = llvm.Linkage.internal
    # Without numba's wrappers for Python, which need numba.
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, llvm.create_pass_builder(_target_machine(), llvm.create_pipeline_tuning_options()))
    needed = [one.name for one in module.functions if one.is_declaration and not one.name.startswith("llvm.")]
    # Asked of the process and not of LLVM, which knows numba's functions, too, now that numba is loaded.
    lacking = [name for name in needed if name != DESTRUCTOR and not hasattr(ctypes.CDLL(None), name)]
    if lacking:
        raise TypeError(f"{function.__name__} needs {', '.join(lacking)}; expected a function that allocates no arrays")
    return ObjectCode(symbol, returns, _target_machine().emit_object(module))


def _with_numba(function: FunctionType, made: dict[FunctionType, Any]) -> Any:
    """Return numba's form of a function, for which those that it calls have numba's form, too."""
    from numba import njit

    if function not in made:
        scope = dict(function.__globals__)
        for name in {name for code in _codes(function.__code__) for name in code.co_names}:
            if isinstance(scope.get(name), Compiled):
                scope[name] = _with_numba(scope[name].function, made)
        copied = FunctionType(function.__code__, scope, function.__name__, function.__defaults__)
        made[function] = njit(**OPTIONS)(copied)
    return made[function]


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


def _load(found: ObjectCode, values: list[Any]) -> Callable[[list[Any]], Any]:
    """Return what runs machine code on flattened arguments such as `values`."""
    import ctypes

    import llvmlite.binding as llvm

    engine = _engine()
    engine.add_object_file(llvm.ObjectFileRef.from_data(found.code))
    engine.finalize_object()
    kinds: dict[type, Any] = {
        int: ctypes.c_int64,
        float: ctypes.c_double,
        bool: ctypes.c_bool,
        type(None): ctypes.c_void_p,
    }
    results = dict(zip(RETURNED, (ctypes.c_double, ctypes.c_int64, ctypes.c_bool, ctypes.c_void_p), strict=True))
    kind: Any = results[found.returns]
    # Where the result goes and where an exception goes come before the arguments.
    declare = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 2, *[kinds[type(value)] for value in values])
    entry = declare(engine.get_function_address(found.symbol))

    def run(values: list[Any]) -> Any:
        result, error = kind(), ctypes.c_void_p()
        if entry(ctypes.addressof(result), ctypes.addressof(error), *values):
            raise RuntimeError(f"{found.symbol} ended in an exception")
        return result.value

    return run
