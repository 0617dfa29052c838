"""Who may ask: hosts, origins and the token; and the headers that keep a browser from doing more than it should."""

import hmac
import ipaddress
import json
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from charllm.errors import SpecError

MOST_ANSWERED = 512
"""Requests with the token that are answered at a time."""
COOKIE, PAGE = "charllm_page", b"page"
"""Cookie that lets a browser load the files of the page, and what it is derived for. A browser sends it to every port
of this host, so that it must not be worth anything there: what is asked of `/api` needs the token itself.
"""
API = "/api/"
LEAST_TOKEN = 16
HEADERS = {
    # Scripts and styles come from files of ours alone: what is drawn sets styles one by one.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
UNCACHED = "no-store"


@dataclass(frozen=True, slots=True)
class Access:
    """Where the server listens, and what it asks of those who come."""

    host: str
    token: str = field(repr=False)
    """Asked of every client: on a shared machine, other users can connect to a loopback address, too."""
    names: frozenset[str] = frozenset({"localhost"})
    """Names under which it is reached, beside numbers."""

    def knows_host(self, name: str) -> bool:
        """Tell whether a Host header names this server: another name may be an attacker's that was made to lead here.

        A number cannot be such a name.
        """
        return is_loopback(name) or name in self.names or (not is_loopback(self.host) and _is_number(name))


def check_access(host: str, token: str | None) -> Access:
    """Return where the server listens and the token that every client must send: the one given, or a random one."""
    if token is not None and (len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable()):
        raise SpecError("--token", "a shorter or unprintable one", f"at least {LEAST_TOKEN} ASCII characters")
    names = {"localhost", host.lower()}
    if not is_loopback(host):
        names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    return Access(host, token or secrets.token_urlsafe(24), frozenset(names))


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can connect to an address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class Guard:
    """Turns away who may not ask, before anything else is done; adds headers to every response."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access
        self._page_key = hmac.new(access.token.encode(), PAGE, "sha256").hexdigest()
        self._answered = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        guarded, refused = _with_headers(send, {}), self._refusal(scope, headers)
        if refused is not None:
            await _refuse(guarded, *refused)
            return
        if self._answered >= MOST_ANSWERED:
            await _refuse(_with_headers(guarded, {"retry-after": "1"}), 429, "the server is busy; ask again in 1 s")
            return
        if self._matches(_asked_token(scope)):
            cookie = f"{COOKIE}={self._page_key}; HttpOnly; SameSite=Strict; Path=/"
            guarded = _with_headers(send, {"set-cookie": cookie})
        self._answered += 1
        try:
            await self._app(scope, receive, guarded)
        finally:
            self._answered -= 1

    def _refusal(self, scope: Scope, headers: Mapping[str, str]) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if not self._access.knows_host(_host_name(host)):
            return 421, f"this server is not {host[:80]!r}"
        if scope["method"] not in ("GET", "HEAD") and not _is_own_page(headers, host):
            return 403, "only pages of this server may ask"
        if not self._is_known(scope, headers):
            return 401, "a token is needed: open the address that `charllm serve` printed, or send it as a bearer token"
        return None

    def _is_known(self, scope: Scope, headers: Mapping[str, str]) -> bool:
        """Tell whether a request carries the token in a header; for files of the page, address or cookie will do."""
        scheme, _space, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._matches(bearer):
            return True
        if scope["path"].startswith(API):
            return False
        return self._matches(_asked_token(scope)) or _same(_cookie(headers.get("cookie", "")), self._page_key)

    def _matches(self, offered: str) -> bool:
        return _same(offered, self._access.token)


def _same(offered: str, expected: str) -> bool:
    return secrets.compare_digest(offered.encode(), expected.encode())


def _asked_token(scope: Scope) -> str:
    """Return the token in the address of a request."""
    query: bytes = scope["query_string"]
    return parse_qs(query.decode("latin-1")).get("token", [""])[0]


def _host_name(host: str) -> str:
    """Return the name in a Host header without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_own_page(headers: Mapping[str, str], host: str) -> bool:
    """Tell whether a request that does something comes from a page of this server, or from no browser."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    try:
        return "origin" not in headers or urlsplit(headers["origin"]).netloc == host
    except ValueError:
        return False


def _cookie(text: str) -> str:
    try:
        found = SimpleCookie(text).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found is not None else ""


def _with_headers(send: Send, more: Mapping[str, str]) -> Send:
    """Add the headers of every response; one that says nothing of caching is not kept."""

    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            present = {name.lower() for name, _value in message["headers"]}
            wanted = {**HEADERS, "cache-control": UNCACHED, **more}
            added = [(name.encode(), value.encode()) for name, value in wanted.items() if name.encode() not in present]
            message = {**message, "headers": [*message["headers"], *added]}
        await send(message)

    return guarded


async def _refuse(send: Send, status: int, message: str) -> None:
    body = json.dumps({"status": status, "field": "", "message": message}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
