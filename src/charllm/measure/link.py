"""One connection between two processes of a run that trust each other: lines of JSON in both directions."""

import json
import select
import socket
import threading
from typing import Any

CONNECT_S, LONGEST_LINE = 5.0, 1 << 16
TURN_S = 0.1
UNREADABLE = (KeyError, TypeError, ValueError, OverflowError, RecursionError)
"""What reading a message of another process may raise."""

Message = dict[str, Any]


class Link:
    """One connection between two who trust each other: lines of JSON in both directions."""

    def __init__(self, link: socket.socket) -> None:
        self.socket = link
        self._rest = b""
        self._sending = threading.Lock()

    def send(self, message: Message) -> bool:
        """Send a line; tell whether the other side could take it."""
        try:
            with self._sending:
                self.socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            return False
        return True

    def receive(self) -> tuple[list[Message], bool]:
        """Return the lines that have come, and whether the other side has closed; UNREADABLE for what is no line."""
        try:
            data = self.socket.recv(1 << 16)
        except OSError:
            return [], True
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            raise ValueError(f"a line longer than {LONGEST_LINE} bytes")
        # Whatever else JSON can be is refused where its fields are read.
        return [json.loads(line) for line in lines], not data


def pause(seconds_s: float) -> None:
    """Wait by the kernel's own clock, whatever this process is told of the time."""
    select.select([], [], [], seconds_s)
