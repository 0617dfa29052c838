"""Run the explorer's application on a port of this machine."""

import contextlib
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from h11 import LocalProtocolError
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from charllm.errors import CharllmError, SpecError
from charllm.explorer.app import build_app
from charllm.explorer.safety import MOST_ANSWERED, check_access

MOST_CONNECTIONS = MOST_ANSWERED + 128
"""Beyond it, the connection that has been silent the longest makes room for a new one."""
LONGEST_SILENT_S, LOOK_TICKS = 10.0, 10
"""A connection on which no request is answered for so long is dropped, whatever arrives on it; one look a second."""
LONGEST_END_S = 1
EVERYWHERE = ("0.0.0.0", "::")
"""Addresses to listen on that nobody can open: the machine's name is shown instead."""


class _Protocol(H11Protocol):
    """HTTP that waits for a whole request for a bounded time, at the start of a connection and between two requests."""

    def connection_made(self, transport: Any) -> None:
        """Make room for a new connection."""
        super().connection_made(transport)
        self._active_s = self.loop.time()
        if len(self.connections) > MOST_CONNECTIONS:
            silent = [each for each in self.connections if isinstance(each, _Protocol) and not each.is_answering]
            min(silent, key=lambda each: each._active_s, default=self).transport.abort()

    @property
    def is_answering(self) -> bool:
        """Whether a request that has arrived is being answered."""
        return self.cycle is not None and not self.cycle.response_complete and not self.transport.is_closing()

    def drop_silent(self) -> None:
        """End a connection on which nothing has been answered for too long, also one that does not read its answer."""
        if self.is_answering:
            self._active_s = self.loop.time()
        elif self.loop.time() - self._active_s > LONGEST_SILENT_S:
            self.transport.abort()

    def on_response_complete(self) -> None:
        """Count from here to the next request."""
        self._active_s = self.loop.time()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP; in the middle of an answer, nothing more can be said."""
        try:
            super().send_400_response(msg)
        except LocalProtocolError:
            self.transport.abort()


class Server(uvicorn.Server):
    """Says where it listens once it answers."""

    def __init__(self, app: ASGIApp, tell: Callable[[], None], end_streams: Callable[[], None]) -> None:
        config = uvicorn.Config(
            app,
            http=_Protocol,
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=LONGEST_END_S,
        )
        super().__init__(config)
        self._tell, self._end_streams = tell, end_streams

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the workers, listen, and say so."""
        await super().startup(sockets)
        if self.started:
            self._tell()

    async def on_tick(self, counter: int) -> bool:
        """Drop silent connections once a second."""
        if counter % LOOK_TICKS == 0:
            for connection in list(self.server_state.connections):
                if isinstance(connection, _Protocol):
                    connection.drop_silent()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End streams that would go on for ever, then all else."""
        self._end_streams()
        await super().shutdown(sockets)


def serve(store: Path | None, host: str, port: int, token: str | None, tell: Callable[[str], None]) -> None:
    """Serve until the process is told to end; `tell` gets the address, with the token."""
    access = check_access(host, token)
    listening = _listen(host, port)
    app = build_app(store, access)
    reached = socket.gethostname() if host in EVERYWHERE else host
    shown = f"[{reached}]" if ":" in reached else reached
    address = f"http://{shown}:{listening.getsockname()[1]}/?token={access.token}"
    server = Server(app, lambda: tell(address), app.state.explorer.latest.end_all)
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
