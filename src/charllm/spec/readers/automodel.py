"""A NeMo Automodel settings file as a request: a published model under FSDP2, DDP or Megatron's FSDP.

Defaults: NVIDIA-NeMo/Automodel, nemo_automodel/recipes/llm and components/distributed.
"""

from typing import Any

from charllm.spec.readers.finetuning import EAGER, OPTIMIZERS, TARGETS
from charllm.spec.readers.ledger import OFF, Known, Unmodelled, list_names, sort_unread
from charllm.spec.readers.nemo.document import Document
from charllm.spec.readers.nemo.find import count_setting, find_setting, flag_setting, number_setting, without_none
from charllm.spec.readers.reading import Reading
from charllm.spec.readers.values import MAX_TEXT, read_choice, read_count, shown
from charllm.spec.training import LORA_TARGETS as FULL

Table = dict[str, Any]

OTHERS = "this way of training"
KNOWN = Known(
    list_names(
        """
        recipe step_scheduler.* dist_env.* rng.* loss_fn.* dataset.* validation_dataset* dataloader.*
        validation_dataloader.* optimizer.* lr_scheduler.* checkpoint.* wandb.* mlflow.* comet.* ci.* clip_grad_norm.*
        packed_sequence.* compile.* auto_tune.* slurm.* model._target_ model.pretrained* model.trust_remote_code
        model.attn_implementation model.use_* model.force_hf model.output_hidden_states model.config._target_
        model.config.pretrained* model.config.trust* model.config.*attn_impl* model.torch_dtype model.revision
        model.config.name_or_path model.backend.* distributed._target_ distributed.dp_* distributed.timeout* peft.alpha
        peft._target_ peft.use_triton peft.dropout* peft.exclude_modules peft.lora_* profiling.* benchmark.* tokenizer.*
        distributed.defer* freeze_config.* distributed.backend logging.* processor.* teacher_* parallelizer.* nsys*
        distributed.moe.* model.name distributed.pipeline.* fp8.* quantization.* autopipeline.* nvtx seed
        distributed.*prefetch* peft.use_* distributed.mp_policy.output_dtype distributed.mp_policy._target_
        distributed.mp_policy.cast* cluster.* job_name launcher.* skypilot.*
        """
    ),
    {
        "fp8.enabled": Unmodelled("products in 8 bits of this program"),
        "quantization.load_in_4bit": Unmodelled("weights in 4 bits"),
        "quantization.load_in_8bit": Unmodelled("weights in 8 bits"),
        "teacher_model.*": Unmodelled("the passes of a teacher", ()),
        "qat.*": Unmodelled("training for fewer bits", ()),
        "peft.target_parameters": Unmodelled("adapters on experts"),
        "peft.use_dora": Unmodelled("DoRA"),
        "distributed.pp_size": Unmodelled("pipelines of this program", (*OFF, 1)),
        "freeze_config.freeze_embeddings": Unmodelled("frozen weights"),
        "speculator.*": Unmodelled(OTHERS, ()),
        "diffusion.*": Unmodelled(OTHERS, ()),
        "mtp.*": Unmodelled("further predicted tokens", ()),
    },
    {"packed_sequence.packed_sequence_size": Unmodelled("packed documents: give training.document_tokens")},
)
TYPES = {"bf16": "bf16", "bfloat16": "bf16", "torch.bfloat16": "bf16", "auto": "bf16", "float32": "fp32",
         "torch.float32": "fp32", "fp32": "fp32", "float16": "fp16"}  # fmt: skip
STRATEGIES = {"fsdp2": 3, "megatron_fsdp": 3, "ddp": 0}
NARROW = {
    "weight_precision": "16bit",
    "master_weights": False,
    "gradient_precision": "16bit",
    "moment_precision": "16bit",
}


def read_automodel(document: Document, _path: str) -> Reading:
    """Return the request of a file; the model is that of the catalog, else asked for."""
    parts = ("distributed",)
    missing: dict[str, str] = {}
    where, recipe = find_setting(document, ("",), "recipe")
    if recipe is not None:
        word = "recipe_name" if not isinstance(recipe, str) else recipe.rpartition(".")[2]
        read_choice(where, word, {name.lower(): True for name in RECIPES})
    where, kind = find_setting(document, parts, "strategy")
    zero = read_choice(where, kind or "fsdp2", STRATEGIES)
    tp = _degree(document, "tp_size")
    training = _training(document)
    if training["seq_length"] is None:
        missing["training.seq_length"] = "--seq N (the file leaves it to its documents)"
    if training["global_batch_size"] is None:
        missing["training.global_batch_size"] = "--gbs N (the file states none)"
    base: Table = dict(EAGER) if zero == 0 else {"base": "fsdp", "fused_activation": False}
    replicate = _degree(document, "dp_replicate_size")
    if replicate > 1:
        missing["parallelism.shard_size"] = f"--shard-size N (the ranks of one of {replicate} copies)"
    sp = flag_setting(document, parts, "sequence_parallel") and tp > 1
    hidden = flag_setting(document, parts, "enable_async_tensor_parallel") and sp
    parallelism = {
        "tp": tp,
        **{axis: _degree(document, f"{axis}_size") for axis in ("cp", "ep")},
        "pp": 1,
        "sp": sp,
        "zero": zero,
        "overlap": ["tp", "dp"] if hidden else ["dp"],
    }
    named = find_setting(document, ("model", "model.config"), "pretrained_model_name_or_path", "name_or_path")[1]
    nodes = count_setting(document, ("slurm",), "nodes", low=1)
    unread = sort_unread(document.settings, KNOWN, document.lines)
    return Reading(
        {
            "framework": {**base, **NARROW} if _weights(document) != "fp32" else base,
            "parallelism": parallelism,
            "training": without_none(training),
        },
        unread.not_understood,
        unread.unmodelled,
        missing,
        unread.small,
        ("framework: a profile of PyTorch stands for NeMo Automodel",),
        nodes=nodes,
        model_id=named[:MAX_TEXT] if isinstance(named, str) else "",
    )


def _weights(document: Document) -> str:
    where, dtype = find_setting(document, ("model",), "torch_dtype")
    return read_choice(where, dtype or "auto", TYPES)


def _training(document: Document) -> Table:
    steps, policy = ("step_scheduler",), ("distributed.mp_policy",)
    packed = count_setting(document, ("packed_sequence",), "packed_sequence_size")
    clip = number_setting(document, ("clip_grad_norm", "step_scheduler"), "max_norm")
    reduced, cast = (find_setting(document, policy, key) for key in ("reduce_dtype", "param_dtype"))
    where, name = find_setting(document, ("optimizer",), "_target_")
    return {
        "micro_batch_size": count_setting(document, steps, "local_batch_size", low=1) or 1,
        "global_batch_size": count_setting(document, steps, "global_batch_size", low=1),
        "seq_length": packed or count_setting(document, ("dataset",), "seq_length", "seq_len", low=1),
        "precision": _weights(document) if cast[1] is None else read_choice(*cast, TYPES),
        "reduce_precision": None if reduced[1] is None else read_choice(*reduced, TYPES),
        "recompute": "full" if flag_setting(document, ("distributed",), "activation_checkpointing") else "none",
        "clip_gradients": clip is None or clip > 0,
        "optimizer": read_choice(where, name or "torch.optim.adamw", {**OPTIMIZERS, "torch.optim.sgd": "sgd"}),
        **_adapters(document),
    }


RECIPES = (
    "TrainFinetuneRecipeForNextTokenPrediction",
    "TrainRecipeForNextTokenPrediction",
    "BenchmarkingRecipeForNextTokenPrediction",
)


def _degree(document: Document, key: str) -> int:
    """Return a degree; none and -1 leave it open."""
    where, value = find_setting(document, ("distributed",), key)
    return 1 if value in (None, "none", "None", -1) else read_count(where, value, 1)


def _adapters(document: Document) -> Table:
    where, rank = find_setting(document, ("peft",), "dim")
    if rank is None:
        return {}
    place, listed = find_setting(document, ("peft",), "target_modules")
    names = listed if isinstance(listed, list) else [listed] if listed else []
    found: tuple[str, ...] = () if names else FULL
    for name in names:
        found += read_choice(place, shown(name).rpartition(".")[2], TARGETS)
    everywhere = flag_setting(document, ("peft",), "match_all_linear")
    return {
        "lora_rank": read_count(where, rank, 1),
        "lora_targets": [part for part in FULL if part in found or everywhere],
        "lora_dropout_fraction": number_setting(document, ("peft",), "dropout") or 0.0,
    }
