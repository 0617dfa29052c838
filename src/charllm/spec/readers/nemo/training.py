"""How settings of NeMo train: batch, sequence, formats, recomputation, adapters."""

from collections.abc import Mapping

from charllm.errors import SpecError
from charllm.spec.readers.megatron.derived import RECOMPUTES
from charllm.spec.readers.nemo.document import Document
from charllm.spec.readers.nemo.find import (
    BATCH,
    DDP,
    MODEL,
    PRECISE,
    Table,
    count_setting,
    find_setting,
    flag_setting,
    number_setting,
    without_none,
)
from charllm.spec.readers.nemo.parallelism import is_fsdp, read_optimizer
from charllm.spec.readers.nemo.words import FP8, GRADIENTS, LORA_TARGETS, PRECISIONS
from charllm.spec.readers.values import MAX_TEXT, read_choice, read_flag, shown
from charllm.spec.training import RECOMPUTE_MODULES

RECOMPUTE_WORDS = {word: word for word in RECOMPUTE_MODULES}
DEFAULT_LORA = 32


def read_training(document: Document, model: Table) -> Table:
    """Return batch, sequence, formats, recomputation and adapters."""
    table = {
        "seq_length": _sequence(document),
        "micro_batch_size": count_setting(document, BATCH, "micro_batch_size"),
        "global_batch_size": count_setting(document, BATCH, "global_batch_size"),
        "precision": _precision(document),
        "optimizer": read_optimizer(document)[0],
        "reduce_precision": _reduce_precision(document),
        "clip_gradients": _clips(document),
        "wide_layers": _wide_layers(document),
        **_recompute(document),
        **_adapters(document),
    }
    if "experts" in model:
        table["grouped_gemm"] = flag_setting(document, MODEL, "moe_grouped_gemm")
        table["capacity_factor"] = number_setting(document, MODEL, "moe_expert_capacity_factor")
    return without_none(table)


def _clips(document: Document) -> bool | None:
    """Tell whether gradients are clipped; None where the file does not say."""
    value = number_setting(document, ("trainer", "optimizer", "optim.config"), "gradient_clip_val", "clip_grad")
    return None if value is None else value > 0


def _wide_layers(document: Document) -> int | None:
    """Count the layers that stay in 16 bits at either end."""
    if not flag_setting(document, PRECISE, "first_last_layers_bf16"):
        return None
    ends = ("num_layers_at_start_in_bf16", "num_layers_at_end_in_bf16")
    return sum(1 if (found := count_setting(document, PRECISE, key)) is None else found for key in ends)


def _sequence(document: Document) -> int | None:
    """Return the length that is trained with: that of the fine-tuning data before that of the model."""
    stated = count_setting(document, ("model.data.train_ds",), "max_seq_length")
    if stated is not None:
        return stated
    return count_setting(document, (*MODEL, "dataset", "data"), "encoder_seq_length", "seq_length", "sequence_length")


def _precision(document: Document) -> str | None:
    where, fp4 = find_setting(document, PRECISE, "fp4")
    if fp4 is not None and read_choice(where, shown(fp4), {**FP8, "nvfp4": True, "e2m1": True}):
        return "nvfp4"
    where, fp8 = find_setting(document, PRECISE, "fp8")
    recipe = find_setting(document, PRECISE, "fp8_recipe")[1]
    if read_choice(where, shown(fp8), FP8):
        document.written("trainer.precision")
        return "mxfp8" if recipe == "mxfp8" else "fp8"
    if isinstance(document.find("mixed_precision"), Mapping):
        return "bf16" if flag_setting(document, ("mixed_precision",), "bf16", otherwise=True) else "fp16"
    for where in (
        "trainer.precision",
        "trainer.plugins.precision",
        "plugins.precision",
        "mixed_precision",
        "model.precision",
    ):
        value = document.find(where)
        if value is not None and not isinstance(value, Mapping):
            return read_choice(where, value, PRECISIONS)
    return None


def _reduce_precision(document: Document) -> str | None:
    key = "model.fsdp_grad_reduce_dtype" if is_fsdp(document) else "model.optim.grad_sync_dtype"
    value = document.find(key)
    if value is not None:
        return read_choice(key, value, GRADIENTS)
    where, in_fp32 = find_setting(document, DDP, "grad_reduce_in_fp32")
    return None if in_fp32 is None else "fp32" if read_flag(where, in_fp32) else "bf16"


def _recompute(document: Document) -> Table:
    where, granularity = find_setting(document, MODEL, "activations_checkpoint_granularity", "recompute_granularity")
    if granularity is None:
        return {"recompute": "none"}
    kind = read_choice(where, granularity, RECOMPUTES)
    where, listed = find_setting(document, MODEL, "recompute_modules")
    modules = None
    if kind == "selective" and isinstance(listed, list):
        modules = [read_choice(where, word, RECOMPUTE_WORDS) for word in listed]
    method = find_setting(document, MODEL, "activations_checkpoint_method", "recompute_method")[1]
    layers = count_setting(document, MODEL, "activations_checkpoint_num_layers", "recompute_num_layers")
    # The uniform method groups layers but recomputes all of them.
    recomputed = layers if kind == "full" and method == "block" else None
    return {"recompute": kind, "recompute_layers": recomputed, "recompute_modules": modules}


def _adapters(document: Document) -> Table:
    """Read LoRA adapters; other ways of tuning few weights are refused."""
    where, scheme = find_setting(document, ("model.peft",), "peft_scheme")
    if scheme not in (None, "none", "lora", "qlora"):
        raise SpecError(where, shown(scheme)[:MAX_TEXT], "lora or none: other adapters are not modelled")
    if scheme in ("lora", "qlora"):
        room, otherwise = "model.peft.lora_tuning", ["attention_qkv"]
    elif document.find("peft.dim") is not None:
        room, otherwise = "peft", ["linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"]
    else:
        return {}
    where, targets = find_setting(document, (room,), "target_modules")
    if not isinstance(targets or otherwise, list):
        raise SpecError(where, shown(targets), f"a list of {', '.join(LORA_TARGETS)}")
    found = [target for name in targets or otherwise for target in read_choice(where, name, LORA_TARGETS)]
    return {
        "lora_rank": count_setting(document, (room,), "adapter_dim", "dim") or DEFAULT_LORA,
        "lora_targets": list(dict.fromkeys(found)),
        "lora_dropout_fraction": number_setting(document, (room,), "adapter_dropout", "dropout"),
    }
