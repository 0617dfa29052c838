"""What several test processes need is computed by the first that asks and read by the others."""

import fcntl
import pickle
from collections.abc import Callable
from typing import TypeVar

import pytest

T = TypeVar("T")


def shared(factory: pytest.TempPathFactory, name: str, compute: Callable[[], T]) -> T:
    """Return the value of this name in this test run; it must not be changed by who gets it."""
    base = factory.getbasetemp()
    # Processes of one test run have folders beside each other.
    folder = (base.parent if base.name.startswith("popen-") else base) / "shared"
    folder.mkdir(exist_ok=True)
    path = folder / name
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            draft = folder / f"{name}.draft"
            draft.write_bytes(pickle.dumps(compute()))
            draft.rename(path)
        found: T = pickle.loads(path.read_bytes())
    return found
