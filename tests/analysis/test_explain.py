"""What is said of a figure that looks wrong can be recomputed from the run's own figures."""

import re
from functools import lru_cache
from typing import Any

import pytest

from charllm.analysis.explain import explain_run, launch_totals, slowest_link
from charllm.catalog.resolve import resolve_run
from charllm.simulate.predict import Simulation, predict
from charllm.workload.step import build_step
from charllm.workload.totals import count_traffic

RUNS: dict[str, dict[str, Any]] = {
    "fsdp": {"model": "gpt3-175b", "cluster": "charllm-ppt-h200", "parallelism": {"tp": 8, "zero": 3}},
    "bubble": {
        "model": "llama3-70b", "cluster": "charllm-ppt-h200", "parallelism": {"tp": 2, "pp": 16},
        "training": {"global_batch_size": 4},
    },
    "launches": {
        "model": "gpt2", "cluster": "h200x1", "framework": "pytorch-eager",
        "training": {"global_batch_size": 1, "seq_length": 64},
    },
    "capped": {
        "model": "llama3-8b", "cluster": "h200x8", "parallelism": {"tp": 2}, "conditions": {"power_cap_w": 250},
    },
    "hot": {
        "model": "llama3-8b", "cluster": {"base": "h200x8", "cooling": {"inlet_c": 70.0}}, "parallelism": {"tp": 2},
    },
    "braked": {
        "model": "llama3-8b", "cluster": "h200x8", "parallelism": {"tp": 2}, "conditions": {"braked_nodes": [0]},
    },
    "tp over NICs": {"model": "llama3-8b", "cluster": "charllm-ppt-h200", "parallelism": {"tp": 16, "dp": 2}},
    "usual": {"model": "llama3-70b", "cluster": "charllm-ppt-h200", "parallelism": {"tp": 4, "pp": 4}},
}  # fmt: skip


@lru_cache(maxsize=16)
def found(name: str) -> Simulation:
    return predict(resolve_run(RUNS[name]), ignore_memory=True)


def notes(name: str) -> list[str]:
    return explain_run(found(name))


def numbers(text: str) -> list[float]:
    return [float(word.replace(",", "")) for word in re.findall(r"\d[\d,]*\.?\d*", text)]


def test_a_usual_run_needs_no_explanation() -> None:
    assert notes("usual") == []


def test_a_run_without_a_time_is_not_explained() -> None:
    assert explain_run(predict(resolve_run({"model": "gpt3-175b", "cluster": "h200x1"}))) == []


def test_exposed_communication_is_bytes_over_bandwidth() -> None:
    run, metrics = found("fsdp").step.run, found("fsdp").result.metrics
    (note, mfu) = notes("fsdp")
    share = metrics["breakdown_s"]["dp_exposed"] / metrics["step_time_s"]
    assert f"takes {100 * share:.0f} % of the step" in note
    assert f"{run.microbatches} microbatches gather and reduce" in note
    load = slowest_link(run, count_traffic(found("fsdp").step), "dp")
    assert load.link == "nic"
    assert load.sent_bytes == metrics["axis_bytes"]["dp"] == metrics["link_bytes"]["nic"]
    fabric = run.cluster.fabric
    capacity = run.cluster.nodes * fabric.nics_per_node * fabric.nic_bandwidth_bytes_per_s
    assert load.least_s == pytest.approx(metrics["axis_bytes"]["dp"] / capacity)
    each_tib, nodes, rate_gb, seconds = numbers(note.split("each): ")[1].split(". To reduce")[0])
    assert each_tib * 2**40 / (rate_gb * 1e9) == pytest.approx(seconds, rel=5e-3)
    assert nodes == 4
    assert load.least_s <= metrics["breakdown_s"]["dp_exposed"] + metrics["hidden_communication_s"]["dp"]
    assert "--mbs" in note
    assert mfu.startswith("MFU is")


def test_low_mfu_is_written_out_as_its_division() -> None:
    metrics, run = found("fsdp").result.metrics, found("fsdp").step.run
    note = notes("fsdp")[-1]
    percent, pflop, gpus, tflop_per_s, step_s = numbers(note)[:5]
    assert pflop * 1e15 / (gpus * tflop_per_s * 1e12 * step_s) == pytest.approx(percent / 100, rel=0.03)
    assert gpus == run.cluster.gpus
    assert step_s == pytest.approx(metrics["step_time_s"], rel=1e-4)
    assert "most of the step is not compute" in note


def test_a_bubble_is_stages_against_microbatches() -> None:
    note = notes("bubble")[0]
    run, metrics = found("bubble").step.run, found("bubble").result.metrics
    assert f"{run.microbatches} microbatches, 16 stages" in note
    assert "= 15 / 19 = 79 %" in note
    assert metrics["breakdown_s"]["bubble"] / metrics["step_time_s"] == pytest.approx(15 / 19, abs=0.1)


def test_launches_are_counted_against_kernels() -> None:
    one = found("launches")
    assert one.timed is not None
    launching_s, working_s = launch_totals(one.step.run, one.timed)
    assert launching_s > 2 * working_s
    note = notes("launches")[0]
    assert note.startswith("the host launches kernels too slowly")
    launches, micro_s, seconds, kernels_s = numbers(note.split("waits for")[1])[:4]
    assert launches * micro_s * 1e-6 == pytest.approx(seconds, rel=0.02)
    assert kernels_s == pytest.approx(working_s, rel=0.01)


@pytest.mark.parametrize(
    ("name", "cause", "words"),
    [
        ("capped", "power", "against a limit of 250 W (700 W as delivered)"),
        ("hot", "thermal", "above 87 C the clock falls"),
        ("braked", "brake", "nodes 0 are under a power brake"),
    ],
)
def test_lost_clocks_are_explained_by_their_limit(name: str, cause: str, words: str) -> None:
    lost = found(name).result.metrics["clock_loss_fraction"][cause]
    assert lost > 0.25
    (note,) = [note for note in notes(name) if note.startswith("clocks are")]
    assert note.startswith(f"clocks are {100 * lost:.0f} % below maximum")
    assert words in note


def test_tensor_parallelism_over_nics_is_told_to_stay_in_a_node() -> None:
    note = notes("tp over NICs")[0]
    assert note.startswith("tp communication")
    assert "keep tp within the 8 GPUs of a node" in note


def test_a_node_of_one_package_is_explained_by_the_links_inside_it() -> None:
    run = resolve_run({"model": "llama3-8b", "cluster": "mi250x2", "parallelism": {"tp": 2}})
    load = slowest_link(run, count_traffic(build_step(run)), "tp")
    assert load.link == "nvlink"
    assert load.least_s == pytest.approx(load.sent_bytes / (2 * run.cluster.node.package_bandwidth_bytes_per_s))
