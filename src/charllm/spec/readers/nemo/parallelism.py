"""How settings of NeMo cut a step over ranks."""

from charllm.spec.readers.megatron.derived import CP_KINDS, SHARDINGS, counted_stages, read_layout, uneven_stages
from charllm.spec.readers.nemo.document import Document
from charllm.spec.readers.nemo.find import (
    DDP,
    MODEL,
    OPTIMIZER,
    PARALLEL,
    Table,
    count_setting,
    find_setting,
    flag_setting,
    without_none,
)
from charllm.spec.readers.nemo.words import FSDP, OPTIMIZERS
from charllm.spec.readers.values import read_choice, read_flag

DEGREES = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
    "vpp": "virtual_pipeline_model_parallel_size",
}


def read_parallelism(document: Document, framework: str) -> Table:
    """Return the degrees, the stages and what overlaps."""
    table: Table = {axis: count_setting(document, PARALLEL, key, low=1) or 1 for axis, key in DEGREES.items()}
    table["etp"] = count_setting(document, PARALLEL, "expert_tensor_parallel_size", low=1)
    table["sp"] = flag_setting(document, PARALLEL, "sequence_parallel") and table["tp"] > 1
    table.update(_stages(document, table))
    table.update(_sharding(document, table["tp"], framework))
    where, kind = find_setting(document, PARALLEL, "cp_comm_type")
    table["cp_kind"] = read_choice(where, kind or "p2p", CP_KINDS) if table["cp"] > 1 else None
    table["overlap"] = _overlap(document, table) if framework == "nemo" else _bridge_overlap(document, table)
    return without_none(table)


def _stages(document: Document, table: Table) -> Table:
    pp, vpp = table["pp"], table["vpp"]
    where, layout = find_setting(document, PARALLEL, "pipeline_model_parallel_layout")
    if layout is not None:
        split = read_layout(where, layout, pp)
        return {"vpp": len(split) // pp, "layers_per_stage": split}
    ends = ("num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage")
    first, last = (count_setting(document, PARALLEL, key) for key in ends)
    counted = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")
    embedding, loss = (flag_setting(document, PARALLEL, key) for key in counted)
    layers, field = count_setting(document, MODEL, "num_layers") or 0, f"model.{DEGREES['pp']}"
    if pp > 1 and (first is not None or last is not None):
        return {"layers_per_stage": uneven_stages(field, layers, pp, vpp, (first, last))}
    if pp > 1 and (embedding or loss):
        return {"layers_per_stage": counted_stages(field, layers, pp * vpp, embedding, loss)}
    return {}


def is_fsdp(document: Document) -> bool:
    """Tell whether PyTorch's FSDP shards the model."""
    return flag_setting(document, ("model",), "fsdp")


def _sharding(document: Document, tp: int, framework: str) -> Table:
    """Read what the replicas shard: FSDP, Megatron's FSDP, or a distributed optimizer."""
    if is_fsdp(document):
        where, strategy = find_setting(document, ("model",), "fsdp_sharding_strategy")
        table: Table = {"zero": read_choice(where, strategy or "full", FSDP)}
        devices = count_setting(document, ("trainer",), "devices") if strategy == "hybrid" else None
        return {**table, "shard_size": devices // tp} if devices and not devices % tp else table
    if flag_setting(document, DDP, "use_megatron_fsdp", "use_custom_fsdp"):
        where, strategy = find_setting(document, DDP, "data_parallel_sharding_strategy")
        return {"zero": read_choice(where, strategy or "no_shard", SHARDINGS)}
    where, stated = find_setting(document, (*DDP, *OPTIMIZER), "use_distributed_optimizer")
    name, implied = read_optimizer(document)
    if stated is None and name is None and framework != "nemo":
        return {}
    return {"zero": max(int(stated is not None and read_flag(where, stated)), implied)}


def read_optimizer(document: Document) -> tuple[str | None, int]:
    """Return the update rule and the ZeRO stage that its name implies; no rule where the file names none."""
    where, name = find_setting(document, OPTIMIZER, "name", "optimizer")
    return (None, 0) if name is None else read_choice(where, name, OPTIMIZERS)


OVERLAPS = ("overlap_grad_reduce", "overlap_param_gather")


def _bridge_overlap(document: Document, table: Table) -> list[str] | None:
    """Return what overlaps in Megatron-Bridge; None where its file does not say.

    A CommOverlapConfig overlaps replicas and interleaved stages unless it says otherwise (training/comm_overlap.py).
    """
    configured = document.written("comm_overlap") is not None
    found = _overlap(document, table)
    asked = [find_setting(document, ("comm_overlap", *DDP, *OPTIMIZER), key) for key in OVERLAPS]
    stated = [read_flag(where, value) for where, value in asked if value is not None]
    if not configured and not stated:
        return found or None
    if configured:
        sends = find_setting(document, ("comm_overlap",), "overlap_p2p_comm")
        if table["vpp"] > 1 and (sends[1] is None or read_flag(*sends)) and "pp" not in found:
            found.append("pp")
        if not stated and "dp" not in found:
            found.append("dp")
    return [axis for axis in ("tp", "dp", "pp", "ep") if axis in found]


def _overlap(document: Document, table: Table) -> list[str]:
    tp_rooms = ("model", "comm_overlap", "trainer.strategy")
    dp_rooms = (*DDP, *OPTIMIZER, "comm_overlap")
    dp_keys = ("overlap_grad_sync", "overlap_grad_reduce", "overlap_param_sync", "overlap_param_gather")
    asked_tp = flag_setting(document, tp_rooms, "ub_tp_comm_overlap", "tp_comm_overlap")
    asked_dp = [flag_setting(document, dp_rooms, key) for key in dp_keys]
    hidden = {
        # NeMo turns the overlap off itself without sequence parallelism and under FSDP.
        "tp": asked_tp and table["sp"] and not is_fsdp(document),
        "dp": is_fsdp(document) or any(asked_dp),
        "pp": table["vpp"] > 1 and flag_setting(document, ("model", "comm_overlap"), "overlap_p2p_comm"),
        "ep": flag_setting(document, ("model", "comm_overlap"), "overlap_moe_expert_parallel_comm"),
    }
    return [axis for axis, hides in hidden.items() if hides]
