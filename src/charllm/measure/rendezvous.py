"""Where the nodes of a run meet: the head listens, every node's agent (the head's own, too) keeps one connection to it.

Lines of JSON over TCP. A node says hello, asks the time as often as it likes, says `ready` and waits for `go`; it says
`ended` when its part has, waits for `rest`, when all have, and says `bye`. A beat each second shows that it lives. The
head says `stop` to those who still run when one has failed, was lost (its connection broke, or its beats ceased), when
time is up or someone has asked for the end. The head shows that it lives by touching its file.
"""

import contextlib
import json
import secrets
import select
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from charllm.errors import CharllmError
from charllm.measure.clock import Stamp
from charllm.result.store import write_text

HEAD_FILE, STOP_FILE = "head.json", "stop"
"""Where the head listens; a file that asks the head to end the run."""
BEAT_S, LOST_S = 1.0, 15.0
"""A node that has not been heard for LOST_S is lost."""
TURN_S = 0.1
AFTER_FAILURE_S = 10.0
"""Left to the other nodes to end by themselves, once one has failed."""
MEET_S = 300.0
"""Until every node must have come."""
CONNECT_S, LONGEST_LINE = 5.0, 1 << 20

Message = dict[str, Any]


class RendezvousError(CharllmError):
    """The head cannot be reached, or has gone."""


@dataclass
class Slot:
    """A node as the head knows it."""

    name: str
    rank: int
    heard_s: float
    ready: Message | None = None
    ended: Message | None = None
    ended_s: float | None = None
    """On the head's clock."""
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
        judge_ready: Callable[[dict[str, Message]], str] = lambda _found: "",
        time_limit_s: float | None = None,
        lost_s: float = LOST_S,
        meet_s: float = MEET_S,
    ) -> None:
        self._folder, self._nodes, self._judge = folder, nodes, judge_ready
        self._limit_s, self._lost_s, self._meet_s = time_limit_s, lost_s, meet_s
        self.verdict = Verdict()
        self.slots: dict[str, Slot] = {}
        self._token = secrets.token_hex(8)
        self._selector = selectors.DefaultSelector()
        self._server = socket.create_server(("", 0), backlog=nodes + 8)
        self._links: dict[socket.socket, _Link] = {}
        self._began_s = time.monotonic()
        self._touched_s = self._began_s
        self._go_s: float | None = None
        self._stopping = self._done = False
        self._failed_s: float | None = None
        self._over = threading.Event()
        self._selector.register(self._server, selectors.EVENT_READ)
        where = {"port": self._server.getsockname()[1], "addresses": own_addresses(), "token": self._token}
        write_text(json.dumps(where), folder / HEAD_FILE)
        # Who knows the token may end the run.
        (folder / HEAD_FILE).chmod(0o600)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self, patience_s: float) -> Verdict:
        """Wait until every node has left or is lost, and return how it went."""
        end_s = time.monotonic() + patience_s
        while not self._over.is_set() and time.monotonic() < end_s:
            pause(TURN_S)
        self._done = True
        self._thread.join(CONNECT_S)
        for link in list(self._links.values()):
            link.socket.close()
        self._server.close()
        self._selector.close()
        return self.verdict

    def _serve(self) -> None:
        while not self._done:
            for key, _ in self._selector.select(TURN_S):
                if key.fileobj is self._server:
                    self._accept()
                else:
                    self._hear(self._links[key.fileobj])  # type: ignore[index]
            self._look_around()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            link, _ = self._server.accept()
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._links[link] = _Link(link)
            self._selector.register(link, selectors.EVENT_READ)

    def _hear(self, link: "_Link") -> None:
        messages, closed = link.receive()
        for message in messages:
            self._answer(link, message)
        if closed:
            self._drop(link, "its connection broke")

    def _answer(self, link: "_Link", message: Message) -> None:
        said = message.get("say")
        if said == "hello" and message.get("token") == self._token:
            link.slot = Slot(str(message["node"]), int(message["rank"]), time.monotonic())
            self.slots[link.slot.name] = link.slot
            link.send({"say": "welcome"})
        elif link.slot is None:
            self._drop(link, "")
        else:
            link.slot.heard_s = time.monotonic()
            if said == "time":
                link.send({"say": "time", "stamp": [time.monotonic_ns(), time.time_ns()]})
            elif said == "ready":
                link.slot.ready = message
                self._start_when_all_are_ready()
            elif said == "refuse":
                self._stop("refused", link.slot.name, f"node {link.slot.name}: {message.get('why')}")
            elif said == "ended":
                self._note_end(link.slot, message)
            elif said == "bye":
                link.slot.gone = True
                link.send({"say": "bye"})

    def _start_when_all_are_ready(self) -> None:
        ready = {name: slot.ready for name, slot in self.slots.items() if slot.ready is not None}
        if len(ready) < self._nodes or self._stopping:
            return
        refused = self._judge(ready)
        if refused:
            self._stop("refused", "", refused)
            return
        self._go_s = time.monotonic()
        self._tell_all({"say": "go", "port": free_port()})

    def _note_end(self, slot: Slot, message: Message) -> None:
        slot.ended, slot.ended_s = message, time.monotonic()
        self.verdict.events.append({"node": slot.name, "at_s": slot.ended_s, **message})
        if message.get("code") and self._failed_s is None:
            self._failed_s = slot.ended_s
        self._rest_when_all_have_ended()

    def _rest_when_all_have_ended(self) -> None:
        if self._go_s is not None and all(slot.ended or slot.lost for slot in self.slots.values()):
            self._tell_all({"say": "rest"})

    def _look_around(self) -> None:
        now_s = time.monotonic()
        if now_s - self._touched_s > BEAT_S:
            self._touched_s = now_s
            with contextlib.suppress(OSError):
                (self._folder / HEAD_FILE).touch()
        for link in list(self._links.values()):
            if link.slot is not None and not link.slot.gone and now_s - link.slot.heard_s > self._lost_s:
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

    def _drop(self, link: "_Link", why: str) -> None:
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
        if any(slot.ended is None for slot in self.slots.values()) and kind != "failed":
            self.verdict.kind, self.verdict.node, self.verdict.message = kind, node, message
        self._tell_all({"say": "stop", "kind": kind, "message": message})

    def _tell_all(self, message: Message) -> None:
        for link in list(self._links.values()):
            if link.slot is not None:
                link.send(message)


class _Link:
    """One connection: lines of JSON in both directions."""

    def __init__(self, link: socket.socket) -> None:
        self.socket = link
        self.slot: Slot | None = None
        self._rest = b""
        self._sending = threading.Lock()

    def send(self, message: Message) -> bool:
        """Send a line; tell whether the other side could take it."""
        try:
            with self._sending:
                self.socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            return False
        return True

    def receive(self) -> tuple[list[Message], bool]:
        """Return the lines that have come, and whether the other side has closed."""
        try:
            data = self.socket.recv(1 << 16)
        except OSError:
            return [], True
        *lines, self._rest = (self._rest + data).split(b"\n")
        messages = []
        for line in lines:
            with contextlib.suppress(ValueError):
                found = json.loads(line)
                messages += [found] if isinstance(found, dict) else []
        return messages, not data or len(self._rest) > LONGEST_LINE


class Client:
    """A node's side."""

    def __init__(self, link: _Link, head: str) -> None:
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
            messages, self.closed = self._link.receive()
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
    for address in where["addresses"]:
        with contextlib.suppress(OSError):
            link = _Link(socket.create_connection((address, where["port"]), CONNECT_S))
            link.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link.send({"say": "hello", "token": where["token"], "node": name, "rank": rank})
            messages, _ = link.receive()
            if [message.get("say") for message in messages] == ["welcome"]:
                link.socket.settimeout(None)
                return Client(link, address)
            link.socket.close()
    return None


def pause(seconds_s: float) -> None:
    """Wait by the kernel's own clock, whatever this process is told of the time."""
    select.select([], [], [], seconds_s)


def own_addresses() -> list[str]:
    """Return names and addresses by which others may reach this machine, the likeliest first."""
    name = socket.gethostname()
    found: list[str] = []
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Nothing is sent: connecting only asks which of our addresses leads outside.
        probe.connect(("192.0.2.1", 9))
        found.append(probe.getsockname()[0])
    with contextlib.suppress(OSError):
        found += [str(entry[4][0]) for entry in socket.getaddrinfo(name, None, socket.AF_INET)]
    return list(dict.fromkeys([*found, name, "127.0.0.1"]))


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.create_server(("", 0)) as found:
        return int(found.getsockname()[1])


def ask_to_stop(folder: Path) -> None:
    """Ask the head of a run, wherever it is, to end it."""
    with contextlib.suppress(OSError):
        (folder / STOP_FILE).touch()
