"""Answers over HTTP: a stream of server-sent events, or one of them as JSON; a closed connection ends the work."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Hashable, Iterator
from typing import Any

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from charllm.explorer.workers import Reply

EVENTS, JSON = b"text/event-stream; charset=utf-8", b"application/json"
LONGEST_SEND_S, TOO_MANY = 30.0, 429
SUPERSEDED = {"status": 409, "field": "", "message": "a newer request has replaced this one, or the server ends"}


class Latest:
    """Who asks: a new request of the same client replaces the one before."""

    def __init__(self) -> None:
        self._ends: dict[tuple[Hashable, str], asyncio.Event] = {}

    def end_all(self) -> None:
        """End every request."""
        for end in self._ends.values():
            end.set()

    @contextlib.contextmanager
    def held(self, client: Hashable, *kinds: str) -> Iterator[asyncio.Event]:
        """End the client's requests of these kinds, then hold the first kind; gives what ends this request in turn."""
        for kind in kinds:
            if (before := self._ends.pop((client, kind), None)) is not None:
                before.set()
        end = self._ends[client, kinds[0]] = asyncio.Event()
        try:
            yield end
        finally:
            if self._ends.get((client, kinds[0])) is end:
                del self._ends[client, kinds[0]]


Turn = contextlib.AbstractContextManager[asyncio.Event]
"""Held while a request is answered; gives what is set when a newer one replaces it."""


class Events(Response):
    """Sends events as they come. The first decides: an error is sent with its status, not as a stream.

    With `streamed` false only the first event's data is sent, as JSON. The work ends when the client hangs up, or when
    its turn is over.
    """

    def __init__(self, events: AsyncGenerator[Reply], turn: Turn, *, streamed: bool = True) -> None:
        self.status_code, self.background = 200, None
        self._events, self._turn, self._streamed = events, turn, streamed
        self._begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send until all is sent, the client has gone, or a newer request has come."""
        with self._turn as superseded:
            await self._send_until(superseded, receive, send)

    async def _send_until(self, superseded: asyncio.Event, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send_all(send))
        leaving = asyncio.create_task(_disconnect(receive))
        replaced = asyncio.create_task(superseded.wait())
        tasks = (sending, leaving, replaced)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if not sending.cancelled():
            sending.result()
        elif not leaving.done() or leaving.cancelled():
            await self._close(send)

    async def _send_all(self, send: Send) -> None:
        # Who does not read what was asked for is given up.
        with contextlib.suppress(TimeoutError):
            await self._send_each(_patient(send))

    async def _send_each(self, send: Send) -> None:
        async with contextlib.aclosing(self._events) as events:
            async for event, data in events:
                if not self._begun and (event == "error" or not self._streamed):
                    await _send_json(send, _status(data) if event == "error" else 200, data)
                    self._begun = True
                    return
                await self._begin(send)
                await send({"type": "http.response.body", "body": sse(event, data), "more_body": True})
        await self._begin(send)
        await send({"type": "http.response.body", "body": b""})

    async def _begin(self, send: Send) -> None:
        if not self._begun:
            self._begun = True
            headers = [(b"content-type", EVENTS), (b"x-accel-buffering", b"no")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _close(self, send: Send) -> None:
        """End a stream that is superseded; nothing more is said where it has begun."""
        with contextlib.suppress(OSError):
            if self._begun:
                await send({"type": "http.response.body", "body": b""})
            else:
                await _send_json(send, SUPERSEDED["status"], json.dumps(SUPERSEDED).encode())


def _patient(send: Send) -> Send:
    """Send, but not forever."""

    async def patient(message: Message) -> None:
        async with asyncio.timeout(LONGEST_SEND_S):
            await send(message)

    return patient


def sse(event: str, data: bytes) -> bytes:
    """Write one server-sent event; the data is JSON on one line."""
    return b"event: %s\ndata: %s\n\n" % (event.encode(), data)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _status(data: bytes) -> int:
    return int(json.loads(data)["status"])


async def _send_json(send: Send, status: Any, data: bytes) -> None:
    headers = [(b"content-type", JSON), (b"content-length", str(len(data)).encode())]
    if status == TOO_MANY:
        headers.append((b"retry-after", str(json.loads(data)["retry_after_s"]).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data})
