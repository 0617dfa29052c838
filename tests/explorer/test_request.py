"""Requests that anybody may send."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from charllm.api.simulation import simulate
from charllm.errors import CharllmError, SpecError
from charllm.explorer.request import WORDS, RunRequest, read_plan_request, read_run_request, resolve_words


def body(request: Any, **more: Any) -> bytes:
    return json.dumps({"client": "one", "request": request, **more}).encode()


def test_its_words_are_those_of_simulate() -> None:
    words = {"model": "Llama 3 8B", "cluster": "h200x8", "tp": 2, "gbs": 32, "power_cap": 500, "overlap": ["tp", "dp"]}
    asked = read_run_request(body(words, coupled=False))
    assert asked == RunRequest("one", words, False)
    assert resolve_words(asked.words).as_table() == simulate(**words).spec  # type: ignore[arg-type]


def test_nodes_change_the_cluster_and_nothing_else_is_asked_of_it() -> None:
    run = resolve_words({"model": "llama3-8b", "cluster": "charllm-ppt-h200", "nodes": 2, "inlet": 30})
    assert (run.cluster.nodes, run.cluster.cooling.inlet_c, run.cluster.name) == (2, 30, "charllm-ppt-h200")


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({"model": "../../etc/passwd"}, "model"),
        ({"model": "/etc/passwd.json"}, "model"),
        ({"model": "model.toml"}, "model"),
        ({"model": {"base": "llama3-8b"}}, "model"),
        ({"cluster": ["h200x8"]}, "cluster"),
        ({"framework": 3}, "framework"),
        ({"from_": "/etc/passwd"}, "request"),
        ({"placement": "ranks.json"}, "request"),
        ({"set": {"model.layers": 4}}, "request"),
        ({"training.optimizer": "none"}, "request"),
        ({"overlap": [["tp"]]}, "overlap"),
        ({"overlap": ["tp"] * 1000}, "overlap"),
        ({"recompute": "x" * 10_000}, "recompute"),
        ([], "request"),
        (None, "request"),
    ],
)
def test_files_tables_and_unknown_words_are_refused_with_the_field(request_: Any, field: str) -> None:
    with pytest.raises(SpecError) as refused:
        read_run_request(body(request_))
    assert refused.value.field == field


@pytest.mark.parametrize(
    "sent",
    [b"", b"{", b"\xff\xfe", b"[" * 60_000, b"1" * 60_000, b'{"client": NaN}', b"null", b'{"client": "a", "more": 1}',
     b'{"client": "", "request": {}}', b'{"client": 1, "request": {}}',
     b'{"client": "a", "request": {}, "coupled": 1}'],
)  # fmt: skip
def test_bodies_that_are_no_request_are_refused(sent: bytes) -> None:
    with pytest.raises(SpecError):
        read_run_request(sent)


plain = some.one_of(
    some.integers(), some.floats(allow_nan=False), some.text(), some.booleans(), some.none(), some.just(10**200)
)
values = some.one_of(plain, some.lists(plain, max_size=4), some.dictionaries(some.text(), plain, max_size=2))


@settings(max_examples=60)
@given(some.dictionaries(some.sampled_from(WORDS), values))
def test_whatever_is_sent_is_a_run_or_is_refused(words: dict[str, Any]) -> None:
    base = {"model": "llama3-8b", "cluster": "h200x8"}
    with contextlib.suppress(CharllmError):
        assert resolve_words(read_run_request(body(base | words)).words).cluster.gpus <= 8_388_608


def test_a_plan_is_asked_with_an_objective_and_limits() -> None:
    asked = read_plan_request(
        body({"model": "llama3-8b", "tp": 2}, objective="edp", limit=["temperature_peak_c<80"], top=3)
    )
    assert (asked.words, asked.objective, asked.limit) == (
        {"model": "llama3-8b", "tp": 2}, "edp", ["temperature_peak_c<80"]
    )  # fmt: skip
    assert (asked.top, asked.sensitivity) == (3, False)


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"limit": "x<1"}, "limit"),
        ({"limit": ["x<1"] * 100}, "limit"),
        ({"limit": [["x"]]}, "limit"),
        ({"objective": "x" * 1000}, "objective"),
        ({"top": 1000}, "top"),
        ({"top": True}, "top"),
        ({"sensitivity": 1}, "sensitivity"),
        ({"coupled": True}, "body"),
    ],
)
def test_a_plan_that_asks_for_too_much_is_refused_with_the_field(more: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as refused:
        read_plan_request(body({"model": "llama3-8b"}, **more))
    assert refused.value.field == field
