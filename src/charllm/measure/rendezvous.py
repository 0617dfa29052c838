"""Where the nodes of a run meet: the head listens, every node's agent (the head's own, too) keeps one connection to it.

Both sides first prove that they hold the run's token (measure/handshake.py); one who cannot, or takes too long, is
dropped. Then they exchange lines of JSON over TCP, and a line that cannot be read ends its own connection only. A node
says hello, asks the time as often as it likes, says `ready` and waits for `go`; it says `ended` when its part has,
waits for `rest`, when all have, and says `bye`. A beat each second shows that it lives. The head says `stop` to those
who still run when one has failed, was lost (its connection broke, or its beats ceased), when time is up or someone has
asked for the end. The head shows that it lives by touching its file.
"""

import contextlib
import json
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from charllm.measure.addresses import free_port, own_addresses
from charllm.measure.client import BEAT_S, HEAD_FILE, LOST_S, MEET_S
from charllm.measure.handshake import Challenge
from charllm.measure.link import CONNECT_S, TURN_S, UNREADABLE, Link, Message, pause
from charllm.result.store import PRIVATE, write_text

STOP_FILE = "stop"
"""A file that asks the head to end the run."""
AFTER_FAILURE_S = 10.0
"""Left to the other nodes to end by themselves, once one has failed."""
LONGEST_NAME = 255
STRANGER_S, MOST_STRANGERS = 5.0, 64
"""Until one who connects must have proved the token and said hello; how many beside the nodes may try at once."""


@dataclass
class Slot:
    """A node as the head knows it."""

    name: str
    rank: int
    heard_s: float
    gpus: list[str] | None = None
    """Names of its GPUs, once it is ready."""
    ended: bool = False
    gone: bool = False
    lost: str = ""
    """Why it is taken for lost."""


@dataclass
class Verdict:
    """How the head saw the run end."""

    kind: str = ""
    """Why the head ended the run: node_loss, time_out, cancelled or refused; empty where it did not."""
    node: str = ""
    message: str = ""
    events: list[Message] = field(default_factory=list)


class Rendezvous:
    """The head's side, in a thread of its own."""

    def __init__(
        self,
        folder: Path,
        nodes: int,
        judge_gpus: Callable[[dict[str, list[str]]], str] = lambda _found: "",
        time_limit_s: float | None = None,
        addresses: Sequence[str] = (),
        lost_s: float = LOST_S,
        meet_s: float = MEET_S,
    ) -> None:
        """Listen on these addresses of ours, or on all where it is not known which the nodes reach."""
        self._folder, self._nodes, self._judge = folder, nodes, judge_gpus
        self._limit_s, self._lost_s, self._meet_s = time_limit_s, lost_s, meet_s
        self.verdict = Verdict()
        self.slots: dict[str, Slot] = {}
        self._token = secrets.token_hex(32)
        self._selector = selectors.DefaultSelector()
        self._servers = [socket.create_server((one, 0), backlog=nodes + MOST_STRANGERS) for one in addresses or ("",)]
        self._strangers: dict[socket.socket, _Stranger] = {}
        self._links: dict[socket.socket, _NodeLink] = {}
        self._began_s = time.monotonic()
        self._touched_s = self._looked_s = self._began_s
        self._go_s: float | None = None
        self._stopping = self._done = False
        self._failed_s: float | None = None
        self._over = threading.Event()
        for server in self._servers:
            server.setblocking(False)
            self._selector.register(server, selectors.EVENT_READ, partial(self._accept, server))
        bound = [server.getsockname()[:2] for server in self._servers]
        places = bound if addresses else [(one, bound[0][1]) for one in own_addresses()]
        # Who knows the token may end the run.
        write_text(json.dumps({"addresses": places, "token": self._token}), folder / HEAD_FILE, PRIVATE)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self, patience_s: float) -> Verdict:
        """Wait until every node has left or is lost, and return how it went."""
        end_s = time.monotonic() + patience_s
        while not self._over.is_set() and time.monotonic() < end_s:
            pause(TURN_S)
        self._done = True
        self._thread.join(CONNECT_S)
        self._hang_up()
        self._selector.close()
        return self.verdict

    def _serve(self) -> None:
        try:
            while not self._done:
                for key, _ in self._selector.select(TURN_S):
                    key.data()
                self._look_around()
        finally:
            if not self._done:
                # A head that fails must not leave its nodes waiting.
                self._hang_up()
                self._over.set()

    def _hang_up(self) -> None:
        for each in (*self._servers, *self._strangers, *self._links):
            each.close()

    def _accept(self, server: socket.socket) -> None:
        """Challenge those who connect; of too many strangers, those who have been silent longest are dropped."""
        with contextlib.suppress(OSError):
            for _ in range(MOST_STRANGERS):
                link, _ = server.accept()
                stranger = _Stranger(Challenge(self._token), time.monotonic())
                self._strangers[link] = stranger
                self._selector.register(link, selectors.EVENT_READ, partial(self._examine, link, stranger))
                link.setblocking(False)
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                link.send(stranger.challenge.bytes)
        while len(self._strangers) > self._nodes + MOST_STRANGERS:
            self._dismiss(next(iter(self._strangers)))

    def _examine(self, link: socket.socket, stranger: "_Stranger") -> None:
        """Read what one who connected answers, no more than the length of a proof."""
        try:
            data = link.recv(stranger.challenge.missing_bytes)
            proof = stranger.challenge.add(data) if data else None
            if proof:
                link.settimeout(CONNECT_S)
                link.sendall(proof)
        except BlockingIOError:
            return
        except OSError:
            proof = None
        if proof is None:
            self._dismiss(link)
        elif proof:
            del self._strangers[link]
            self._links[link] = found = _NodeLink(link, stranger.since_s)
            self._selector.modify(link, selectors.EVENT_READ, partial(self._hear, found))

    def _dismiss(self, link: socket.socket) -> None:
        """Drop one who has not proved anything."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(link)
        self._strangers.pop(link, None)
        link.close()

    def _hear(self, link: "_NodeLink") -> None:
        try:
            messages, closed = link.receive()
            for message in messages:
                self._answer(link, message)
        except UNREADABLE as error:
            self._drop(link, f"it sent a message that cannot be read ({type(error).__name__})")
            return
        if closed:
            self._drop(link, "its connection broke")

    def _admit(self, message: Message) -> Slot:
        """Return the slot of a node that says hello."""
        name, rank = str(message["node"]), int(message["rank"])
        taken = name in self.slots or any(slot.rank == rank for slot in self.slots.values())
        if taken or not 0 <= rank < self._nodes or len(name) > LONGEST_NAME:
            raise ValueError(f"node {name[:LONGEST_NAME]} of rank {rank}")
        slot = self.slots[name] = Slot(name, rank, time.monotonic())
        return slot

    def _answer(self, link: "_NodeLink", message: Message) -> None:
        said = message["say"]
        if link.slot is None:
            if said != "hello":
                raise ValueError(f"{said} before hello")
            link.slot = self._admit(message)
            link.send({"say": "welcome"})
        else:
            link.slot.heard_s = time.monotonic()
            if said == "time":
                link.send({"say": "time", "stamp": [time.monotonic_ns(), time.time_ns()]})
            elif said == "ready":
                link.slot.gpus = [str(name) for name in message["gpus"]]
                self._start_when_all_are_ready()
            elif said == "refuse":
                self._stop("refused", link.slot.name, f"node {link.slot.name}: {message.get('why')}")
            elif said == "ended":
                self._note_end(link.slot, message)
            elif said == "bye":
                link.slot.gone = True
                link.send({"say": "bye"})

    def _start_when_all_are_ready(self) -> None:
        ready = {name: slot.gpus for name, slot in self.slots.items() if slot.gpus is not None}
        if len(ready) < self._nodes or self._stopping:
            return
        refused = self._judge(ready)
        if refused:
            self._stop("refused", "", refused)
            return
        self._go_s = time.monotonic()
        self._tell_all({"say": "go", "port": free_port()})

    def _note_end(self, slot: Slot, message: Message) -> None:
        code, stopped, now_s = int(message["code"]), str(message["stopped"]), time.monotonic()
        slot.ended = True
        self.verdict.events.append({"node": slot.name, "at_s": now_s, "say": "ended", "code": code, "stopped": stopped})
        if code and self._failed_s is None:
            self._failed_s = now_s
        self._rest_when_all_have_ended()

    def _rest_when_all_have_ended(self) -> None:
        if self._go_s is not None and all(slot.ended or slot.lost for slot in self.slots.values()):
            self._tell_all({"say": "rest"})

    def _look_around(self) -> None:
        now_s = time.monotonic()
        if now_s - self._looked_s < TURN_S / 2:
            return
        self._looked_s = now_s
        for each in [each for each, stranger in self._strangers.items() if now_s - stranger.since_s > STRANGER_S]:
            self._dismiss(each)
        if now_s - self._touched_s > BEAT_S:
            self._touched_s = now_s
            with contextlib.suppress(OSError):
                (self._folder / HEAD_FILE).touch()
        for link in list(self._links.values()):
            if link.slot is None and now_s - link.since_s > STRANGER_S:
                self._drop(link, "")
            elif link.slot is not None and not link.slot.gone and now_s - link.slot.heard_s > self._lost_s:
                self._drop(link, f"it has not been heard for {self._lost_s:.0f} s")
        absent = self._nodes - len(self.slots)
        if self._go_s is None and not self._stopping and now_s - self._began_s > self._meet_s:
            self._stop("node_loss", "", f"{absent} of {self._nodes} nodes did not come within {self._meet_s:.0f} s")
        if self._go_s is not None and self._limit_s is not None and now_s - self._go_s > self._limit_s:
            self._stop("time_out", "", f"the time limit of {self._limit_s:g} s was reached")
        if (self._folder / STOP_FILE).exists():
            self._stop("cancelled", "", "it was cancelled")
        if self._failed_s is not None and now_s - self._failed_s > AFTER_FAILURE_S:
            self._stop("failed", "", "another node had failed")
        here = [slot for slot in self.slots.values() if not slot.gone and not slot.lost]
        if self.slots and not here and (self._go_s is not None or self._stopping):
            self._over.set()

    def _drop(self, link: "_NodeLink", why: str) -> None:
        """Let go of a connection; the node of one who did not take leave is lost."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(link.socket)
        self._links.pop(link.socket, None)
        link.socket.close()
        slot = link.slot
        if slot is not None and not slot.gone and not slot.lost:
            slot.lost = why
            self.verdict.events.append({"node": slot.name, "at_s": time.monotonic(), "say": "lost", "why": why})
            self._stop("node_loss", slot.name, f"node {slot.name} was lost: {why}")
            self._rest_when_all_have_ended()

    def _stop(self, kind: str, node: str, message: str) -> None:
        if self._stopping:
            return
        self._stopping = True
        if any(not slot.ended for slot in self.slots.values()) and kind != "failed":
            self.verdict.kind, self.verdict.node, self.verdict.message = kind, node, message
        self._tell_all({"say": "stop", "kind": kind, "message": message})

    def _tell_all(self, message: Message) -> None:
        for link in list(self._links.values()):
            if link.slot is not None:
                link.send(message)


@dataclass(frozen=True)
class _Stranger:
    """One who has connected and proved nothing yet."""

    challenge: Challenge
    since_s: float


class _NodeLink(Link):
    """The connection of one who has proved the token; of a node, once it has said hello."""

    def __init__(self, link: socket.socket, since_s: float) -> None:
        super().__init__(link)
        self.since_s = since_s
        self.slot: Slot | None = None


def ask_to_stop(folder: Path) -> None:
    """Ask the head of a run, wherever it is, to end it."""
    with contextlib.suppress(OSError):
        (folder / STOP_FILE).touch()
