"""The matrix arithmetic a model needs, however it is run: what MFU divides by.

Equation: MFU = model FLOPs of a step / (step time x GPUs x dense peak); model FLOPs = 2 m n k of every product forward,
twice that backward, attention with the causal half.
Source: PaLM (Chowdhery 2022, appendix B) for MFU; causal half as in FlashAttention's counts.
Ignores: arithmetic outside matrix units.
"""

from dataclasses import replace

from charllm.spec.hardware import Gpu
from charllm.spec.parallelism import Parallelism
from charllm.spec.run import RunSpec
from charllm.workload.cut import PLAIN, Cut, cut_model
from charllm.workload.layer import layer, layer_kinds, mtp_kinds
from charllm.workload.op import Module, Op
from charllm.workload.recurrence import delta_flop, scan_flop
from charllm.workload.vocabulary import embedding, head, mtp_entry

SCANS = {"scan": scan_flop, "delta": delta_flop}
"""Kind of op that computes parts of forward again in backward: its arithmetic."""


def model_flop_utilization(run: RunSpec, step_time_s: float) -> float | None:
    """Return MFU: model FLOPs of a step over what the job's GPUs could do in it, None where they have no peak."""
    peak = peak_flop_per_s(run)
    return model_flop(run) / (step_time_s * run.parallelism.world * peak) if peak else None


def peak_flop_per_s(run: RunSpec) -> float:
    """Return the peak of one GPU that MFU divides by, on average over the GPUs of a mixed cluster.

    Products asked for in fp32 run on matrix units where those take them and the framework lets them, and bf16 in fp32
    units where matrix units do not take it; a narrower format that the GPU lacks runs in 16 bits.
    """
    cluster, others = run.cluster, sum(len(other.nodes) for other in run.cluster.mixed)
    counted = [(cluster.gpu, cluster.nodes - others), *((other.node.gpu, len(other.nodes)) for other in cluster.mixed)]
    return sum(_gpu_peak(gpu, run) * nodes for gpu, nodes in counted) / cluster.nodes


def _gpu_peak(gpu: Gpu, run: RunSpec) -> float:
    precision = run.training.precision
    if precision == "fp32" and run.framework.tf32 and gpu.peak_tf32_flop_per_s:
        return gpu.peak_tf32_flop_per_s
    if precision == "bf16":
        return gpu.peak_bf16_flop_per_s or gpu.peak_fp32_flop_per_s
    return gpu.peak_flop_per_s(precision) or gpu.peak_16bit_flop_per_s


def model_flop(run: RunSpec) -> float:
    """Return the FLOPs of a step by the model's own definition.

    Forward and, where it trains, backward of every weight and of causal-half attention, nothing recomputed, nothing
    padded; a frozen weight has no gradient of its own. The backward of attention and of Mamba's scan counts as twice
    the forward.
    """
    training = replace(
        run.training,
        micro_batch_size=1,
        global_batch_size=1,
        precision="bf16",
        capacity_factor=None,
        routing_skew=1.0,
    )
    cut = cut_model(run.model, training, PLAIN, Parallelism())
    trains = run.parallelism.trains
    return run.training.global_batch_size * sum(
        _module_flop(module, trains=trains) * count for module, count in _modules(cut)
    )


def _modules(cut: Cut) -> list[tuple[Module, int]]:
    model = cut.model
    kinds = layer_kinds(model)
    counted = [(module, kinds.count(kind)) for kind in dict.fromkeys(kinds) for module in layer(cut, kind)]
    counted += [(module, 1) for module in (*embedding(cut), *head(cut, owns_weight=True))]
    if model.mtp_layers:
        parts = (module for kind in mtp_kinds(model) for module in layer(cut, kind))
        extra = (*mtp_entry(cut), *parts, *head(cut, owns_weight=True))
        counted += [(module, model.mtp_layers) for module in extra]
    return counted


def _module_flop(module: Module, *, trains: bool = True) -> float:
    forward = sum(op.flop for op in module.forward)
    return forward + (sum(op.flop * _needed_share(op) for op in module.backward) if trains else 0.0)


def _needed_share(op: Op) -> float:
    """Share of an op's arithmetic that is gradient: backward of attention and of a scan runs parts of forward again."""
    if op.kind in SCANS:
        flop = SCANS[op.kind](op.shape)
        return 2 * flop.forward / flop.backward
    if op.kind != "attention":
        return 1.0
    *_, qk, pv = op.shape
    return (2 * qk + 2 * pv) / (3 * qk + 2 * pv)
