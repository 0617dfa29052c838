"""A process that outlives its parent and puts the limits of GPUs back: python -m charllm.measure.limits.guard

Its standard input says what to put back, one line of JSON; it answers ``ready``, and waits for the end of its input.
That end comes when the parent is done, and also when the parent dies of anything. Then limits are put back, and what
could not be is told on standard output. Signals of the terminal do not reach it; those of a batch system it ignores.
Ignores: a signal 9 to itself, and a machine that loses power: drivers forget limits at a restart.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Lock
from typing import NamedTuple

from charllm.errors import CharllmError
from charllm.measure.limits.boards import BOARDS, Before, Found, Limits, apply_limits, restore_limits
from charllm.measure.telemetry.source import TelemetryError

MODULE = "charllm.measure.limits.guard"
READY, DONE = "ready", "restored"
ANSWER_S = 30.0


class Guarded(NamedTuple):
    """Limits that hold."""

    restore: Callable[[], None]
    """Puts them back at once; a second call does nothing."""


@contextmanager
def limited(found: Found, limits: Limits, gpus: Sequence[Before]) -> Iterator[Guarded]:
    """Hold limits while the block inside runs; they are put back at its end, or when this process dies."""
    process = subprocess.Popen(
        [sys.executable, "-m", MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    lock = Lock()

    def restore() -> None:
        with lock:
            if process.returncode is not None:
                return
            told, _ = process.communicate(timeout=ANSWER_S)
        if told.strip() != DONE:
            raise CharllmError(f"limits could not all be put back: {told.strip() or 'the guard died'}")

    try:
        asked = {"limits": [limits.power_w, limits.clock_hz], "gpus": [gpu.as_table() for gpu in gpus]}
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        if process.stdout.readline().strip() != READY:
            raise CharllmError("the guard that puts limits back could not start; nothing was set")
        try:
            apply_limits(found.board, limits, gpus)
        except TelemetryError:
            # What could not be set cannot be put back either, and need not be.
            with suppress(CharllmError):
                restore()
            raise
        yield Guarded(restore)
    finally:
        restore()


def main() -> int:
    """Wait, then put back."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    asked = json.loads(sys.stdin.readline())
    limits, gpus = Limits(*asked["limits"]), [Before(**gpu) for gpu in asked["gpus"]]
    board = BOARDS[gpus[0].vendor]()
    print(READY, flush=True)
    sys.stdin.read()
    failed = restore_limits(board, limits, gpus)
    print("; ".join(failed) or DONE, flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
