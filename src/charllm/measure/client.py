"""A node's side of the rendezvous: its one connection to the head, found by the head's file."""

import contextlib
import json
import select
import socket
import threading
import time
from pathlib import Path
from typing import Any

from charllm.errors import CharllmError
from charllm.measure.clock import Stamp
from charllm.measure.handshake import answer_challenge
from charllm.measure.link import CONNECT_S, TURN_S, UNREADABLE, Link, Message, pause

HEAD_FILE = "head.json"
"""Where the head listens, and the token of the run."""
BEAT_S, LOST_S = 1.0, 15.0
"""A node that has not been heard for LOST_S is lost."""
MEET_S = 300.0
"""Until every node must have come."""


class RendezvousError(CharllmError):
    """The head cannot be reached, or has gone."""


class Client:
    """A node's side."""

    def __init__(self, link: Link, head: str) -> None:
        self._link = link
        self.head = head
        """Address by which this node reaches the head."""
        self._waiting: list[Message] = []
        self.closed = False
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()

    def ask_time(self) -> Stamp:
        """Return the head's clocks now."""
        self._say({"say": "time"})
        stamp = self._await("time")["stamp"]
        return int(stamp[0]), int(stamp[1])

    def say(self, what: str, **details: Any) -> None:
        """Tell the head something; one who has gone is found when it is listened to."""
        self._say({"say": what, **details})

    def leave(self) -> None:
        """Say goodbye, so that we are not taken for lost."""
        with contextlib.suppress(RendezvousError):
            self._say({"say": "bye"})
            self._await("bye")
        self.close()

    def close(self) -> None:
        """Let go of the head; one who has not taken leave is then lost to it."""
        self.closed = True
        self._link.socket.close()

    def listen(self, wait_s: float) -> Message | None:
        """Return a message of the head, if one comes within a while."""
        if self._waiting:
            return self._waiting.pop(0)
        if self.closed:
            pause(wait_s)
            return None
        ready, _, _ = select.select([self._link.socket], [], [], wait_s)
        if ready:
            try:
                messages, self.closed = self._link.receive()
            except UNREADABLE:
                messages, self.closed = [], True
            self._waiting += messages
        return self._waiting.pop(0) if self._waiting else None

    def _beat(self) -> None:
        """Be heard, whatever this node waits for."""
        while not self.closed and self._link.send({"say": "beat"}):
            pause(BEAT_S)

    def _say(self, message: Message) -> None:
        if self.closed or not self._link.send(message):
            self.closed = True

    def _await(self, *wanted: str) -> Message:
        end_s = time.monotonic() + LOST_S
        kept: list[Message] = []
        while not self.closed or self._waiting:
            message = self.listen(TURN_S)
            if message is not None and message.get("say") in wanted:
                self._waiting = kept + self._waiting
                return message
            kept += [] if message is None else [message]
            if time.monotonic() > end_s:
                break
        self._waiting = kept + self._waiting
        raise RendezvousError("the head node no longer answers")


def join(folder: Path, name: str, rank: int, patience_s: float = MEET_S) -> Client:
    """Find the head by its file and take a client."""
    end_s = time.monotonic() + patience_s
    while True:
        found = _find_head(folder, name, rank)
        if found is not None:
            return found
        if time.monotonic() > end_s:
            raise RendezvousError(f"node {name} cannot reach the head node (see {folder / HEAD_FILE})")
        pause(TURN_S)


def _find_head(folder: Path, name: str, rank: int) -> Client | None:
    try:
        where = json.loads((folder / HEAD_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    for address, port in where["addresses"]:
        with contextlib.suppress(OSError), contextlib.ExitStack() as failed:
            link = failed.enter_context(socket.create_connection((address, port), CONNECT_S))
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if answer_challenge(link, where["token"], CONNECT_S) and _is_welcome(link, name, rank):
                failed.pop_all()
                return Client(Link(link), address)
    return None


def _is_welcome(link: socket.socket, name: str, rank: int) -> bool:
    link.settimeout(CONNECT_S)
    hello = Link(link)
    hello.send({"say": "hello", "node": name, "rank": rank})
    messages, _ = hello.receive()
    link.settimeout(None)
    return [message["say"] for message in messages] == ["welcome"]
