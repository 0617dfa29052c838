"""Requests that a browser would send to the explorer, with one thing changed."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any
from urllib.parse import quote, urlencode

from charllm.explorer.request import PLAN_KEYS, WORDS
from tests.explorer.runs import SMALL

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
        "charllm_page=a; charllm_page=b", "=;=;=", "[::1", "127.0.0.1:99999", "user@127.0.0.1", "x" * 9000,
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
        asked.headers.append(("Cookie", f"charllm_page={offered}"))
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
