"""Messages of nodes that the head of a measurement cannot read, and bytes of strangers; the head must outlive them."""

import json
import socket
from pathlib import Path
from random import Random
from typing import Any

from charllm.measure.client import HEAD_FILE
from charllm.measure.handshake import answer_challenge
from charllm.measure.rendezvous import Rendezvous
from tests.hostile.mutations import damage_bytes, damage_json

SOUND: tuple[dict[str, Any], ...] = (
    {"say": "hello", "node": "n0", "rank": 0},
    {"say": "time"},
    {"say": "ready", "gpus": ["H200", "H200"]},
    {"say": "refuse", "why": "other GPUs"},
    {"say": "ended", "code": 0, "stopped": ""},
    {"say": "bye"},
)
LOOPBACK, PATIENCE_S, PROOF_BYTES = "127.0.0.1", 5.0, 32


def damage_messages(random: Random) -> list[bytes]:
    """Return the messages of a node, some of them damaged, repeated or in another order."""
    lines = [json.dumps(message).encode() for message in SOUND]
    if random.random() < 0.3:
        random.shuffle(lines)
    for _ in range(random.choice((1, 1, 2))):
        place = random.randrange(len(lines))
        lines[place] = random.choice((damage_json, damage_json, damage_bytes))(lines[place], random)
    return lines


def talk_to_head(folder: Path, lines: list[bytes], strange: bytes) -> int:
    """Send bytes as a stranger, then lines as a node; fails where the head no longer challenges who comes next."""
    head = Rendezvous(folder, 1, addresses=(LOOPBACK,))
    try:
        found = json.loads((folder / HEAD_FILE).read_text(encoding="utf-8"))
        place = (LOOPBACK, found["addresses"][0][1])
        with socket.create_connection(place, PATIENCE_S) as stranger:
            stranger.sendall(strange)
        with socket.create_connection(place, PATIENCE_S) as node:
            if not answer_challenge(node, found["token"], PATIENCE_S):
                raise RuntimeError("the head does not prove its token")
            _send(node, b"".join(line + b"\n" for line in lines))
        with socket.create_connection(place, PATIENCE_S) as later:
            if len(later.recv(PROOF_BYTES)) < PROOF_BYTES:
                raise RuntimeError("the head no longer answers")
    finally:
        head.close(0.0)
    return 0


def _send(node: socket.socket, data: bytes) -> None:
    """Send all, and read until the head has heard it or has hung up."""
    try:
        node.sendall(data)
        node.shutdown(socket.SHUT_WR)
        while node.recv(1 << 16):
            pass
    except OSError:
        # The head lets go of who cannot be read.
        return
