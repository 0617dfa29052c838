"""`charllm serve` as a user meets it: one server, asked everything that a browser asks."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from charllm.api.simulation import simulate
from charllm.cli import main
from tests.explorer.runs import HUGE, LONG, PLANNED, SMALL, point_outside, write_broken, write_store


def events(response: httpx.Response) -> Iterator[tuple[str, Any]]:
    name = ""
    for line in response.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def post(http: httpx.Client, words: dict[str, Any], client: str = "one", path: str = "/api/answers") -> Any:
    return http.stream("POST", path, json={"client": client, "request": words})


def workers_of(parent: int) -> list[str]:
    return Path(f"/proc/{parent}/task/{parent}/children").read_text().split()


def test_a_server_from_its_start_to_its_end(tmp_path: Path) -> None:
    store = write_broken(write_store(tmp_path / "store"))
    command = [sys.executable, "-m", "charllm", "serve", str(store), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            workers = check_server(server, store)
            server.send_signal(signal.SIGINT)
            _, said = server.communicate(timeout=120)
        finally:
            server.kill()
    assert (server.returncode, said.splitlines()[1:]) == (130, ["charllm: the explorer has ended"])
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)


def check_server(server: "subprocess.Popen[str]", store: Path) -> list[str]:
    """Ask a server everything; returns its workers, of which nothing that was asked has cost one."""
    assert server.stdout is not None
    address = re.search(r"(http://127\.0\.0\.1:\d+/)\?token=(\S+)", server.stdout.readline())
    assert address is not None
    workers = workers_of(server.pid)
    assert len(workers) == 3
    assert httpx.get(address[1]).status_code == 401
    with httpx.Client(base_url=address[1], headers={"authorization": f"Bearer {address[2]}"}, timeout=60) as http:
        check_answers(http)
        check_refusals(http)
        check_cancelling(http)
        check_changes(http)
        check_store(http, store)
        check_live(http)
        assert workers_of(server.pid) == workers
        check_plan(http)
    return workers_of(server.pid)


def check_answers(http: httpx.Client) -> None:
    """The fast answer comes first, then the coupled one, which is that of `charllm simulate`."""
    with post(http, SMALL) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        (first, fast), (second, coupled) = events(response)
    assert (first, second) == ("fast", "coupled")
    expected = simulate(**SMALL)  # type: ignore[arg-type]
    assert coupled["metrics"] == json.loads(expected.to_json())["metrics"]
    assert coupled["gpus"] == json.loads(expected.to_json())["gpus"]
    assert coupled["page"]["title"].startswith("llama3-8b")
    figures = [figure for section in coupled["page"]["sections"] for figure in section["figures"]]
    assert {"seconds", "memory", "heat"} <= {figure["name"] for figure in figures}
    assert [figure["name"] for figure in figures if figure["missing"]] == []
    assert fast["spec"] == json.loads(expected.to_json())["spec"]
    assert fast["metrics"]["memory_peak_bytes"] == coupled["metrics"]["memory_peak_bytes"]
    assert fast["fits"] is True
    with http.stream("POST", "/api/answers", json={"client": "one", "request": SMALL, "coupled": False}) as response:
        assert [name for name, _ in events(response)] == ["fast"]
    with post(http, {"model": "llama3-405b", "cluster": "h200x8"}) as response:
        told = dict(events(response))
    assert (told["fast"]["fits"], told["coupled"]["fits"]) == (False, False)


def check_refusals(http: httpx.Client) -> None:
    """A request that is wrong is refused with the field; one that is too large with the estimate."""
    for words, status, field in (
        ({**SMALL, "tp": 3}, 400, "parallelism"),
        ({**SMALL, "model": "nobody"}, 400, "model"),
        ({**SMALL, "mbs": -1}, 400, "training.micro_batch_size"),
        (HUGE, 422, "cluster.nodes"),
    ):
        with post(http, words) as response:
            told = json.loads(response.read())
        assert (response.status_code, told["field"]) == (status, field), told
    assert "charllm simulate" in told["message"]


def check_cancelling(http: httpx.Client) -> None:
    """A newer request of a client ends the one before, and that of no one else; so does hanging up."""
    with post(http, LONG, "one") as first, post(http, {**LONG, "seed": 1}, "two") as other:
        told = events(first)
        assert next(told)[0] == "fast"
        with post(http, SMALL, "one") as newer:
            assert list(told) == []
            assert [name for name, _ in events(newer)] == ["fast", "coupled"]
        assert [name for name, _ in events(other)] == ["fast", "coupled"]
    for seed in range(6):
        with post(http, {**LONG, "seed": seed}, f"gone {seed}") as response:
            assert next(events(response))[0] == "fast"
    with post(http, SMALL) as response:
        assert [name for name, _ in events(response)] == ["fast", "coupled"]


def check_changes(http: httpx.Client) -> None:
    with post(http, SMALL, path="/api/changes") as response:
        ((name, told),) = events(response)
    assert (name, told["figure"]["kind"]) == ("changes", "tornado")
    assert "--overlap tp,dp" in told["figure"]["columns"]["change"]["values"]


def check_plan(http: httpx.Client) -> None:
    """A plan says how far it is, then shows its page; limits that nothing keeps are refused; a newer search wins."""

    def search(**more: Any) -> Any:
        return http.stream("POST", "/api/plan", json={"client": "one", "request": PLANNED, "top": 3, **more})

    with search() as first, search(objective="tokens-per-joule") as newer:
        told = list(events(newer))
        assert [name for name, _ in events(first)] in ([], ["progress"])
    assert {name for name, _ in told[:-1]} == {"progress"}
    (name, found) = told[-1]
    assert (name, found["page"]["title"]) == ("plan", "Plan of llama3-8b on h200x8")
    assert "--tp 2" in found["flags"]
    for more, field in (({"limit": ["temperature_peak_c<20"]}, "--limit"), ({"objective": "nothing"}, "objective")):
        with search(**more) as refused:
            # A search that has begun ends with an event, one that never could with a status.
            last = refused.read().decode().splitlines()[-1 if refused.status_code == 400 else -2]
        answer = json.loads(last.removeprefix("data: "))
        assert (answer["status"], answer["field"]) == (400, field)


def check_store(http: httpx.Client, store: Path) -> None:
    """Stored runs and studies are opened and compared; nothing is read outside, nothing is written."""
    before = sorted(store.rglob("*"))
    assert len(http.get("/api/store").json()["entries"]) == 5
    assert http.get("/api/store/page", params={"path": "runs/two"}).json()["title"].startswith("llama3-8b")
    assert http.get("/api/store/page", params={"path": "study"}).status_code == 200
    both = http.get("/api/store/compare", params={"path": ["runs/two", "runs/four"]})
    assert both.status_code == 200
    assert both.json()["sections"]
    for path in ("../outside", "link", "half", "deep", "foreign", "pipe", "killed", "nowhere"):
        refused = http.get("/api/store/page", params={"path": path})
        assert 400 <= refused.status_code < 500, path
        assert "secret" not in refused.text
        assert str(store) not in refused.text or path == "killed", "only a command to run says where the store lies"
    assert http.get("/api/store/compare", params={"path": "runs/two"}).status_code == 400
    point_outside(store / "runs" / "four", store.parent / "outside")
    assert "secret" not in http.get("/api/store/page", params={"path": "runs/four"}).text
    assert sorted(store.rglob("*")) == before


def check_live(http: httpx.Client) -> None:
    with http.stream("GET", "/api/live", params={"path": "running"}) as response:
        name, snapshot = next(events(response))
    assert (name, snapshot["folder"], snapshot["job"]["steps"]) == ("snapshot", "running", 4)
    assert len(snapshot["history"]) > 1
    assert http.get("/api/live", params={"path": "runs/two"}).status_code == 400


@pytest.mark.parametrize(
    "words", [["nowhere"], ["--port", "70000"], ["--token", "short"], ["--host", "256.0.0.1"], ["--port", "x"]]
)
def test_wrong_requests_are_explained(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", *words]) == 2
    assert "expected" in capsys.readouterr().err
