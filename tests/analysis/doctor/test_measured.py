"""A measured run is read from its recordings, a folder a node, with whatever was read of it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import charllm
from charllm.analysis.doctor.measured import observe_measured
from charllm.gpu.limits import LIMITS
from charllm.measure.quantities import BEATS
from charllm.measure.recording import RecordingWriter
from charllm.measure.telemetry.source import GpuIdentity, SourceFacts
from charllm.result.metrics import fill_metrics
from charllm.result.result import RunResult, to_json

SECONDS, PER_NODE = 60, 4
GIB_PER_S = 12.5e9


def record_node(
    folder: Path, name: str, change: Mapping[int, Mapping[str, float]], host: Mapping[str, float] | None
) -> None:
    """Write what a sampler would have written of a node with four GPUs."""
    place = folder / "nodes" / name
    place.mkdir(parents=True)
    gpus = tuple(GpuIdentity(f"{name}-{gpu}", "NVIDIA H200", gpu) for gpu in range(PER_NODE))
    writer, random = RecordingWriter(place, SourceFacts("nvml", gpus), {}), np.random.default_rng(len(name))
    for second in range(SECONDS):
        for gpu in range(PER_NODE):
            usual = {
                "power_instant_w": 600.0, "power_average_w": 600.0, "temperature_c": 60.0, "clock_hz": 1.8e9,
                "limits": float(LIMITS["power"]), "utilization_fraction": 1.0, "power_limit_w": 700.0,
            }  # fmt: skip
            values = {
                name: value * random.normal(1, 0.002) if name != "limits" else value for name, value in usual.items()
            }
            values.update(change.get(gpu, {}))
            for beat in ("fast", "slow"):
                times_ns = (int(second * 1e9), int(second * 1e9), 1000)
                writer.write(beat, gpu, times_ns, [values.get(quantity, "not_supported") for quantity in BEATS[beat]])
    writer.close()
    (place / "job.json").write_text(json.dumps({"windows_s": {"command": [0.0, float(SECONDS)]}}))
    if host is not None:
        lines = [
            "monotonic_ns,wall_ns,duration_ns,cpu_load_fraction,nic_sent_bytes:mlx5_0/1,nic_wait_ticks:mlx5_0/1,missing"
        ]
        for second in range(SECONDS):
            waits = int(host.get("wait", 0.001) * GIB_PER_S / 8 * second)
            lines.append(f"{int(second * 1e9)},0,0,0.2,{int(1e9 * second)},{waits},")
        (place / "host.csv").write_text("\n".join(lines) + "\n")
        facts = {"rdma": {"mlx5_0/1": {"rate_bytes_per_s": host.get("rate", GIB_PER_S), "state": "ACTIVE"}}}
        (place / "host.json").write_text(json.dumps(facts))


def record(
    folder: Path, *nodes: tuple[Mapping[int, Mapping[str, float]], Mapping[str, float] | None]
) -> charllm.Diagnosis:
    """Write a run on several nodes and examine it."""
    for place, (change, host) in enumerate(nodes):
        record_node(folder, f"n{place}", change, host)
    rows: list[dict[str, Any]] = [
        {"rank": place * PER_NODE + gpu, "node": place, "slot": gpu, "stage": None, "uuid": f"n{place}-{gpu}"}
        for place in range(len(nodes))
        for gpu in range(PER_NODE)
    ]
    result = RunResult(origin="measured", spec={"command": "train"}, metrics=fill_metrics({}), gpus=rows)
    (folder / "result.json").write_text(to_json(result))
    return charllm.doctor(folder)


def test_a_healthy_measured_run_is_called_so(tmp_path: Path) -> None:
    found = record(tmp_path, ({}, None), ({}, None))
    assert found.verdict == "no weak GPU, link, node or host found"
    assert (found.gpus, found.nodes) == (8, 2)
    assert any("wait counters" in told for told in found.not_judged)
    assert any("multiprocessor activity" in told for told in found.not_judged)


def test_a_hot_gpu_is_named_as_the_operator_knows_it(tmp_path: Path) -> None:
    hot = {2: {"clock_hz": 1.5e9, "temperature_c": 88.0, "limits": float(LIMITS["thermal"])}}
    found = record(tmp_path, ({}, None), (hot, None), ({}, None))
    assert found.verdict.startswith("GPU 2 of node n1 clocks 16.")
    assert "thermal" in found.verdict
    assert found.findings[0]["cost_basis"] == "waits"


def test_a_slow_host_leaves_its_gpus_idle(tmp_path: Path) -> None:
    idle = {gpu: {"utilization_fraction": 0.8} for gpu in range(PER_NODE)}
    found = record(tmp_path, ({}, {}), ({}, {}), (idle, {}))
    assert [(one["kind"], one["node"]) for one in found.findings] == [("host", 2)]


def test_a_port_at_a_lower_rate_is_named(tmp_path: Path) -> None:
    found = record(tmp_path, ({}, {}), ({}, {"rate": GIB_PER_S / 4}), ({}, {}))
    assert [(one["kind"], one["node"]) for one in found.findings] == [("link", 1)]
    assert found.findings[0]["effect_fraction"] == pytest.approx(0.75)


def test_waits_of_ports_are_shares_of_time(tmp_path: Path) -> None:
    found = record(tmp_path, ({}, {"wait": 0.2}), ({}, {}), ({}, {}))
    assert not found.findings
    assert any("ports of node n0 cannot send 20.0 %" in told for told in found.not_judged)
    seen = observe_measured(charllm.load(tmp_path), tmp_path)  # type: ignore[arg-type]
    waits = seen.node_mean("nic_wait_fraction")
    assert waits is not None
    assert waits[0] == pytest.approx(0.2, rel=1e-3)


def test_a_cut_off_recording_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    record(tmp_path, ({}, {}), ({}, {}))
    samples = tmp_path / "nodes" / "n1" / "samples.csv"
    samples.write_bytes(samples.read_bytes()[:-30])
    (tmp_path / "nodes" / "n1" / "host.csv").write_text("monotonic_ns,cpu_load")
    assert charllm.doctor(tmp_path).nodes == 2
