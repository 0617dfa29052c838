"""Predict a run without a GPU."""

from typing import Any

import numpy as np

from charllm.fit import explain_misfit, fits
from charllm.layout.grid import Grid
from charllm.layout.placement import place_ranks
from charllm.result.metrics import AXES, fill_metrics, missing
from charllm.result.provenance import describe_provenance
from charllm.result.result import RunResult
from charllm.spec.run import RunSpec, idle_requests
from charllm.timeline.step_time import StepTime, time_step
from charllm.workload.memory import StageMemory, first_rank, stage_memories
from charllm.workload.model_flop import model_flop, model_flop_utilization
from charllm.workload.parameters import count_active_parameters, count_parameters
from charllm.workload.step import Step, build_step
from charllm.workload.totals import Traffic, count_traffic, executed_flop

NOT_YET = "not predicted yet (this version knows seconds, not yet watts and degrees)"


def simulate(run: RunSpec, *, ignore_memory: bool = False) -> RunResult:
    """Return what a run needs and how long it takes; a run that does not fit has no times unless that is ignored."""
    step = build_step(run)
    memories = stage_memories(step)
    worst = max(memories, key=lambda memory: memory.total_bytes)
    traffic = count_traffic(step)
    metrics = fill_metrics(
        {
            "parameters": count_parameters(run.model, with_mtp=True),
            "active_parameters": count_active_parameters(run.model),
            "model_flop": model_flop(run),
            "executed_flop": executed_flop(step),
            "microbatches": run.microbatches,
            "fits": fits(run, worst),
            "memory_peak_bytes": worst.total_bytes,
            "memory_breakdown_bytes": worst.by_kind(),
            "memory_rank": first_rank(run, worst.stage),
            "link_bytes": traffic.link_bytes,
            "axis_bytes": traffic.axis_bytes,
            "message_bytes_median": traffic.message_bytes_median,
            "messages": traffic.messages,
        }
    )
    warnings = idle_requests(run)
    if metrics["fits"] or ignore_memory:
        metrics.update(time_metrics(step, time_step(step), traffic))
    if not metrics["fits"]:
        warnings.append(explain_misfit(run, worst))
    warnings.append(f"{NOT_YET}: {', '.join(missing(metrics))}")
    return RunResult(
        origin="simulated",
        spec=run.as_table(),
        metrics=metrics,
        gpus=_gpu_rows(run, memories),
        nodes=[{"node": node} for node in range(run.cluster.nodes)],
        provenance=describe_provenance(run),
        warnings=warnings,
    )


def time_metrics(step: Step, timed: StepTime, traffic: Traffic) -> dict[str, Any]:
    """Return the metrics that follow from a step's time."""
    run = step.run
    seconds, gpus = timed.step_time_s, run.parallelism.world
    return {
        "step_time_s": seconds,
        "tokens_per_s": run.tokens_per_step / seconds,
        "tokens_per_s_per_gpu": run.tokens_per_step / seconds / gpus,
        "mfu": model_flop_utilization(run, seconds),
        "breakdown_s": timed.breakdown_s,
        "hidden_communication_s": {axis: timed.hidden_s.get(axis, 0.0) for axis in AXES},
        "link_utilization_fraction": _link_use(run, traffic, seconds),
    }


def _link_use(run: RunSpec, traffic: Traffic, seconds: float) -> dict[str, float | None]:
    """Return what is sent over each kind of link over what it could carry in the step, one way."""
    node, fabric, nodes = run.cluster.node, run.cluster.fabric, run.cluster.nodes
    can_carry = {
        "nvlink": node.link_bandwidth_bytes_per_s * node.gpus * nodes,
        "pcie": node.pcie_bandwidth_bytes_per_s * node.gpus * nodes,
        "nic": fabric.nic_bandwidth_bytes_per_s * fabric.nics_per_node * nodes,
    }
    return {link: traffic.link_bytes[link] / (rate * seconds) if rate else None for link, rate in can_carry.items()}


def _gpu_rows(run: RunSpec, memories: list[StageMemory]) -> list[dict[str, Any]]:
    """Describe every GPU: where it is, which stage it works on, what it needs."""
    ranks = np.arange(run.parallelism.world)
    stages = Grid(run.parallelism).stage(ranks)
    gpus = place_ranks(run)
    needs = [memory.total_bytes for memory in memories]
    per_node = run.cluster.node.gpus
    return [
        {
            "rank": int(rank),
            "node": int(gpu // per_node),
            "slot": int(gpu % per_node),
            "stage": int(stage),
            "memory_peak_bytes": needs[stage],
        }
        for rank, gpu, stage in zip(ranks, gpus, stages, strict=True)
    ]
