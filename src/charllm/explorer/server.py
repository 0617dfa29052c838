"""Run the explorer's application on a port of this machine."""

import contextlib
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from charllm.errors import CharllmError, SpecError
from charllm.explorer.app import build_app
from charllm.explorer.safety import check_access

MOST_CONNECTIONS = 256
LONGEST_HEADERS_S = 10.0
"""A connection that has asked nothing by then is closed."""
LONGEST_END_S = 1
EVERYWHERE = ("0.0.0.0", "::")
"""Addresses to listen on that nobody can open: the machine's name is shown instead."""


class _Protocol(H11Protocol):
    """HTTP that does not wait forever for a request."""

    def connection_made(self, transport: Any) -> None:
        """Give a new connection some seconds to ask."""
        super().connection_made(transport)
        self.loop.call_later(LONGEST_HEADERS_S, self._close_silent)

    def _close_silent(self) -> None:
        if self.cycle is None:
            self.transport.close()


class _Server(uvicorn.Server):
    """Says where it listens once it answers."""

    def __init__(self, config: uvicorn.Config, tell: Callable[[], None], end_streams: Callable[[], None]) -> None:
        super().__init__(config)
        self._tell, self._end_streams = tell, end_streams

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the workers, listen, and say so."""
        await super().startup(sockets)
        if self.started:
            self._tell()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End streams that would go on for ever, then all else."""
        self._end_streams()
        await super().shutdown(sockets)


def serve(store: Path | None, host: str, port: int, token: str | None, tell: Callable[[str], None]) -> None:
    """Serve until the process is told to end; `tell` gets the address, with the token."""
    access = check_access(host, token)
    listening = _listen(host, port)
    app = build_app(store, access)
    config = uvicorn.Config(
        app,
        http=_Protocol,
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=LONGEST_END_S,
    )
    reached = socket.gethostname() if host in EVERYWHERE else host
    shown = f"[{reached}]" if ":" in reached else reached
    address = f"http://{shown}:{listening.getsockname()[1]}/?token={access.token}"
    server = _Server(config, lambda: tell(address), app.state.explorer.latest.end_all)
    # uvicorn ends the process where the application could not be started.
    with contextlib.suppress(SystemExit):
        server.run(sockets=[listening])
    if not server.started:
        raise CharllmError("the explorer could not be started")


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise SpecError("--port", port, "0 to 65535 (0: any free port)")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(MOST_CONNECTIONS)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise SpecError("--port", f"{host}:{port}", f"an address of this machine that is free ({reason})") from None
    return listening
