"""Ports for servers of tests: below those that the kernel gives to connections, so that none takes one meanwhile."""

import os
import random
import socket

LOWEST, HIGHEST = 10_000, 32_000

_draw = random.Random(os.getpid())
_given: set[int] = set()


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nobody listens on, another one at each call."""
    while True:
        port = _draw.randint(LOWEST, HIGHEST)
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _given:
            _given.add(port)
            return port
