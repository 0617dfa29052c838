"""What holds of connections: one that asks nothing whole is dropped, and none keeps others out."""

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from charllm.explorer import server as serving
from charllm.explorer.app import build_app
from charllm.explorer.safety import Guard, check_access
from tests.explorer.asking import Client

TOKEN = "a-token-of-some-length"
HEAD = f"GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n".encode()
LONG_ANSWER = b"x" * 50_000_000
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
SILENT_S = 0.5


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer at once; at /long with more than any buffer holds, at /slow after a while, in parts."""
    if scope["type"] == "lifespan":
        for kind in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{kind}.complete"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/slow":
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        await asyncio.sleep(3 * SILENT_S)
    await send({"type": "http.response.body", "body": LONG_ANSWER if scope["path"] == "/long" else b"answer"})


@asynccontextmanager
async def served(asked: ASGIApp | None = None) -> AsyncIterator[Callable[[], Awaitable[Streams]]]:
    """Serve on a free port; gives what opens a connection."""
    guarded, ready = asked or Guard(app, check_access("127.0.0.1", TOKEN)), asyncio.Event()
    server = serving.Server(guarded, ready.set, lambda: None)
    listening = socket.create_server(("127.0.0.1", 0))
    running = asyncio.create_task(server._serve([listening]))
    await ready.wait()
    port, opened = listening.getsockname()[1], list[asyncio.StreamWriter]()

    async def connect() -> Streams:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        opened.append(writer)
        return reader, writer

    try:
        yield connect
    finally:
        for writer in opened:
            writer.transport.abort()
        server.should_exit = True
        await running


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "LONGEST_SILENT_S", SILENT_S)
    monkeypatch.setattr(serving, "LOOK_TICKS", 1)


async def answered(streams: Streams, asked: bytes = HEAD + b"\r\n") -> bytes:
    reader, writer = streams
    writer.write(asked)
    return await asyncio.wait_for(reader.readuntil(b"answer"), 10.0)


async def dribble(streams: Streams, part: bytes = b"x-more: 1\r\n") -> float:
    """Send a little now and then, until the server has had enough; returns after how many seconds."""
    reader, writer = streams
    begun_s, ended = time.monotonic(), asyncio.ensure_future(reader.read())
    try:
        while not ended.done() and time.monotonic() < begun_s + 30.0:
            writer.write(part)
            await asyncio.wait({ended}, timeout=0.05)
        await ended
    except ConnectionError:
        pass
    return time.monotonic() - begun_s


def test_a_request_that_only_dribbles_in_is_dropped_at_any_time_of_a_connection() -> None:
    async def scenario() -> None:
        async with served() as connect:
            first, second, refused = await connect(), await connect(), await connect()
            assert (await answered(second)).startswith(b"HTTP/1.1 200")
            # A body that nobody asked for, after a refusal.
            refused[1].write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n")
            assert b"401" in await refused[0].readline()
            first[1].write(b"GET / HTTP/1.1\r\n")
            second[1].write(b"GET / HTTP/1.1\r\n")
            took_s = await asyncio.gather(dribble(first), dribble(second), dribble(refused, b"x"))
            assert all(SILENT_S * 0.5 < each < 10 * SILENT_S for each in took_s), took_s

    asyncio.run(scenario())


def test_a_client_that_does_not_read_its_answer_is_dropped() -> None:
    async def scenario() -> None:
        async with served() as connect:
            reader, writer = await connect()
            writer.write(HEAD.replace(b"GET /", b"GET /long") + b"\r\n")
            await asyncio.sleep(4 * SILENT_S)
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(len(LONG_ANSWER))

    asyncio.run(scenario())


def test_an_answer_may_take_longer_than_a_request() -> None:
    async def scenario() -> None:
        async with served() as connect:
            streams = await connect()
            assert b"begun" in await answered(streams, HEAD.replace(b"GET /", b"GET /slow") + b"\r\n")
            # And the connection is kept.
            assert b"HTTP/1.1 200" in await answered(streams)

    asyncio.run(scenario())


def test_connections_that_say_nothing_make_room_for_those_that_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the ones that are being answered none is dropped."""
    monkeypatch.setattr(serving, "LONGEST_SILENT_S", 60.0)
    monkeypatch.setattr(serving, "MOST_CONNECTIONS", 8)

    async def scenario() -> None:
        async with served() as connect:
            slow = await connect()
            waiting = asyncio.create_task(answered(slow, HEAD.replace(b"GET /", b"GET /slow") + b"\r\n"))
            idle = [await connect() for _ in range(40)]
            for _reader, writer in idle:
                writer.write(b"GET / HT")
            for _ in range(20):
                assert (await answered(await connect())).startswith(b"HTTP/1.1 200")
            assert b"begun" in await waiting

    asyncio.run(scenario())


def test_what_is_no_http_in_the_middle_of_an_answer_ends_the_connection_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with served() as connect:
            streams = await connect()
            chunked = HEAD.replace(b"GET /", b"POST /slow") + b"Transfer-Encoding: chunked\r\n\r\n"
            streams[1].write(chunked)
            await streams[0].readuntil(b"begun")
            streams[1].write(b"no chunk\r\n")
            await asyncio.wait_for(streams[0].read(), 10.0)
            assert (await answered(await connect())).startswith(b"HTTP/1.1 200")

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    assert caplog.records == []


def test_who_hangs_up_in_the_middle_of_a_body_leaves_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with served(build_app(None, check_access("127.0.0.1", TOKEN))) as connect:
            _reader, writer = await connect()
            post = HEAD.replace(b"GET /", b"POST /api/answers") + b"Content-Type: application/json\r\n"
            writer.write(post + b"Content-Length: 100\r\n\r\n{")
            await writer.drain()
            await asyncio.sleep(0.1)
            writer.transport.abort()
            await asyncio.sleep(0.1)

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    assert caplog.records == []


def test_beyond_so_many_requests_at_a_time_all_others_are_told_to_ask_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("charllm.explorer.safety.MOST_ANSWERED", 0)
    refused = Client().get("/api/choices")
    assert (refused.status_code, refused.headers["retry-after"], refused.json()["status"]) == (429, "1", 429)
    # Who has no token takes nobody's place.
    assert Client(token=TOKEN).get("/api/choices").status_code == 401
