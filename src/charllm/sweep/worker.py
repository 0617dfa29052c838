"""A process that simulates cases for a sweep.

    python -m charllm.sweep.worker PARENT

A case is a line of JSON on stdin, its outcome a line of JSON on stdout. It ends when its stdin closes and, on Linux, at
the very moment that its parent ends, even in the middle of a case: what it has not stored whole is not there at all.
"""

import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


def main() -> None:
    """Simulate what comes in on stdin."""
    end_with(int(sys.argv[1]))
    # Nothing that a library prints may get between the replies.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    # The imports take a second, in which the parent may end too: hence not above.
    from charllm.errors import CharllmError
    from charllm.sweep.axes import Case
    from charllm.sweep.case import Task, run_case

    for line in sys.stdin:
        sent = json.loads(line)
        reply: dict[str, Any]
        folder = None if sent["folder"] is None else Path(sent["folder"])
        try:
            reply = {"outcome": run_case(Task(Case(*sent["case"]), folder, sent["signals"]))._asdict()}
        except CharllmError as error:
            reply = {"error": str(error)}
        replies.write(json.dumps(reply, allow_nan=False) + "\n")
        replies.flush()


def end_with(parent: int) -> None:
    """Ask the operating system to end this process with its parent."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(0)


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        # The parent has gone while a case ran; the case is stored.
        os._exit(0)
