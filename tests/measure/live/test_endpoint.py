"""Metrics over HTTP while a run is recorded: what a scraper reads, and what a hostile one cannot do."""

import contextlib
import json
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from charllm.errors import CharllmError, SpecError
from charllm.measure.live import endpoint, metrics
from charllm.measure.live.endpoint import MOST_CONNECTIONS, serving
from charllm.measure.live.metrics import GPU_METRICS, JOB_METRICS, RunCollector, host_name
from charllm.measure.quantities import QUANTITIES
from charllm.measure.settings import LOOPBACK, parse_address
from tests.measure.live.runs import HOST, write_marks, write_node
from tests.measure.readings import await_true
from tests.measure.replays import REPLAY, quiet_environment, uuid

UNITS = ("watts", "celsius", "hertz", "bytes", "ratio", "seconds", "joules", "second", "joule", "total")
COUNTED = ("errors", "faults", "limited", "running", "loss", "steps")


def scrape(address: str) -> dict[str, list[Any]]:
    with urllib.request.urlopen(address, timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = answer.read().decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert all(family.documentation and family.type in ("gauge", "counter") for family in families.values())
    found: dict[str, list[Any]] = {}
    for family in families.values():
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample)
    return found


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    with serving(folder, "0") as address:
        yield address


def test_a_run_is_scraped_while_it_is_recorded(tmp_path: Path) -> None:
    steps = (
        "import pathlib, sys, time, charllm.mark as mark\n"
        "while not pathlib.Path(sys.argv[1]).exists():"
        " mark.point('loss', 3.0); mark.step(tokens=500); time.sleep(0.05)"
    )
    command = [
        sys.executable, "-m", "charllm", "measure", "--prometheus", "0", "--telemetry", REPLAY, "--idle", "0",
        "--out", str(tmp_path / "run"), "--", sys.executable, "-c", steps, str(tmp_path / "scraped"),
    ]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=quiet_environment()) as process:
        assert process.stderr is not None
        address = re.search(r"http://\S+", process.stderr.readline())
        assert address is not None
        assert address[0].startswith(f"http://{LOOPBACK}:")
        marks = tmp_path / "run"
        await_true(lambda: sum(path.read_bytes().count(b",step,") for path in marks.glob("marks-*.csv")) > 30)
        await_true(lambda: "charllm_gpu_power_watts" in scrape(address[0]))
        found = scrape(address[0])
        (tmp_path / "scraped").touch()
        process.stderr.read()
    assert process.returncode == 0
    labels = {"node": "0", "gpu": "0", "uuid": uuid(0).replace("00000000-", "00000000-", 1), "rank": "0"}
    (power,) = found["charllm_gpu_power_watts"]
    assert power.labels == labels
    assert 50 < power.value < 700
    assert found["charllm_gpu_temperature_celsius"][0].value > 20
    assert found["charllm_gpu_clock_hertz"][0].value > 1e8
    assert {sample.labels["cause"] for sample in found["charllm_gpu_throttled_seconds_total"]} == {
        "power",
        "thermal",
        "board",
    }
    assert found["charllm_job_tokens_per_second"][0].value == pytest.approx(10_000, rel=0.5)
    assert found["charllm_job_loss"][0].value == 3.0
    assert found["charllm_job_running"][0].value == 1.0
    assert "charllm_gpu_link_bytes_total" not in found, "links cannot be read on this board: absent, not 0"
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address[0], timeout=2)


def test_nodes_and_ranks_are_labels(tmp_path: Path) -> None:
    for rank, name in enumerate(("n1", "n2")):
        write_node(
            tmp_path / "nodes" / name, gpus=2, first_uuid=10 * rank, details={"node_rank": rank, "ranks_per_node": 2}
        )
    (tmp_path / "nodes" / "n2" / "host.csv").write_text(HOST)
    with served(tmp_path) as address:
        found = scrape(address)
    assert [(each.labels["node"], each.labels["rank"]) for each in found["charllm_gpu_power_watts"]] == [
        ("n1", "0"), ("n1", "1"), ("n2", "2"), ("n2", "3"),
    ]  # fmt: skip
    (sent,) = found["charllm_host_nic_sent_bytes_total"]
    assert (sent.labels, sent.value) == ({"node": "n2", "of": "mlx5_0/1"}, 3e9)
    assert [each.labels["node"] for each in found["charllm_reading_age_seconds"]] == ["n1", "n2"]


def test_names_end_in_units(tmp_path: Path) -> None:
    write_marks(write_node(tmp_path), 5, loss=1.0)
    (tmp_path / "host.csv").write_text(HOST)
    with served(tmp_path) as address:
        names = list(scrape(address))
    for name in names:
        assert name.startswith("charllm_")
        assert name.endswith((*UNITS, *COUNTED)), name
    assert host_name("fan_hz") == "host_fan_hertz"
    assert host_name("runnable_tasks") == "host_runnable_tasks"


def test_readings_that_nobody_renews_are_absent(tmp_path: Path) -> None:
    write_node(tmp_path, age_s=100.0)
    with served(tmp_path) as address:
        found = scrape(address)
    assert not [name for name in found if name.startswith("charllm_gpu")]
    assert found["charllm_reading_age_seconds"][0].value == pytest.approx(100, abs=5)
    assert found["charllm_job_running"][0].value == 0.0


def test_other_paths_and_methods_are_refused(tmp_path: Path) -> None:
    with served(write_node(tmp_path)) as address:
        root = address.removesuffix("/metrics")
        assert b"/metrics" in urllib.request.urlopen(root).read()
        for url, method, code in (
            (f"{root}/../etc/passwd", "GET", 404),
            (address, "POST", 501),
            (address, "DELETE", 501),
        ):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(
                    urllib.request.Request(url, method=method, data=b"x" if method == "POST" else None)
                )
            assert refused.value.code == code
            refused.value.close()
        with urllib.request.urlopen(urllib.request.Request(address, method="HEAD")) as head:
            assert int(head.headers["Content-Length"]) > 100


def _connect(address: str) -> socket.socket:
    host, port = address.removeprefix("http://").removesuffix("/metrics").split(":")
    return socket.create_connection((host, int(port)), timeout=10)


def test_slow_and_rude_scrapers_keep_nobody_from_scraping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "LONGEST_S", 0.5)
    with served(write_node(tmp_path)) as address:
        slow = [_connect(address) for _ in range(3 * MOST_CONNECTIONS)]
        stop = threading.Event()

        def drip() -> None:
            while not stop.wait(0.05):
                for each in slow:
                    with contextlib.suppress(OSError):
                        each.send(b"G")

        threading.Thread(target=drip, daemon=True).start()
        begun_s = time.monotonic()
        while time.monotonic() - begun_s < 60:
            try:
                scrape(address)
                break
            except OSError:
                time.sleep(0.1)
        else:
            pytest.fail("no answer while slow scrapers are connected")
        stop.set()
        rude = _connect(address)
        rude.sendall(b"\0\xff" * 40_000)
        rude.close()
        vanishing = _connect(address)
        vanishing.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        vanishing.close()
        assert scrape(address)["charllm_gpu_power_watts"]
        for each in slow:
            each.close()


def test_many_scrapes_cost_one_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    usual = RunCollector.collect

    def collect(self: RunCollector) -> Iterator[Any]:
        looks.append(1)
        return usual(self)

    monkeypatch.setattr(RunCollector, "collect", collect)
    monkeypatch.setattr(endpoint, "KEPT_S", 60.0)
    with served(write_node(tmp_path)) as address:
        for _ in range(20):
            scrape(address)
    assert len(looks) == 1


@pytest.mark.parametrize(
    ("text", "found"),
    [("9400", (LOOPBACK, 9400)), ("0.0.0.0:80", ("0.0.0.0", 80)), ("[::1]:9", ("::1", 9)), (":0", (LOOPBACK, 0))],
)
def test_an_address_is_a_port_with_or_without_a_host(text: str, found: tuple[str, int]) -> None:
    assert parse_address(text) == found


@pytest.mark.parametrize("text", ["", "x", "1.2.3.4", "70000", "-1", "host:", "80:x"])
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(SpecError, match="--prometheus"):
        parse_address(text)


def test_a_port_that_is_taken_or_a_host_that_is_not_here_is_refused(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        with pytest.raises(SpecError, match="Address already in use"), serving(tmp_path, str(taken.getsockname()[1])):
            pass
    with pytest.raises(SpecError, match="an address of this machine"), serving(tmp_path, "192.0.2.1:0"):
        pass


def test_without_the_library_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(CharllmError, match=r"charllm\[live\]"), serving(tmp_path, "0"):
        pass


def test_every_metric_has_a_quantity_of_its_own() -> None:
    assert len({metric.quantity for metric in GPU_METRICS}) == len(GPU_METRICS)
    assert {metric.quantity for metric in GPU_METRICS} == set(QUANTITIES) - {"limits"}
    assert json.dumps([metric.help for metric in GPU_METRICS])
    assert metrics.GPU_LABELS == ("node", "gpu", "uuid", "rank")


def test_the_dashboard_for_grafana_asks_for_metrics_that_are_served() -> None:
    dashboard = json.loads(files("charllm.measure.live").joinpath("grafana.json").read_text(encoding="utf-8"))
    asked = {
        name
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in re.findall(r"charllm_\w+", target["expr"])
    }
    gpu = {f"charllm_{one.name}{'_total' * one.counter}" for one in GPU_METRICS}
    job = {f"charllm_{name}{'_total' * counter}" for name, _text, _field, counter in JOB_METRICS}
    assert asked <= gpu | job
    assert {"charllm_gpu_power_watts", "charllm_gpu_energy_joules_total", "charllm_job_loss"} <= asked
    places = [tuple(panel["gridPos"].values()) for panel in dashboard["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(places)
