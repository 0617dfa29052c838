"""Serve the metrics of a run over HTTP while it is recorded, without letting a scraper cost the job anything.

One answer is kept for a second, however many ask. At most `MOST_CONNECTIONS` are open; each is closed after
`LONGEST_S`, whether it sends a byte now and then or reads its answer slowly. Nothing that a scraper sends is stored.
"""

import contextlib
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from charllm.errors import SpecError
from charllm.measure.live.metrics import text_of
from charllm.measure.settings import parse_address

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
KEPT_S = 1.0
MOST_CONNECTIONS = 16
QUIET_S, LONGEST_S, POLL_S = 3.0, 10.0, 0.5
"""A connection is closed when nothing moves for the first, or when it is older than the second."""


class _Kept:
    """An answer that is written at most once a second."""

    def __init__(self, write: Callable[[], bytes]) -> None:
        self._write, self._lock = write, threading.Lock()
        self._text, self._written_s = b"", -KEPT_S

    def read(self) -> bytes:
        with self._lock:
            if time.monotonic() - self._written_s >= KEPT_S:
                self._text = self._write()
                self._written_s = time.monotonic()
            return self._text


class _Handler(BaseHTTPRequestHandler):
    timeout = QUIET_S
    server_version, sys_version = "charllm", ""
    server: "_Server"

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        if path not in ("/metrics", "/"):
            self.send_error(404, "Metrics are at /metrics")
            return
        text = self.server.kept.read() if path == "/metrics" else b"charllm: metrics are at /metrics\n"
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if with_body:
            self.wfile.write(text)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing: stderr belongs to the job."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], kept: _Kept) -> None:
        self.kept = kept
        self._open: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002
        """Take a connection unless too many are open."""
        with self._lock:
            if len(self._open) >= MOST_CONNECTIONS:
                return False
            self._open[request] = time.monotonic()
        return True

    def service_actions(self) -> None:
        """Close connections that take too long, however busy they look."""
        with self._lock:
            late = [each for each, since_s in self._open.items() if time.monotonic() - since_s > LONGEST_S]
        for request in late:
            with contextlib.suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection that has ended."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of scrapers that hang up."""


@contextlib.contextmanager
def serving(folder: Path, asked: str) -> Iterator[str]:
    """Serve the metrics of a run beside what happens inside; gives the address that scrapers ask."""
    host, port = parse_address(asked)
    kept = _Kept(text_of(folder))
    try:
        server = _Server((host, port), kept)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise SpecError("--prometheus", asked, f"an address of this machine that is free ({reason})") from None
    thread = threading.Thread(target=server.serve_forever, args=(POLL_S,), daemon=True)
    thread.start()
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{server.server_address[1]}/metrics"
    print(f"charllm: metrics for Prometheus at {address}", file=sys.stderr, flush=True)
    try:
        yield address
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
