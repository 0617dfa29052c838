"""A made-up plan, as `charllm plan --json` prints one: strategies, one of which breaks a limit, and the own one."""

from typing import Any

from charllm.catalog.resolve import resolve_run
from charllm.units import GIB

HOSTILE = "<img src=x onerror=alert(1)>"
SPEC = resolve_run({"model": "llama3-70b", "cluster": "charllm-ppt-h200", "framework": "megatron"}).as_table()


def strategy(tp: int, pp: int, speed: float, per_j: float, memory_gib: float, **more: Any) -> dict[str, Any]:
    """Return one strategy of a plan; its step is half compute."""
    step_s = 1e6 / speed
    metrics = {
        "step_time_s": step_s,
        "tokens_per_s": speed,
        "tokens_per_s_per_gpu": speed / 32,
        "tokens_per_j": per_j,
        "power_mean_w": 600.0,
        "power_peak_sensor_w": 800.0 + tp,
        "temperature_peak_c": 60.0 + pp,
        "memory_peak_bytes": memory_gib * GIB,
        "fits": True,
        "breakdown_s": {"compute": step_s / 2, "tp_exposed": step_s / 2},
    }
    dp = 32 // (tp * pp)
    return {
        "strategy": f"tp {tp} x pp {pp} x dp {dp}, microbatch 1",
        "flags": f"--tp {tp} --pp {pp} --dp {dp} --no-sp --mbs 1",
        "spec": SPEC,
        "metrics": metrics,
        **more,
    }


def plan_table(**changes: Any) -> dict[str, Any]:
    """Return the table of a plan."""
    diff = [
        {"program": "charllm", "flag": "--tp", "before": "8", "after": "4"},
        {"program": "megatron", "flag": "--tensor-model-parallel-size", "before": "8", "after": "4"},
        {"program": "megatron", "flag": "--overlap-grad-reduce", "before": None, "after": ""},
        {"program": "megatron", "flag": "--no-gradient-accumulation-fusion", "before": "", "after": None},
    ]
    best = [
        strategy(4, 4, 34000.0, 1.6, 115, probability_best=0.612, why=[f"It sends less. {HOSTILE}"], diff=diff),
        strategy(4, 8, 33000.0, 1.7, 100, probability_best=0.3),
        strategy(2, 16, 30000.0, 1.5, 90, probability_best=0.004),
    ]
    return {
        "objective": "throughput",
        "goal": {
            "name": "throughput",
            "metric": "tokens_per_s",
            "better": "higher",
            "meaning": "highest throughput",
        },
        "limits": ["memory_peak_gib<130"],
        "bounds": [{"text": "memory_peak_gib<130", "metric": "memory_peak_bytes", "sense": "<", "value": 130 * GIB}],
        "best": best,
        "pareto": [best[0], best[1], strategy(2, 8, 29000.0, 1.8, 120)],
        "others": [strategy(1, 8, 36000.0, 1.9, 135)],
        "counts": {
            "visited": 120000,
            "pruned_invalid": 100000,
            "pruned_memory": 15000,
            "pruned_bound": 4000,
            "priced": 1000,
            "simulated": 20,
        },
        "elapsed_s": 4.2,
        "rejected": {"memory_peak_gib<130": 1},
        "sensitivity": [
            {
                "change": "NICs half as fast",
                "values": [30000.0, 31000.0],
                "winner": 1,
                "lead_fraction": -0.032,
                "reason": "",
            },
            {
                "change": "inlet 10 K warmer",
                "values": [33000.0, 32000.0],
                "winner": 0,
                "lead_fraction": 0.031,
                "reason": "",
            },
            {
                "change": "dies that differ by 5 %",
                "values": [],
                "winner": None,
                "lead_fraction": None,
                "reason": "no time",
            },
        ],
        "own": strategy(8, 4, 28000.0, 1.4, 74, rank=6),
        "warnings": [],
        **changes,
    }
