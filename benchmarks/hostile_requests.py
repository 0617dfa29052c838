"""Mutated requests to the explorer: no fault of the server, no answer over 10 s, nothing read or written elsewhere.

    python -m benchmarks.hostile_requests [COUNT] [SEED] [KIND]

Each request is one that a browser would send with one thing changed: its path, query, body, headers, token, method, or
how it goes over the wire. Exit code 1 when one is answered with a status of 500 or more or not at all, when a worker is
lost, when the server prints anything, or when a file of the store or beside it has changed.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import h11

from benchmarks.explorer import Server, serving
from charllm.explorer.request import PLAN_KEYS, WORDS
from tests.explorer.runs import SMALL, write_broken, write_store

COUNT, SEED, AT_ONCE = 10_000, 0, 8
LONGEST_S, ANSWER_BYTES = 10.0, 200_000
SHOWN_FAULTS = 20
SECRET = b'"secret"'
"""What lies in the files outside of the store."""
PLACES = ("runs/two", "runs/four", "study", "running", "killed", "half", "deep", "foreign", "pipe", "link", "notes")
PATHS = ("/", "/assets/report.js", "/assets/explorer.css", "/api/choices", "/api/store", "/nowhere")
TEXTS = (
    "", " ", "\0", "../outside", "..", "/etc/passwd", "runs/../../outside", "runs/two/../../../outside", ".",
    "%2e%2e/outside", "runs\\two", "~root", "file:///etc/passwd", "http://127.0.0.1:1/", "a" * 5000, "\ud800",
    "é" * 300,
    "\u202e", "<script>alert(1)</script>", "'; DROP TABLE runs; --", "$(id)", "`id`", "{0}", "%s%n", "NaN", "null",
    "true", "1e400", "-1", "\U0001d7d9", "\r\nx-injected: yes", "CON", "runs/two\n", "result.json",
    "runs/two/result.json",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 3, 7, 8, 64, 2**31, 2**63, 10**30, -(2**63), 0.5, -0.0, 1e-300, 1e300, float("inf"),
    float("nan"), [], [1], [1] * 65, [[1]], [None], ["a"], {}, {"a": 1}, {"base": "h200x8"}, "1", "auto", *TEXTS,
)  # fmt: skip
METHODS = ("HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "get", "G" * 300, "POST", "GET")
NAMES = (
    "Host", "Origin", "Sec-Fetch-Site", "Cookie", "Content-Type", "Content-Length", "Transfer-Encoding", "Connection",
    "Upgrade", "Expect", "Accept", "Range", "If-None-Match", "X-Forwarded-For", "X-Forwarded-Host", "Referer",
    "X" * 200,
)  # fmt: skip


@dataclass
class Asked:
    """One request before it is written."""

    method: str = "GET"
    path: str = "/"
    query: str = ""
    body: bytes | None = None
    headers: list[tuple[str, str]] = field(default_factory=list)


class Fault(NamedTuple):
    """A request that was not answered as it should be."""

    kind: str
    number: int
    said: str
    sent: bytes


def draw_asked(draw: Random, token: str) -> Asked:
    """Draw a request that a browser could send."""
    choice = draw.randrange(8)
    headers = [("Host", "127.0.0.1"), ("Authorization", f"Bearer {token}")]
    if choice < 4:
        body = draw_body(draw, choice == 3)
        headers.append(("Content-Type", "application/json"))
        path = ("/api/answers", "/api/answers", "/api/changes", "/api/plan")[choice]
        return Asked("POST", path, "", json.dumps(body).encode(), headers)
    if choice < 6:
        path = draw.choice(("/api/store/page", "/api/store/compare", "/api/live"))
        places = [draw.choice(PLACES) for _ in range(2 if path.endswith("compare") else 1)]
        return Asked("GET", path, urlencode([("path", place) for place in places]), None, headers)
    return Asked("GET", draw.choice(PATHS), "", None, headers)


def draw_body(draw: Random, is_plan: bool) -> dict[str, Any]:
    body: dict[str, Any] = {"client": f"client {draw.randrange(50)}", "request": dict(SMALL)}
    return body | ({"top": 1} if is_plan else {"coupled": draw.random() < 0.1})


def change_path(draw: Random, asked: Asked) -> None:
    parts = asked.path.split("/")
    parts[draw.randrange(len(parts))] = quote(draw.choice(TEXTS), safe=draw.choice(("", "/.%")), errors="replace")
    asked.path = "/" + "/".join(parts).lstrip("/") if draw.random() < 0.9 else "/".join(parts)


def change_query(draw: Random, asked: Asked) -> None:
    text = quote(draw.choice(TEXTS), safe=draw.choice(("", "/.%&=")), errors="replace")
    name = draw.choice(("path", "path", "path", "token", "nothing", ""))
    asked.query = "&".join([asked.query] * draw.randrange(2) + [f"{name}={text}"] * draw.choice((1, 1, 1, 9, 100)))


def change_body(draw: Random, asked: Asked) -> None:
    """Change a value, a key or a byte of a body; a request without one gets one."""
    if asked.body is None:
        asked.method, asked.path, asked.query = "POST", "/api/answers", ""
        asked.headers.append(("Content-Type", "application/json"))
    body = draw_body(draw, asked.path == "/api/plan")
    where = draw.randrange(6)
    if where == 0:
        body[draw.choice((*PLAN_KEYS, "coupled", *TEXTS))] = draw.choice(VALUES)
    elif where == 1:
        del body[draw.choice(list(body))]
    elif where < 5:
        for _ in range(draw.choice((1, 1, 2, 3))):
            body["request"][draw.choice((*WORDS, *WORDS, draw.choice(TEXTS)))] = draw.choice(VALUES)
    asked.body = json.dumps(body).encode()
    if where == 5:
        asked.body = draw_broken(draw, asked.body)


def draw_broken(draw: Random, body: bytes) -> bytes:
    """Draw what is hardly JSON any more."""
    place = draw.randrange(len(body))
    return draw.choice((
        lambda: body[:place],
        lambda: body[:place] + bytes([draw.randrange(256)]) + body[place + 1 :],
        lambda: b"[" * 30_000,
        lambda: b'{"a":' * 8_000,
        lambda: body.replace(b"8", b"9" * 6_000),
        lambda: body.replace(b"32", b"1e999"),
        lambda: b"\xff\xfe" + body,
        lambda: body + body,
        lambda: body.replace(b'"tp"', b'"gbs"'),
        lambda: b" " * 70_000,
        lambda: b"",
    ))()  # fmt: skip


def change_header(draw: Random, asked: Asked) -> None:
    name = draw.choice(NAMES)
    known = (
        "127.0.0.1", "evil.example", "null", "http://evil.example", "cross-site", "chunked", "gzip", "text/plain", "0",
        "-1", "99999999999999999999", "keep-alive", "websocket", "100-continue", "bytes=0-", "application/json; a=\"",
        "charllm_token=a; charllm_token=b", "=;=;=", "[::1", "127.0.0.1:99999", "user@127.0.0.1", "x" * 9000,
    )  # fmt: skip
    value = draw.choice((*known, *TEXTS)).replace("\r\n", "  ")
    if draw.random() < 0.5:
        asked.headers = [each for each in asked.headers if each[0] != name]
    asked.headers.insert(draw.randrange(len(asked.headers) + 1), (name, value))


def change_token(draw: Random, asked: Asked) -> None:
    token = dict(asked.headers)["Authorization"].partition(" ")[2]
    offered = draw.choice(("", token[:-1], token + "a", token.swapcase(), token[::-1], "\0", "é" * 24, "a" * 9000))
    asked.headers = [each for each in asked.headers if each[0] != "Authorization"]
    where = draw.randrange(3)
    if where == 0:
        asked.headers.append(("Authorization", f"{draw.choice(('Bearer', 'bearer', 'Basic', ''))} {offered}"))
    elif where == 1:
        asked.headers.append(("Cookie", f"charllm_token={offered}"))
    else:
        asked.query += f"&token={quote(offered)}"


def change_method(draw: Random, asked: Asked) -> None:
    asked.method = draw.choice(METHODS)


CHANGES: dict[str, Callable[[Random, Asked], None]] = {
    "path": change_path,
    "query": change_query,
    "body": change_body,
    "header": change_header,
    "token": change_token,
    "method": change_method,
}
"""Name of what is changed in a request: the function that changes it."""
KINDS = (*CHANGES, "wire")


def draw_sent(kind: str, seed: int, number: int, token: str) -> bytes:
    """Draw the bytes of one mutated request; the same for the same numbers and token."""
    draw = Random(f"{seed}/{kind}/{number}")
    asked = draw_asked(draw, token)
    if kind != "wire":
        CHANGES[kind](draw, asked)
        return written(asked)
    data = bytearray(written(asked))
    for _ in range(draw.choice((1, 1, 2, 5))):
        place = draw.randrange(len(data))
        part = draw.choice((b"\r\n", b"\n", b"\0", b"\xff", b" ", b":", b"HTTP/9.9", b"\r\n\r\n", bytes(9000)))
        data[place : place + draw.choice((0, 1, len(part)))] = part
    return bytes(data)


def written(asked: Asked) -> bytes:
    """Write a request as it goes over the wire."""
    target = asked.path + (f"?{asked.query}" if asked.query else "")
    headers = [f"{name}: {value}" for name, value in asked.headers]
    names = {name.lower() for name, _value in asked.headers}
    if asked.body is not None and not names & {"content-length", "transfer-encoding"}:
        headers.append(f"Content-Length: {len(asked.body)}")
    head = "\r\n".join([f"{asked.method} {target} HTTP/1.1", *headers, "", ""])
    return head.encode("utf-8", "surrogatepass") + (asked.body or b"")


async def ask(server: Server, kind: str, number: int, seed: int) -> tuple[str, float, Fault | None]:
    """Send one; return its status, how long that took, and what was wrong."""
    sent, begun_s = draw_sent(kind, seed, number, server.token), time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=2**26)
    answer = b""
    try:
        writer.write(sent)
        if not is_whole(sent):
            # A server that waits for more is told that none will come.
            writer.write_eof()
        async with asyncio.timeout(LONGEST_S):
            answer = await read_answer(reader)
    except TimeoutError:
        return "none", LONGEST_S, Fault(kind, number, f"no answer in {LONGEST_S:g} s", sent)
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()
    took_s = time.monotonic() - begun_s
    status = answer[9:12].decode("latin-1") if answer.startswith(b"HTTP/1.1 ") else "closed"
    said = ""
    if status >= "500" and status != "closed":
        said = f"status {status}: {answer[-200:]!r}"
    elif b'event: error\ndata: {"status":5' in answer:
        said = f"an error of the server in a stream: {answer[-200:]!r}"
    elif SECRET in answer:
        said = "a file outside of the store was read"
    elif status == "closed" and is_whole(sent):
        said = "closed without an answer"
    return status, took_s, Fault(kind, number, said, sent) if said else None


def is_whole(sent: bytes) -> bool:
    """Tell whether some bytes are one whole request of HTTP, or none at all."""
    parser = h11.Connection(h11.SERVER)
    try:
        parser.receive_data(sent)
        while (event := parser.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            if isinstance(event, h11.EndOfMessage):
                return True
    except h11.RemoteProtocolError:
        return True
    return False


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    """Read a head and what follows, up to the first event of a stream that goes on."""
    head = await reader.readuntil(b"\r\n\r\n")
    lowered = head.lower()
    if b"text/event-stream" in lowered:
        return head + await reader.readuntil(b"\n\n")
    if b"content-length: " in lowered:
        length = int(lowered.partition(b"content-length: ")[2].split(b"\r\n")[0])
        return head + await reader.read(min(length, ANSWER_BYTES))
    return head + await reader.read(ANSWER_BYTES)


@contextmanager
def attacked(folder: Path) -> Iterator[tuple[Server, Callable[[], list[str]]]]:
    """Serve a store with hostile folders; gives the server, and what says what it has cost."""
    store = write_broken(write_store(folder / "store"))
    before, errors = _listed(folder), folder.with_name(f"{folder.name}.errors")
    with serving(str(store), errors=errors) as server:
        workers = server.processes()[:4]

        def costs() -> list[str]:
            lost = [f"worker {number} was lost" for number in workers if number not in server.processes()]
            changed = [f"{path} was written" for path, seen in _listed(folder).items() if before.get(path) != seen]
            gone = [f"{path} was deleted" for path in before if path not in _listed(folder)]
            said = [f"said: {line}" for line in errors.read_text().splitlines()[1:]]
            return [*lost, *changed, *gone, *said]

        yield server, costs


def _listed(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path.relative_to(folder)): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in folder.rglob("*")
    }


async def attack(
    server: Server, count: int, seed: int, kinds: tuple[str, ...]
) -> tuple[Counter[str], float, list[Fault]]:
    """Send so many, some at a time; return how they were answered, the longest time, and what was wrong."""
    tally, faults, turn, longest_s = Counter[str](), list[Fault](), asyncio.Semaphore(AT_ONCE), 0.0

    async def one(number: int) -> None:
        nonlocal longest_s
        async with turn:
            status, took_s, fault = await ask(server, kinds[number % len(kinds)], number, seed)
        tally[status] += 1
        longest_s = max(longest_s, took_s)
        if fault is not None:
            faults.append(fault)

    await asyncio.gather(*(one(number) for number in range(count)))
    return tally, longest_s, faults


def main(words: list[str]) -> None:
    given = [int(word) for word in words[:2]]
    count, seed = (*given, *(COUNT, SEED)[len(given) :])
    kinds = tuple(words[2:]) or KINDS
    with tempfile.TemporaryDirectory() as place, attacked(Path(place)) as (server, costs):
        tally, longest_s, faults = asyncio.run(attack(server, count, seed, kinds))
        cost = costs()
    answered = ", ".join(f"{number} {status}" for status, number in sorted(tally.items()))
    print(f"{count} mutated requests: longest answer {longest_s:.2f} s; {answered}")
    for fault in faults[:SHOWN_FAULTS]:
        print(f"  {fault.kind}:{fault.number}: {fault.said}\n    {fault.sent[:300]!r}")
    for line in cost:
        print(f"  {line}")
    print(f"{len(faults)} faults, {len(cost)} side effects")
    sys.exit(bool(faults or cost))


if __name__ == "__main__":
    main(sys.argv[1:])
