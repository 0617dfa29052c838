"""Nodes meet at the head: they start together, and one that is lost or fails ends the others."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from charllm.measure import client as client_module
from charllm.measure import rendezvous as module
from charllm.measure.addresses import addresses_toward, own_addresses_for
from charllm.measure.client import Client, RendezvousError, join
from charllm.measure.clock import compare
from charllm.measure.rendezvous import Rendezvous, ask_to_stop
from tests.measure.readings import await_true

PATIENCE_S = 120.0


@contextlib.contextmanager
def hosting(folder: Path, nodes: int, **settings: Any) -> Iterator[Rendezvous]:
    found = Rendezvous(folder, nodes, **settings)
    try:
        yield found
    finally:
        found.close(0.0)
        for client in TAKEN:
            client.close()
        TAKEN.clear()


TAKEN: list[Client] = []


def take_seats(folder: Path, count: int) -> list[Client]:
    found = [join(folder, f"n{rank}", rank, PATIENCE_S) for rank in range(count)]
    TAKEN.extend(found)
    return found


def next_of(client: Client, said: str) -> dict[str, Any]:
    """Return the next message of a kind."""
    for _ in range(int(PATIENCE_S / 0.1)):
        message = client.listen(0.1)
        if message is not None and message["say"] == said:
            return message
    raise AssertionError(f"{said} never came")


def start(clients: list[Client]) -> None:
    for client in clients:
        client.say("ready", gpus=["H200"])
    ports = {next_of(client, "go")["port"] for client in clients}
    assert len(ports) == 1


def test_nodes_start_when_all_are_ready_and_rest_when_all_have_ended(tmp_path: Path) -> None:
    with hosting(tmp_path, 2) as rendezvous:
        first, second = take_seats(tmp_path, 2)
        first.say("ready", gpus=[])
        assert first.listen(0.3) is None
        second.say("ready", gpus=[])
        assert next_of(first, "go") == next_of(second, "go")
        first.say("ended", code=0, stopped="")
        assert first.listen(0.3) is None
        second.say("ended", code=0, stopped="")
        next_of(first, "rest")
        for client in (first, second):
            client.leave()
        verdict = rendezvous.close(PATIENCE_S)
    assert verdict.kind == ""
    assert [event["node"] for event in verdict.events] == ["n0", "n1"]


def test_the_head_tells_its_time(tmp_path: Path) -> None:
    with hosting(tmp_path, 1):
        (client,) = take_seats(tmp_path, 1)
        found = compare(client.ask_time)
    assert abs(found.monotonic_s) <= found.uncertainty_s < 0.05


def test_a_node_whose_connection_breaks_is_lost_and_the_others_are_stopped(tmp_path: Path) -> None:
    with hosting(tmp_path, 2) as rendezvous:
        clients = take_seats(tmp_path, 2)
        start(clients)
        clients[1].close()
        assert next_of(clients[0], "stop")["kind"] == "node_loss"
        clients[0].say("ended", code=143, stopped="node_loss")
        next_of(clients[0], "rest")
        clients[0].leave()
        verdict = rendezvous.close(PATIENCE_S)
    assert (verdict.kind, verdict.node) == ("node_loss", "n1")
    assert verdict.message == "node n1 was lost: its connection broke"


def test_a_node_that_is_not_heard_any_more_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "_beat", lambda _client: None)
    with hosting(tmp_path, 1) as rendezvous:
        (client,) = take_seats(tmp_path, 1)
        start([client])
        # Not before it has come and gone on, however long that takes here.
        rendezvous._lost_s = 0.5
        verdict = rendezvous.close(PATIENCE_S)
    assert verdict.message == "node n0 was lost: it has not been heard for 0 s"


def test_beats_keep_a_node_that_has_nothing_to_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "BEAT_S", 0.1)
    with hosting(tmp_path, 1, lost_s=10.0) as rendezvous:
        (client,) = take_seats(tmp_path, 1)
        start([client])
        slot = rendezvous.slots["n0"]
        began_s = slot.heard_s
        await_true(lambda: slot.heard_s > began_s + 1.0)
        assert client.listen(0.1) is None
        assert not slot.lost


def test_a_failed_node_leaves_the_others_a_while_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AFTER_FAILURE_S", 0.3)
    with hosting(tmp_path, 2) as rendezvous:
        clients = take_seats(tmp_path, 2)
        start(clients)
        clients[0].say("ended", code=7, stopped="")
        assert next_of(clients[1], "stop")["kind"] == "failed"
        assert rendezvous.verdict.kind == ""


@pytest.mark.parametrize(
    ("settings", "kind"), [({"time_limit_s": 0.2}, "time_out"), ({}, "cancelled")], ids=["time limit", "stop file"]
)
def test_the_head_ends_a_run(tmp_path: Path, settings: dict[str, float], kind: str) -> None:
    with hosting(tmp_path, 1, **settings) as rendezvous:
        (client,) = take_seats(tmp_path, 1)
        start([client])
        if kind == "cancelled":
            ask_to_stop(tmp_path)
        assert next_of(client, "stop")["kind"] == kind
        assert rendezvous.verdict.kind == kind


def test_nodes_that_cannot_run_together_are_refused(tmp_path: Path) -> None:
    with hosting(tmp_path, 1, judge_gpus=lambda gpus: f"not {gpus['n0'][0]}") as rendezvous:
        (client,) = take_seats(tmp_path, 1)
        client.say("ready", gpus=["H100"])
        assert next_of(client, "stop")["message"] == "not H100"
        assert rendezvous.verdict.kind == "refused"


def test_nodes_that_do_not_come_are_not_waited_for_for_ever(tmp_path: Path) -> None:
    with hosting(tmp_path, 2) as rendezvous:
        (client,) = take_seats(tmp_path, 1)
        rendezvous._meet_s = 0.3
        client.say("ready", gpus=[])
        assert next_of(client, "stop")["message"] == "1 of 2 nodes did not come within 0 s"


def test_a_head_that_has_gone_is_noticed(tmp_path: Path) -> None:
    with hosting(tmp_path, 1) as rendezvous:
        (client,) = take_seats(tmp_path, 1)
        rendezvous.close(0.0)
        with pytest.raises(RendezvousError, match="no longer answers"):
            client.ask_time()
        assert client.closed


def test_a_head_listens_only_where_its_nodes_reach_it(tmp_path: Path) -> None:
    with hosting(tmp_path, 1, addresses=own_addresses_for(1, [])) as rendezvous:
        assert [server.getsockname()[0] for server in rendezvous._servers] == ["127.0.0.1"]
        assert take_seats(tmp_path, 1)[0].head == "127.0.0.1"


def test_addresses_toward_others_are_not_known_where_one_of_them_is_not() -> None:
    assert addresses_toward(["127.0.0.1", "localhost"]) == ["127.0.0.1"]
    assert addresses_toward(["127.0.0.1", "no-such-node.invalid"]) == []
    assert own_addresses_for(2, []) == []
