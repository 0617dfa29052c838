"""Strangers who reach the head of a run are dropped, and so is a node whose messages cannot be read."""

import contextlib
import json
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from charllm.measure import rendezvous as module
from charllm.measure.client import HEAD_FILE, RendezvousError, join
from charllm.measure.handshake import PART_BYTES, Challenge, answer_challenge
from charllm.measure.link import LONGEST_LINE
from charllm.measure.rendezvous import MOST_STRANGERS
from tests.measure.readings import await_true
from tests.measure.test_rendezvous import PATIENCE_S, hosting, next_of, start, take_seats


@contextlib.contextmanager
def connected(folder: Path) -> Iterator[socket.socket]:
    """Connect to the head as anyone may."""
    (address, port), *_ = json.loads((folder / HEAD_FILE).read_text())["addresses"]
    with socket.create_connection((address, port), PATIENCE_S) as link:
        yield link


def token_of(folder: Path) -> str:
    return str(json.loads((folder / HEAD_FILE).read_text())["token"])


def is_dropped(link: socket.socket) -> bool:
    """Read until the head lets go."""
    with contextlib.suppress(ConnectionError):
        while link.recv(1 << 16):
            pass
    return True


def the_run_goes_on(folder: Path) -> None:
    """Let a node come, start, end and leave."""
    (client,) = take_seats(folder, 1)
    start([client])
    client.say("ended", code=0, stopped="")
    next_of(client, "rest")
    client.leave()


ATTACKS = {
    "nested brackets": b"[" * 100_000 + b"\n",
    "a hello without a proof": b'{"say": "hello", "node": "n0", "token": "0123456789abcdef", "rank": 0}\n',
    "a huge line": b"x" * (4 * LONGEST_LINE),
    "nothing but zeros": bytes(2 * PART_BYTES),
    "a request of a browser": b"GET / HTTP/1.1\r\nHost: head\r\nCookie: aaaaaaaaaaaaaaaaaaaaaaaaaa\r\n\r\n",
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_who_cannot_prove_the_token_is_dropped_unread(
    tmp_path: Path, attack: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_text: bytes) -> None:
        raise AssertionError("parsed what a stranger sent")

    with hosting(tmp_path, 1) as rendezvous, connected(tmp_path) as link:
        # The head of this process parses with the same function.
        with monkeypatch.context() as parsing:
            parsing.setattr(json, "loads", refuse)
            with contextlib.suppress(ConnectionError):
                link.sendall(attack)
            assert is_dropped(link)
        the_run_goes_on(tmp_path)
        verdict = rendezvous.close(PATIENCE_S)
    assert (verdict.kind, [event["node"] for event in verdict.events]) == ("", ["n0"])


def test_a_wrong_token_is_no_proof(tmp_path: Path) -> None:
    with hosting(tmp_path, 1):
        with connected(tmp_path) as link, contextlib.suppress(OSError):
            assert not answer_challenge(link, secrets.token_hex(32), PATIENCE_S)
        whole = (tmp_path / HEAD_FILE).read_text()
        (tmp_path / HEAD_FILE).write_text(whole.replace('"token": "', '"token": "x'))
        with pytest.raises(RendezvousError, match="cannot reach the head node"):
            join(tmp_path, "n0", 0, 0.5)
        (tmp_path / HEAD_FILE).write_text(whole)
        the_run_goes_on(tmp_path)


def test_a_proof_that_was_overheard_is_worth_nothing_later(tmp_path: Path) -> None:
    with hosting(tmp_path, 1):
        with connected(tmp_path) as link:
            sent = Recorder(link)
            assert answer_challenge(sent, token_of(tmp_path), PATIENCE_S)  # type: ignore[arg-type]
        with connected(tmp_path) as link:
            link.sendall(sent.sent)
            assert len(link.recv(1 << 16)) == PART_BYTES
            assert is_dropped(link)
        the_run_goes_on(tmp_path)


class Recorder:
    """A connection that keeps what is sent over it."""

    def __init__(self, link: socket.socket) -> None:
        self._link, self.sent = link, b""
        self.recv, self.settimeout = link.recv, link.settimeout

    def sendall(self, data: bytes) -> None:
        self.sent += data
        self._link.sendall(data)


def test_a_node_does_not_trust_a_head_that_cannot_prove_the_token() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(Challenge("other").bytes + bytes(PART_BYTES))
        assert not answer_challenge(ours, "token", PATIENCE_S)


def test_many_who_say_nothing_are_dropped_and_keep_no_node_out(tmp_path: Path) -> None:
    with hosting(tmp_path, 1) as rendezvous, contextlib.ExitStack() as silent:
        links = [silent.enter_context(connected(tmp_path)) for _ in range(5 * MOST_STRANGERS)]
        await_true(lambda: len(rendezvous._strangers) == 1 + MOST_STRANGERS)
        assert is_dropped(links[0])
        the_run_goes_on(tmp_path)
        assert len(rendezvous._strangers) <= 1 + MOST_STRANGERS
        assert rendezvous.close(PATIENCE_S).kind == ""


def test_strangers_that_keep_connecting_keep_no_node_out(tmp_path: Path) -> None:
    ended = threading.Event()

    def connect() -> None:
        while not ended.is_set():
            with contextlib.suppress(OSError), connected(tmp_path) as link:
                link.send(b"x")

    with hosting(tmp_path, 1) as rendezvous:
        strangers = [threading.Thread(target=connect) for _ in range(4)]
        for stranger in strangers:
            stranger.start()
        try:
            the_run_goes_on(tmp_path)
        finally:
            ended.set()
            for stranger in strangers:
                stranger.join()
        assert rendezvous.close(PATIENCE_S).kind == ""


@pytest.mark.parametrize("knows_the_token", [False, True])
def test_who_dribbles_byte_by_byte_has_no_longer_than_others(
    tmp_path: Path, knows_the_token: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STRANGER_S", 0.5)
    with hosting(tmp_path, 1) as rendezvous, connected(tmp_path) as link:
        began_s = time.monotonic()
        if knows_the_token:
            answer_challenge(link, token_of(tmp_path), PATIENCE_S)
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - began_s < PATIENCE_S:
                link.sendall(b"{")
                time.sleep(0.01)
        assert 0.5 <= time.monotonic() - began_s < PATIENCE_S
        assert not rendezvous.slots
        the_run_goes_on(tmp_path)


HELLO = b'{"say": "hello", "node": "n0", "rank": 0}\n'
UNREADABLE = {
    "nested brackets": b"[" * 100_000 + b"\n",
    "half of them": b"[" * (LONGEST_LINE // 2) + b"\n",
    "no rank": b'{"say": "hello", "node": "n0"}\n',
    "a rank that is no number": b'{"say": "hello", "node": "n0", "rank": "first"}\n',
    "an infinite rank": b'{"say": "hello", "node": "n0", "rank": 1e999}\n',
    "a rank beyond the nodes": b'{"say": "hello", "node": "n0", "rank": 1}\n',
    "a long name": b'{"say": "hello", "node": "' + b"n" * 1000 + b'", "rank": 0}\n',
    "no object": b"[1]\n",
    "no JSON": b"hello\n",
    "no text": b"\xff\xfe\n",
    "a huge line": b"x" * (2 * LONGEST_LINE),
    "something before hello": b'{"say": "ready", "gpus": []}\n',
}


@pytest.mark.parametrize("message", UNREADABLE.values(), ids=UNREADABLE)
def test_a_message_that_cannot_be_read_ends_its_connection_only(tmp_path: Path, message: bytes) -> None:
    with hosting(tmp_path, 1) as rendezvous:
        with connected(tmp_path) as link:
            assert answer_challenge(link, token_of(tmp_path), PATIENCE_S)
            with contextlib.suppress(ConnectionError):
                link.sendall(message)
            link.settimeout(PATIENCE_S)
            assert is_dropped(link)
        assert not rendezvous.slots
        the_run_goes_on(tmp_path)
        assert rendezvous.close(PATIENCE_S).kind == ""


@pytest.mark.parametrize("message", [b'{"say": "ready"}\n', b'{"say": "ended", "code": "x"}\n', b"[" * 100_000 + b"\n"])
def test_a_node_that_says_what_cannot_be_read_is_lost_and_nobody_waits_for_it(tmp_path: Path, message: bytes) -> None:
    with hosting(tmp_path, 1) as rendezvous, connected(tmp_path) as link:
        assert answer_challenge(link, token_of(tmp_path), PATIENCE_S)
        link.sendall(HELLO)
        assert b"welcome" in link.recv(1 << 16)
        with contextlib.suppress(ConnectionError):
            link.sendall(message)
        verdict = rendezvous.close(PATIENCE_S)
    assert (verdict.kind, verdict.node) == ("node_loss", "n0")
    assert "it sent a message that cannot be read" in verdict.message


def test_nobody_takes_the_place_of_a_node(tmp_path: Path) -> None:
    with hosting(tmp_path, 2) as rendezvous:
        (client,) = take_seats(tmp_path, 1)
        slot = rendezvous.slots["n0"]
        with connected(tmp_path) as link:
            assert answer_challenge(link, token_of(tmp_path), PATIENCE_S)
            link.sendall(HELLO)
            link.settimeout(PATIENCE_S)
            assert is_dropped(link)
        assert rendezvous.slots == {"n0": slot}
        assert not slot.lost
        assert client.listen(0.1) is None
