import re
from dataclasses import replace
from typing import Any

import pytest

from charllm.analysis.advice import Effect
from charllm.catalog.resolve import resolve_run
from charllm.report.run import render_answer
from charllm.result.answers import answer_time, describe_run
from charllm.result.columns import columns_of
from charllm.result.description import conditions
from charllm.result.metrics import Metrics
from charllm.simulate.predict import simulate
from charllm.spec.request import merge

REQUEST: dict[str, Any] = {
    "model": "mixtral-8x7b",
    "cluster": "charllm-ppt-h200",
    "parallelism": {"tp": 2, "pp": 2, "ep": 4, "overlap": ["dp"]},
    "training": {"recompute": "full"},
}
RUN = resolve_run(REQUEST)


def said(**changes: Any) -> str:
    return "; ".join(conditions(resolve_run(merge(REQUEST, changes))))


def test_a_run_is_described_in_a_few_lines() -> None:
    lines = describe_run(simulate(RUN))
    assert lines[0] == (
        "mixtral-8x7b on charllm-ppt-h200 (4 nodes x 8 h200; ib-100g-per-node: 1 x 100 Gb/s per node), megatron, bf16"
    )
    assert "tp 2 x pp 2 x dp 8 x ep 4, zero 1, sp, overlap dp, recompute full" in lines[1]
    assert lines[2].startswith("conditions: power limit 700 W (default)")


def test_the_last_line_lists_the_defaults_of_the_profile() -> None:
    nemo = resolve_run(
        {"model": "llama3-70b", "cluster": "charllm-ppt-h200", "framework": "nemo", "parallelism": {"tp": 4, "pp": 4}}
    )
    assert nemo.defaults_taken
    assert describe_run(simulate(nemo))[-1] == f"defaults taken from profile nemo: {'; '.join(nemo.defaults_taken)}"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"conditions": {"power_cap_w": 500}}, "power limit 500 of 700 W"),
        ({"conditions": {"clock_cap_mhz": 1500}}, "clock capped at 1500 of 1980 MHz"),
        ({"conditions": {"weak_gpus": [3, 11]}}, "weak GPUs 3 (x 1.15), 11 (x 1.15)"),
        (
            {"conditions": {"weak_gpus": [3, 11], "weak_power_fraction": [1.1, 1.3]}},
            "weak GPUs 3 (x 1.1), 11 (x 1.3)",
        ),
        ({"conditions": {"braked_nodes": [1], "brake_clock_mhz": 900}}, "power brake on nodes 1 (900 MHz)"),
        ({"conditions": {"silicon_spread_fraction": 0.03, "seed": 7}}, "spread between dies 3.0 % (seed 7)"),
        ({"conditions": {"gpu_of_rank": [*range(1, 32), 0], "placement": "p.json"}}, "ranks placed by p.json"),
        ({"conditions": {"steps": 20}}, "20 steps from a cold start"),
        ({"conditions": {"seconds_s": 60}}, "60 s from a cold start"),
        ({"cluster": {"cooling": {"inlet_c": 35}}}, "air cooling, inlet 35 C"),
        ({"cluster": {"cooling": {"inlet_c": [20, 21, 22, 30]}}}, "inlet 20 to 30 C by node (20, 21, 22, 30)"),
        ({"cluster": {"cooling": {"kind": "liquid", "flow_fraction": 0.8}}}, "flow 0.8 times normal"),
    ],
)
def test_every_condition_is_named(changes: dict[str, Any], words: str) -> None:
    assert words in said(**changes)


def test_mixed_nodes_are_counted_by_kind() -> None:
    mixed = resolve_run(merge(REQUEST, {"cluster": {"mixed": [{"node": "hgx-h100", "nodes": [1, 2, 3]}]}}))
    assert "(1 node x 8 h200 in hgx-h200 + 3 nodes x 8 h100 in hgx-h100; ib-100g" in describe_run(simulate(mixed))[0]


def test_the_headline_has_the_rates() -> None:
    result = simulate(RUN)
    line = answer_time(result)
    assert re.fullmatch(r"[\d.]+ s, [\d,]+ tokens/s, [\d,]+ tokens/s/GPU, MFU [\d.]+ %", line)
    unknown = replace(result, metrics=Metrics({**result.metrics, "mfu": None}))
    assert "MFU" not in answer_time(unknown)


def test_the_answers_are_those_of_the_result() -> None:
    result = simulate(RUN)
    tables = {
        "best_changes": lambda: columns_of(Effect._fields, [Effect("--mbs 2", 9.0, 0.111, 2e9)]),
        "explanations": lambda: {"text": ["the arithmetic"]},
    }
    text = render_answer(replace(result, tables=tables))
    metrics = result.metrics
    assert f"{metrics['power_mean_w']:.0f} W per GPU" in text
    assert f"{metrics['temperature_peak_c']:.1f} C peak" in text
    need_gib = metrics["memory_need_bytes"] / 2**30
    assert f"fits: needs {need_gib:.1f} of 140.4 GiB on rank {metrics['memory_rank']}" in text
    assert "--mbs 2, +11.1 % tokens/s" in text
    first = metrics["critical_path"][0]
    assert f"Bottleneck    stage {first['stage']} on node {first['node']}" in text
    assert text.endswith("Explanation: the arithmetic")


def test_the_gpu_that_paces_the_others_is_named() -> None:
    weak = resolve_run(merge(REQUEST, {"conditions": {"weak_gpus": [9], "weak_power_fraction": 1.5}}))
    result = simulate(weak, ignore_memory=True)
    assert "on node 1" in (text := render_answer(result))
    assert "its slowest GPU is in slot 1" in text
