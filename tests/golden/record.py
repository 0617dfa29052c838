"""Write the golden results anew: ``make golden`` shows what changed."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import charllm
from charllm.api.plan import build_space
from charllm.catalog.resolve import resolve_cluster, resolve_run
from charllm.plan.feasible import divide_space
from charllm.plan.metrics import USUAL
from charllm.plan.objectives import parse_objective
from charllm.plan.plan import Plan
from charllm.plan.rank import _Search
from charllm.plan.scores import score_of
from charllm.simulate.emulated import predict_emulated
from charllm.simulate.fast import predict_fast
from charllm.simulate.predict import predict, simulate
from charllm.simulate.rank_timeline import rank_timeline
from charllm.simulate.telemetry import show_telemetry

HERE = Path(__file__).parent
RUNS: dict[str, dict[str, Any]] = {
    "gpt3-175b-h200x32-tp8-pp4": {
        "model": "gpt3-175b",
        "cluster": "charllm-ppt-h200",
        "parallelism": {"tp": 8, "pp": 4},
        "training": {"global_batch_size": 128},
    },
    "llama3-70b-h100x64-interleaved-fp8": {
        "model": "llama3-70b",
        "cluster": "charllm-ppt-h100",
        "framework": "nemo",
        "parallelism": {"tp": 4, "pp": 4, "vpp": 5, "overlap": ["tp", "dp"]},
        "training": {"global_batch_size": 128, "precision": "fp8", "recompute": "selective"},
    },
    "mixtral-8x22b-mi250x32": {
        "model": "mixtral-8x22b",
        "cluster": "charllm-ppt-mi250",
        "parallelism": {"tp": 4, "ep": 8, "pp": 1},
        "training": {"global_batch_size": 128, "recompute": "full", "capacity_factor": 1.0},
    },
    "deepseek-v3-gb200": {
        "model": "deepseek-v3",
        "cluster": {"base": "gb200-nvl72", "nodes": 64, "domain_nodes": 16},
        "framework": "megatron-bridge",
        "parallelism": {"pp": 4, "ep": 64, "layers_per_stage": [16, 16, 16, 13]},
        "training": {"global_batch_size": 2048, "precision": "mxfp8", "routing_skew": 1.2},
    },
    "llama3-8b-h100x8-fsdp": {
        "model": "llama3-8b",
        "cluster": "h100x8",
        "framework": "fsdp",
        "training": {"global_batch_size": 16, "micro_batch_size": 2, "recompute": "selective"},
    },
    "llama2-70b-h200x8-lora-cp": {
        "model": "llama2-70b",
        "cluster": "h200x8",
        "parallelism": {"tp": 4, "cp": 2},
        "training": {"global_batch_size": 8, "seq_length": 8192, "lora_rank": 16},
    },
    "gpt-oss-20b-h200x1-eager": {
        "model": "gpt-oss-20b",
        "cluster": "h200x1",
        "framework": "pytorch-eager",
        "training": {"global_batch_size": 1, "seq_length": 2048},
    },
    "llama3-70b-h100x64-zero-bubble-oversubscribed": {
        "model": "llama3-70b",
        "cluster": {
            "base": "charllm-ppt-h100",
            "fabric": {"base": "roce-8x400g", "nodes_per_pod": 2, "oversubscription": 4.0},
        },
        "parallelism": {"tp": 8, "pp": 4, "schedule": "zero-bubble", "zero": 1, "overlap": ["tp", "dp", "pp"]},
        "training": {"global_batch_size": 32, "precision": "fp8"},
    },
    "llama3-8b-mixed-airflow-faults": {
        "model": "llama3-8b",
        "cluster": {
            "base": "charllm-ppt-h200",
            "cooling": {"flow_fraction": 0.6, "inlet_c": [18.0, 25.0, 30.0, 35.0]},
            "mixed": [{"node": "hgx-h100", "nodes": [2]}],
        },
        "parallelism": {"tp": 2, "pp": 4, "vpp": 2},
        "training": {"global_batch_size": 32, "micro_batch_size": 2, "recompute": "full", "recompute_layers": 2},
        "conditions": {
            "weak_gpus": [3],
            "hot_gpus": [9],
            "slow_nic_nodes": [1],
            "slow_host_nodes": [3],
            "slow_link_gpus": [17],
            "braked_nodes": [2],
            "silicon_spread_fraction": 0.1,
            "capped_gpus": [30],
            "capped_power_w": 400.0,
            "placement": "thermal",
        },
    },
    "nemotron3-nano-h200x8-liquid": {
        "model": "nemotron3-nano-30b-a3b",
        "cluster": {"base": "h200x8", "cooling": {"kind": "liquid", "read_at": "wall", "flow_fraction": 0.8}},
        "parallelism": {"tp": 2, "ep": 4, "zero": 1},
        "training": {"global_batch_size": 16, "seq_length": 4096, "routing": "natural"},
    },
    "deepseek-v2-lite-mi300x32-dualpipe": {
        "model": "deepseek-v2-lite",
        "cluster": {"base": "mi300x8", "nodes": 4, "fabric": "roce-8x400g"},
        "parallelism": {
            "pp": 2,
            "ep": 8,
            "layers_per_stage": [14, 13],
            "schedule": "dualpipe",
            "overlap": ["ep", "pp"],
        },
        "training": {"global_batch_size": 128, "routing_skew": 1.3, "recompute": "selective"},
    },
    "qwen3-30b-a100x16-natural": {
        "model": "qwen3-30b-a3b",
        "cluster": {"base": "a100x8", "nodes": 2, "fabric": "ib-8x200g"},
        "parallelism": {"tp": 4, "etp": 2, "ep": 4, "cp": 2, "cp_kind": "all-to-all", "order": "cp-tp-ep-dp-pp"},
        "training": {"global_batch_size": 16, "routing": "natural", "grouped_gemm": False, "document_tokens": 1024},
    },
    "llama3.2-1b-h200x1-cold": {
        "model": "llama3.2-1b",
        "cluster": "h200x1",
        "training": {"global_batch_size": 16, "micro_batch_size": 2, "seq_length": 4096},
        "conditions": {"seconds_s": 40.0, "power_cap_w": 450.0},
    },
    "mpt-3b-v100x16-zero3-offload": {
        "model": "mpt-3b",
        "cluster": "v100x16",
        "framework": "deepspeed",
        "parallelism": {"zero": 3, "shard_size": 8, "overlap": ["dp"]},
        "training": {
            "global_batch_size": 64,
            "precision": "fp16",
            "optimizer_offload_fraction": 0.5,
            "activation_offload_fraction": 0.25,
        },
    },
    "gpt3-6.7b-a100x32-megatron-2020": {
        "model": "gpt3-6.7b",
        "cluster": {"base": "a100x8", "nodes": 4, "fabric": "ib-4x200g"},
        "framework": "megatron-2020",
        "parallelism": {"tp": 8, "pp": 2, "schedule": "gpipe"},
        "training": {"global_batch_size": 16, "micro_batch_size": 2, "precision": "fp16"},
        "conditions": {"replica_stagger_s": 0.3, "clock_cap_hz": 1.2e9},
    },
    "mixtral-8x7b-b200x16-long": {
        "model": "mixtral-8x7b",
        "cluster": {"base": "b200x8", "nodes": 2, "fabric": "ib-8x400g"},
        "parallelism": {"pp": 2, "tp": 2, "ep": 4, "cp": 2, "zero": 1, "overlap": ["tp", "dp"]},
        "training": {"global_batch_size": 4096, "precision": "nvfp4", "wide_layers": 4, "optimizer": "adam"},
    },
}
LOOKED_AT = (
    "llama3-70b-h100x64-zero-bubble-oversubscribed",
    "qwen3-30b-a100x16-natural",
    "nemotron3-nano-h200x8-liquid",
    "llama3-8b-mixed-airflow-faults",
)
"""Runs of RUNS whose fast path, emulated rank and telemetry are kept, too."""
DENSE: dict[str, Any] = {"model": "llama3-8b", "cluster": "h200x8", "gbs": 32}
STAGES: dict[str, Any] = {**DENSE, "pp": 4, "layers_per_stage": "6,10,8,8"}
ANSWERS: dict[str, Callable[[], Any]] = {
    "plan-dense-whole-run": lambda: kept(
        charllm.plan(**DENSE, top=2, tp=2, mbs=1, whole_run={"tokens": 1e12}, tariff={"demand_per_kw_month": 10.0})
    ),
    "plan-pipeline-caps": lambda: kept(
        charllm.plan(
            **DENSE, pp=4, cp=1, mbs=1, top=2, pareto=True, limit="power_mean_w<650", objective="tokens-per-joule",
            axis={"power_cap": [400, 700]},
        )
    ),
    "plan-sparse": lambda: kept(
        charllm.plan(
            model="mixtral-8x7b", cluster="charllm-ppt-h200", gbs=64, top=2, tp=1, pp=2, cp=1, mbs=1, sp=False, zero=1,
            recompute="selective", sensitivity=True,
        )
    ),
    "caps": lambda: charllm.caps(**DENSE, tp=2, pp=2, at=[700, 500, 300]).table,
    "caps-of-stages": lambda: charllm.caps(**STAGES, per="stage").table,
    "clock-caps": lambda: charllm.caps(**DENSE, tp=2, clock=True, at=[1900, 1500]).table,
    "fast-path": lambda: {name: dict(predict_fast(resolve_run(RUNS[name])).metrics) for name in LOOKED_AT},
    "emulated-ranks": lambda: {name: emulated_rank(name) for name in LOOKED_AT[:2]},
    "telemetry": lambda: {name: shown(name) for name in (*LOOKED_AT, "mixtral-8x7b-b200x16-long")},
    "place": lambda: charllm.place(**DENSE, tp=2, pp=4, dephase=True, work=0.05).as_table(),
    "place-uneven": lambda: charllm.place(
        **{**DENSE, "gbs": 8}, tp=4, pp=2, decide="caps", node_budget=4400.0, work=0.02,
        conditions={"silicon_spread_fraction": 0.06},
    ).as_table(),
    "bounds-dense": lambda: bounds(
        {**DENSE, "model": "llama3-70b", "cluster": "h100x64", "gbs": 64, "power_cap": 500.0},
        {"tp": [4, 8], "pp": [1, 2, 4], "cp": [1, 2], "vpp": [1, 2], "mbs": [1], "recompute": ["none", "full:8"],
         "schedule": ["1f1b", "interleaved", "zero-bubble"]},
    ),
    "bounds-sparse": lambda: bounds(
        {"model": "mixtral-8x7b", "cluster": "h200x32", "gbs": 64},
        {"tp": [1, 2], "pp": [2, 4], "cp": [1], "ep": [4, 8], "vpp": [1, 2], "mbs": [1], "recompute": ["selective"],
         "schedule": ["1f1b", "interleaved", "dualpipe"]},
    ),
}  # fmt: skip
"""Plans, caps, placements and other views of a run: what was counted, what is best, and by how much."""
SUMMED = ("ops", "memory", "breakdown", "timeline", "signals", "links", "cluster")
"""Tables of a result whose columns are summed."""


def golden_result(name: str) -> dict[str, Any]:
    """Return what of a result is kept: versions change with every release; of its tables the sums of their columns."""
    result = simulate(resolve_run(RUNS[name]), ignore_memory=True)
    table = result.as_table()
    table["gpus"] = table["gpus"][::8]
    kept = {key: table[key] for key in ("origin", "spec", "metrics", "gpus", "warnings")}
    return {**kept, "sums": {name: sum_columns(result.tables[name]()) for name in SUMMED}}


def sum_columns(columns: Mapping[str, Sequence[Any]]) -> dict[str, float]:
    """Return the sum of each column of numbers."""
    return {
        name: float(sum(values))
        for name, values in columns.items()
        if all(isinstance(one, int | float) for one in values)
    }


def emulated_rank(name: str) -> dict[str, Any]:
    """Return what one GPU would read that emulates the last rank of a run."""
    found = predict(resolve_run(RUNS[name]), ignore_memory=True, whole=True)
    timeline = rank_timeline(found, found.step.run.parallelism.world - 1)
    alone = predict_emulated(timeline, resolve_cluster("h200x1"), 1.0)
    numbers = {key: value for key, value in alone._asdict().items() if isinstance(value, float)}
    return {**numbers, **{kind: timeline.total_s(kind) for kind in ("communication", "wait")}}


def shown(name: str) -> dict[str, Any]:
    """Return the sums of what would be read of the GPUs and nodes of a run."""
    found = show_telemetry(predict(resolve_run(RUNS[name]), ignore_memory=True))
    return {key: float(values.sum()) for key, values in (found.gpus | found.nodes).items()}


def bounds(words: dict[str, Any], axes: dict[str, list[Any]]) -> list[dict[str, float]]:
    """Return of each share of a space its own bound, the sums of those of its strategies, and some raised ones."""
    feasible = divide_space(build_space(None, axes, words).space)
    score = score_of(feasible.space.base, parse_objective("edp"), USUAL)
    search, found = _Search(feasible, score, [(None, None)], lambda _memory: True), []
    for place, share in enumerate(feasible.shares):
        search.open_share(place)
        items = search.items[place]
        raised = [search.raise_bound((place, one)) for one in range(0, len(items.row), 29)]
        found.append({
            "least_time_s": share.least_time_s, "strategies": share.strategies, "pruned_memory": share.pruned_memory,
            "score": float(items.score.sum()), "energy_j": float(items.energy_j.sum()),
            "raised": float(sum(one for one in raised if one is not None)), "misfits": raised.count(None),
        })  # fmt: skip
    return found


def kept(plan: Plan) -> dict[str, Any]:
    """Return what of a plan is kept: not how long it took, nor specs, which strategies name."""
    table = plan.as_table()
    del table["elapsed_s"]
    for name in ("best", "pareto", "others"):
        table[name] = [
            {key: value for key, value in one.items() if key not in ("spec", "flags")} for one in table[name]
        ]
    return table


def main() -> None:
    answers = {name: golden_result(name) for name in RUNS} | {name: answer() for name, answer in ANSWERS.items()}
    for name, answer in answers.items():
        (HERE / f"{name}.json").write_text(json.dumps(answer, indent=1) + "\n")


if __name__ == "__main__":
    main()
