"""torch's execution trace of a few steps of one rank, with the process group of every collective named."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.distributed import ProcessGroup
from torch.profiler import ExecutionTraceObserver, record_function
from torch.utils._python_dispatch import TorchDispatchMode

from charllm.trace.execution import GROUP_RANGE, STEP_RANGE

TRACED_STEPS = (2, 3)
"""The first step also builds communicators and agrees on shapes."""


class StepTrace:
    """Writes `rank-N.json` (Chakra's schema) into a folder."""

    def __init__(self, folder: Path, rank: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.observer = ExecutionTraceObserver().register_callback(str(folder / f"rank-{rank}.json"))

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Trace what runs inside, where this step is one of those traced."""
        if number not in TRACED_STEPS:
            yield
            return
        self.observer.start()
        try:
            with record_function(f"{STEP_RANGE}{number}"), _NamedGroups():
                yield
        finally:
            self.observer.stop()

    def close(self) -> None:
        """Finish the file."""
        self.observer.unregister_callback()


class _NamedGroups(TorchDispatchMode):
    """Encloses each collective in a range that names its process group, which gloo's traces do not."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = _group_name(func, args)
        if name is None:
            return func(*args, **(kwargs or {}))
        with record_function(f"{GROUP_RANGE}{name}"):
            return func(*args, **(kwargs or {}))


def _group_name(func: Any, args: tuple[Any, ...]) -> str | None:
    """Return the process group of an op that communicates."""
    if not isinstance(func, torch._ops.OpOverload) or func.namespace not in ("c10d", "_c10d_functional"):
        return None
    for argument, value in zip(func._schema.arguments, args, strict=False):
        if argument.name == "process_group":
            return str(ProcessGroup.unbox(value).group_name)
        if argument.name == "group_name":
            return str(value)
    return None
