"""A Megatron-LM launch script, or its bare arguments, as a request."""

import re
from typing import Any

from charllm.errors import SpecError, unknown_name
from charllm.spec.readers.megatron.derived import (
    CP_KINDS,
    DEFAULT_TOPK,
    RECOMPUTES,
    SHARDINGS,
    counted_stages,
    dense_layers,
    full_attention_every,
    read_layout,
    uneven_stages,
)
from charllm.spec.readers.megatron.flags import (
    Flags,
    count_of,
    count_or,
    find_flags,
    list_of,
    number_of,
    text_of,
)
from charllm.spec.readers.megatron.shell import Script, read_script
from charllm.spec.readers.tokenizers import known_vocabulary
from charllm.spec.readers.values import MAX_TEXT, name_from, read_choice
from charllm.spec.training import RECOMPUTE_MODULES

Table = dict[str, Any]

REFUSED = {
    "--hybrid-override-pattern": "a transformer: hybrids are read from a config.json",
    "--is-hybrid-model": "a transformer: hybrids are read from a config.json",
    "--linear-attention-freq": "softmax attention in every layer",
    "--heterogeneous-layers-config-path": "layers of one shape",
    "--yaml-cfg": "arguments on the command line",
}

MODEL_COUNTS = {
    "layers": "--num-layers",
    "hidden": "--hidden-size",
    "heads": "--num-attention-heads",
    "mtp_layers": "--mtp-num-layers",
}
DEGREES = {
    "tp": "--tensor-model-parallel-size",
    "pp": "--pipeline-model-parallel-size",
    "cp": "--context-parallel-size",
    "ep": "--expert-model-parallel-size",
}
NORMS = {"layernorm": "layernorm", "rmsnorm": "rmsnorm"}
POSITIONS = {
    "learned_absolute": "learned",
    "rope": "rope",
    "mrope": "rope",
    "yarn": "rope",
    "relative": "none",
    "none": "none",
}
OPTIMIZERS = {"adam": "adam", "sgd": "sgd"}
FSDP_FLAGS = ("--use-megatron-fsdp", "--use-custom-fsdp")
DP_OVERLAPS = ("--overlap-grad-reduce", "--overlap-param-gather", "--use-torch-fsdp2")
ACCOUNTED = ("--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split")
FP8_FLAGS = ("--fp8-format", "--fp8-hybrid", "--fp8-e4m3")


def read_megatron(text: str, path: str) -> dict[str, Any]:
    """Return the request that a launch script or a bare argument string makes; nothing is executed.

    What Megatron-LM derives from an absent flag is derived here too; a size that neither states is left out.
    """
    script = read_script(text, path)
    flags = find_flags(script)
    for flag, possible in REFUSED.items():
        if flag in flags:
            raise SpecError(flag, " ".join(flags[flag])[:MAX_TEXT], possible)
    model, parallelism = _model(flags), _parallelism(flags)
    data_ranks = _data_ranks(flags, parallelism, script)
    request = {
        "framework": "megatron",
        "parallelism": {**parallelism, **_shards(flags, parallelism, data_ranks)},
        "training": _training(flags, model, data_ranks and data_ranks // parallelism["cp"]),
    }
    # A script that takes its sizes from a checkpoint leaves the model to be named.
    if "layers" in model or "hidden" in model:
        request["model"] = {"name": name_from(path, "megatron"), **model}
    return request


def _model(flags: Flags) -> Table:
    table: Table = {field: count_of(flags, flag) for field, flag in MODEL_COUNTS.items()}
    table["vocab"] = _vocab(flags)
    table["activation"] = _activation(flags)
    table["norm"] = read_choice("--normalization", text_of(flags, "--normalization") or "LayerNorm", NORMS)
    table["bias"] = _bias(flags)
    table["tied_embeddings"] = "--untie-embeddings-and-output-weights" not in flags
    dropout = number_of(flags, "--hidden-dropout")
    table["dropout_fraction"] = 0.1 if dropout is None else dropout
    table["ffn"] = _ffn(flags, table["hidden"])
    table.update(_positions(flags))
    table.update(_latent_attention(flags) if "--multi-latent-attention" in flags else _attention(flags))
    table.update(_window(flags))
    table.update(_experts(flags, table["ffn"], table["layers"]))
    return {field: value for field, value in table.items() if value is not None}


def _ffn(flags: Flags, hidden: int | None) -> int | None:
    """Return the feed-forward width; without the flag, three matrices weigh what two of 4 x hidden do."""
    stated = count_of(flags, "--ffn-hidden-size")
    if stated is not None or hidden is None:
        return stated
    return int(4 * hidden * 2 / 3 / 64) * 64 if "--swiglu" in flags else 4 * hidden


def _vocab(flags: Flags) -> int | None:
    for flag in ("--padded-vocab-size", "--vocab-size"):
        stated = count_of(flags, flag)
        if stated is not None:
            return stated
    names = (flags.get(flag, []) for flag in ("--tokenizer-type", "--tokenizer-model", "--tokenizer-name-or-path"))
    return known_vocabulary(name for values in names for name in values[:1])


def _activation(flags: Flags) -> str:
    choices = {"--swiglu": "swiglu", "--quick-geglu": "geglu", "--squared-relu": "squared-relu"}
    return next((activation for flag, activation in choices.items() if flag in flags), "gelu")


def _bias(flags: Flags) -> str:
    if "--disable-bias-linear" not in flags:
        return "all"
    return "qkv" if "--add-qkv-bias" in flags else "none"


def _positions(flags: Flags) -> Table:
    kind = text_of(flags, "--position-embedding-type") or "learned_absolute"
    position = read_choice("--position-embedding-type", kind, POSITIONS)
    if "--use-rotary-position-embeddings" in flags:
        position = "rope"
    # Learned positions are weights, so their number and not the sequence is a dimension of the model.
    sequence = count_of(flags, "--seq-length")
    longest = count_of(flags, "--max-position-embeddings")
    return {"position": position, "seq_length": longest if position == "learned" and longest else sequence}


def _attention(flags: Flags) -> Table:
    grouped = "--group-query-attention" in flags
    return {
        "kv_heads": count_or(flags, "--num-query-groups", 1) if grouped else None,
        "head_dim": count_of(flags, "--kv-channels"),
        "qk_norm": "--qk-layernorm" in flags,
    }


def _latent_attention(flags: Flags) -> Table:
    return {
        "attention": "mla",
        "q_lora_rank": count_or(flags, "--q-lora-rank", 0),
        "kv_lora_rank": count_or(flags, "--kv-lora-rank", 32),
        "head_dim": count_or(flags, "--qk-head-dim", 128),
        "rope_head_dim": count_or(flags, "--qk-pos-emb-head-dim", 64),
        "v_head_dim": count_or(flags, "--v-head-dim", 128),
    }


def _window(flags: Flags) -> Table:
    table: Table = {"attention_sinks": text_of(flags, "--softmax-type") == "learnable"}
    size = text_of(flags, "--window-size")
    if size is None:
        return table
    match = re.fullmatch(r"\(?\s*(\d{1,8})\s*,\s*-?\d{1,8}\s*\)?", size, re.ASCII)
    if match is None:
        raise SpecError("--window-size", size, "tokens before and after, e.g. (128,0)")
    table["window"] = int(match[1])
    skip = "--window-attn-skip-freq"
    pattern = list_of(flags, skip)
    table["full_attention_every"] = full_attention_every(skip, pattern) if pattern else count_of(flags, skip, low=1)
    return table


def _experts(flags: Flags, ffn: int | None, layers: int | None) -> Table:
    experts = count_or(flags, "--num-experts", 0)
    if not experts:
        return {}
    return {
        "experts": experts,
        "topk": count_or(flags, "--moe-router-topk", DEFAULT_TOPK),
        "expert_groups": count_or(flags, "--moe-router-num-groups", 1),
        "groups_per_token": count_or(flags, "--moe-router-group-topk", 1),
        "expert_ffn": count_of(flags, "--moe-ffn-hidden-size") or ffn,
        "shared_ffn": count_or(flags, "--moe-shared-expert-intermediate-size", 0),
        "dense_layers": _dense_layers(flags, layers),
    }


def _dense_layers(flags: Flags, layers: int | None) -> int:
    flag = "--moe-layer-freq"
    pattern = list_of(flags, flag)
    if pattern is not None:
        return dense_layers(flag, pattern, len(pattern) if layers is None else layers)
    if count_or(flags, flag, 1) != 1:
        raise SpecError(flag, text_of(flags, flag), "1, or dense layers before sparse ones: ([0]*3+[1]*58)")
    return 0


def _parallelism(flags: Flags) -> Table:
    table: Table = {axis: count_or(flags, flag, 1) for axis, flag in DEGREES.items()}
    table.update(_stages(flags, table["pp"]))
    table["etp"] = count_of(flags, "--expert-tensor-parallel-size")
    table["sp"] = "--sequence-parallel" in flags and table["tp"] > 1
    table["zero"] = _zero(flags)
    kind = (text_of(flags, "--cp-comm-type") or "p2p") if table["cp"] > 1 else None
    table["cp_kind"] = kind and read_choice("--cp-comm-type", kind, CP_KINDS)
    table["overlap"] = _overlap(flags, table)
    if "--use-tp-pp-dp-mapping" in flags:
        table["order"] = "tp-cp-ep-pp-dp"
    return {field: value for field, value in table.items() if value is not None}


def _stages(flags: Flags, pp: int) -> Table:
    """Read how many chunks each stage holds, and their layers when they are not all equal."""
    flag = "--pipeline-model-parallel-layout"
    layout = text_of(flags, flag)
    if layout is not None:
        split = read_layout(flag, layout, pp)
        return {"vpp": len(split) // pp, "layers_per_stage": split}
    vpp = _chunks(flags, pp)
    return {"vpp": vpp, "layers_per_stage": _uneven(flags, pp, vpp) if pp > 1 else None}


def _chunks(flags: Flags, pp: int) -> int:
    flag = "--num-layers-per-virtual-pipeline-stage"
    each = count_of(flags, flag, low=1)
    if each is None:
        return count_or(flags, "--num-virtual-stages-per-pipeline-rank", 1)
    total = count_or(flags, "--num-layers", 0) + sum(account in flags for account in ACCOUNTED)
    if total % (pp * each) or not total:
        raise SpecError(flag, each, f"a divisor of the {total} layers over {pp} pipeline stages")
    return total // (pp * each)


def _uneven(flags: Flags, pp: int, vpp: int) -> list[int] | None:
    layers = count_or(flags, "--num-layers", 0)
    first = count_of(flags, "--decoder-first-pipeline-num-layers")
    last = count_of(flags, "--decoder-last-pipeline-num-layers")
    embedding, loss = (flag in flags for flag in ACCOUNTED)
    if first is not None or last is not None:
        return uneven_stages(DEGREES["pp"], layers, pp, vpp, (first, last))
    return counted_stages(DEGREES["pp"], layers, pp * vpp, embedding, loss) if embedding or loss else None


def _zero(flags: Flags) -> int:
    if "--use-torch-fsdp2" in flags:
        return 3
    if any(flag in flags for flag in FSDP_FLAGS):
        strategy = "--data-parallel-sharding-strategy"
        return read_choice(strategy, text_of(flags, strategy) or "no_shard", SHARDINGS)
    return int("--use-distributed-optimizer" in flags)


def _overlap(flags: Flags, table: Table) -> list[str]:
    hidden = {
        "tp": "--tp-comm-overlap" in flags and table["sp"],
        "dp": any(flag in flags for flag in DP_OVERLAPS),
        "pp": table["vpp"] > 1 and "--no-overlap-p2p-communication" not in flags,
        "ep": "--overlap-moe-expert-parallel-comm" in flags,
        "cp": table["cp_kind"] == "ring",
    }
    return [axis for axis, hides in hidden.items() if hides]


def _data_ranks(flags: Flags, parallelism: Table, script: Script) -> int | None:
    """Return dp x cp when the script says on how many GPUs it runs."""
    per_node, nodes = (_plain(flags.get(flag)) for flag in ("--nproc-per-node", "--nnodes"))
    world = per_node * (nodes if "--nnodes" in flags else 1) if per_node else 0
    world = world or _plain([script.variables.get("WORLD_SIZE", "")])
    ranks, rest = divmod(world, parallelism["tp"] * parallelism["pp"])
    return ranks if ranks and not rest and not ranks % parallelism["cp"] else None


def _plain(values: list[str] | None) -> int:
    """Read a number of the launcher, whose other notations (2:4, gpu) leave it unknown."""
    return int(values[0]) if values and re.fullmatch(r"\d{1,7}", values[0], re.ASCII) else 0


def _shards(flags: Flags, parallelism: Table, data_ranks: int | None) -> Table:
    instances = count_or(flags, "--num-distributed-optimizer-instances", 1)
    if instances == 1 or not parallelism["zero"] or not data_ranks or data_ranks % instances:
        return {}
    return {"shard_size": data_ranks // instances}


def _training(flags: Flags, model: Table, dp: int | None) -> Table:
    micro = count_of(flags, "--micro-batch-size")
    batch = count_of(flags, "--global-batch-size")
    table = {
        "seq_length": count_of(flags, "--seq-length"),
        "micro_batch_size": micro,
        "global_batch_size": micro * dp if batch is None and micro and dp else batch,
        "precision": _precision(flags),
        "reduce_precision": _reduce_precision(flags),
        "optimizer": read_choice("--optimizer", text_of(flags, "--optimizer") or "adam", OPTIMIZERS),
        **_recompute(flags),
    }
    if "experts" in model:
        table["grouped_gemm"] = "--moe-grouped-gemm" in flags
        table["capacity_factor"] = number_of(flags, "--moe-expert-capacity-factor")
    return {field: value for field, value in table.items() if value is not None}


def _precision(flags: Flags) -> str:
    if "--fp4-format" in flags:
        return "nvfp4"
    if any(flag in flags for flag in FP8_FLAGS):
        return "mxfp8" if text_of(flags, "--fp8-recipe") == "mxfp8" else "fp8"
    return next((name for name in ("bf16", "fp16") if f"--{name}" in flags), "fp32")


def _reduce_precision(flags: Flags) -> str:
    """Return the format of the gradient reduction, which bf16 training does in fp32 unless told otherwise."""
    if "--bf16" in flags:
        return "bf16" if "--grad-reduce-in-bf16" in flags else "fp32"
    return "bf16" if "--fp16" in flags and "--accumulate-allreduce-grads-in-fp32" not in flags else "fp32"


def _recompute(flags: Flags) -> Table:
    if "--recompute-activations" in flags:
        return {"recompute": "selective", **_modules(flags)}
    granularity = text_of(flags, "--recompute-granularity")
    if granularity is None:
        return {"recompute": "none"}
    kind = read_choice("--recompute-granularity", granularity, RECOMPUTES)
    if kind == "selective":
        return {"recompute": kind, **_modules(flags)}
    # The uniform method groups layers but recomputes all of them.
    block = text_of(flags, "--recompute-method") == "block"
    return {
        "recompute": kind,
        "recompute_layers": count_of(flags, "--recompute-num-layers") if block else None,
    }


def _modules(flags: Flags) -> Table:
    modules = [word for word in flags.get("--recompute-modules", []) if re.fullmatch(r"[a-z_]+", word)]
    for module in modules:
        if module not in RECOMPUTE_MODULES:
            raise unknown_name("--recompute-modules", module[:MAX_TEXT], RECOMPUTE_MODULES)
    return {"recompute_modules": modules} if modules else {}
