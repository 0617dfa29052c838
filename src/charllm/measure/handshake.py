"""Two processes of a run prove to each other that they hold its token, before either parses a byte of the other's.

    head: challenge    node: nonce, HMAC(token, "node" challenge nonce)    head: HMAC(token, "head" challenge nonce)

Challenge and nonce are random, so that a proof that was overheard is worth nothing later; the token is never sent. All
parts have a fixed length. HMAC is that of SHA-256 (RFC 2104).

Ignores: those who can change the packets of a connection that others have opened.
"""

import hmac
import secrets
import socket
import time

PART_BYTES = 32
"""A challenge, a nonce or a proof."""
NODE, HEAD = b"node", b"head"


def _prove(token: str, role: bytes, challenge: bytes, nonce: bytes) -> bytes:
    return hmac.digest(token.encode(), role + challenge + nonce, "sha256")


class Challenge:
    """What the head asks of one who connects."""

    def __init__(self, token: str) -> None:
        self._token = token
        self.bytes = secrets.token_bytes(PART_BYTES)
        self._answer = b""

    @property
    def missing_bytes(self) -> int:
        """How much of the answer has not come."""
        return 2 * PART_BYTES - len(self._answer)

    def add(self, data: bytes) -> bytes | None:
        """Take a piece of the answer; returns our own proof, empty while more must come, None for a wrong answer."""
        self._answer += data
        if self.missing_bytes:
            return b""
        nonce, proof = self._answer[:PART_BYTES], self._answer[PART_BYTES:]
        right = hmac.compare_digest(proof, _prove(self._token, NODE, self.bytes, nonce))
        return _prove(self._token, HEAD, self.bytes, nonce) if right else None


def answer_challenge(link: socket.socket, token: str, patience_s: float) -> bool:
    """Prove to the head that we hold the token; tell whether it holds it too."""
    end_s = time.monotonic() + patience_s
    challenge, nonce = _receive(link, end_s), secrets.token_bytes(PART_BYTES)
    link.sendall(nonce + _prove(token, NODE, challenge, nonce))
    return hmac.compare_digest(_receive(link, end_s), _prove(token, HEAD, challenge, nonce))


def _receive(link: socket.socket, end_s: float) -> bytes:
    """Return one part; OSError where it does not come in time."""
    found = b""
    while len(found) < PART_BYTES:
        link.settimeout(max(0.001, end_s - time.monotonic()))
        data = link.recv(PART_BYTES - len(found))
        if not data:
            raise ConnectionError("closed before it had proved anything")
        found += data
    return found
