"""What settings of NeMo change in the profile of the framework."""

from charllm.errors import SpecError
from charllm.spec.readers.nemo.document import Document
from charllm.spec.readers.nemo.find import MODEL, OPTIMIZER, Table, count_setting, find_setting, flag_setting
from charllm.spec.readers.values import MAX_TEXT, read_choice, read_flag, shown

BACKENDS = {"auto": "flash", "flash": "flash", "fused": "flash", "unfused": "unfused", "local": "unfused"}
FUSIONS = {
    "gradient_accumulation_fusion": "fused_gradients",
    "bias_activation_fusion": "fused_activation",
    "apply_rope_fusion": "fused_rope",
    "cross_entropy_loss_fusion": "cross_entropy",
    "moe_permute_fusion": "fused_permute",
}
"""Setting that switches one kernel for several on: the choice of a profile that it is."""


def read_framework(document: Document, name: str) -> Table | str:
    """Return the profile, with what the file says of its choices."""
    changes: Table = {}
    multiple = count_setting(document, MODEL, "make_vocab_size_divisible_by", low=1)
    if multiple not in (None, 128):
        changes["vocab_multiple"] = multiple
    for key, field in FUSIONS.items():
        where, value = find_setting(document, MODEL, key)
        if value is not None and not read_flag(where, value):
            changes[field] = "vocab-parallel" if field == "cross_entropy" else False
    fused = [flag_setting(document, MODEL, key) for key in ("mcore_gpt", "transformer_engine", "use_flash_attention")]
    if document.names("model.use_flash_attention") and not any(fused):
        changes["attention"] = "unfused"
    where, backend = find_setting(document, MODEL, "attention_backend")
    if backend is not None:
        word = shown(backend).lower().rpartition(".")[2]
        changes["attention"] = read_choice(where, word, BACKENDS)
    where, second_level = find_setting(document, ("model",), "megatron_amp_O2")
    if second_level is not None and not read_flag(where, second_level):
        # Without it weights stay in fp32 and are cast for each product (NeMo's build_transformer_config).
        changes.update(weight_precision="fp32", gradient_precision="fp32")
    changes.update(_dispatch(document), **_graphs(document), **_moments(document))
    return {"base": name, **changes} if changes else name


def _dispatch(document: Document) -> Table:
    """Read what sends tokens to experts, where it is not an all-to-all."""
    kind = find_setting(document, MODEL, "moe_token_dispatcher_type")[1]
    where, backend = find_setting(document, MODEL, "moe_flex_dispatcher_backend")
    deep = flag_setting(document, MODEL, "moe_enable_deepep")
    if kind in (None, "alltoall"):
        return {}
    if kind != "flex":
        raise SpecError("model.moe_token_dispatcher_type", shown(kind)[:MAX_TEXT], "alltoall or flex")
    named = "deepep" if deep or backend is None else backend
    return {"dispatcher": read_choice(where, named, {"deepep": "deepep", "hybridep": "hybridep"})}


def _graphs(document: Document) -> Table:
    """Read which launches are captured in CUDA graphs: parts of layers, or all of them."""
    impl, scope = (find_setting(document, MODEL, key)[1] for key in ("cuda_graph_impl", "cuda_graph_scope"))
    captured = flag_setting(document, MODEL, "enable_cuda_graph") or impl not in (None, "none")
    if not captured:
        return {}
    whole = not scope or scope in ("full", "full_iteration", ["full_iteration"])
    return {"graphs": "full" if whole else "partial"}


def _moments(document: Document) -> Table:
    """Read the format of the optimizer's moments."""
    if not flag_setting(document, OPTIMIZER, "use_precision_aware_optimizer"):
        return {}
    words = {"fp32": "fp32", "torch.float32": "fp32", "bf16": "16bit", "torch.bfloat16": "16bit", "fp16": "16bit"}
    found = [find_setting(document, OPTIMIZER, key) for key in ("exp_avg_dtype", "exp_avg_sq_dtype")]
    stated = {read_choice(where, value, words) for where, value in found if value is not None}
    return {"moment_precision": "16bit"} if stated == {"16bit"} else {}
