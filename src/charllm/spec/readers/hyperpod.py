"""Fine-tuning recipes of SageMaker HyperPod: the model's name, FSDP, batch and adapters of its own trainer.

Source: aws/sagemaker-hyperpod-recipes. The trainer itself is not public: the format of its products is asked for.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePath

from charllm.errors import SpecError, Words
from charllm.spec.readers.finetuning import read_finetuning
from charllm.spec.readers.ledger import Known, Unmodelled, list_names, sort_unread
from charllm.spec.readers.nemo.document import Document
from charllm.spec.readers.reading import PREFERENCES, Reading
from charllm.spec.readers.recognize import TRL
from charllm.spec.readers.values import MAX_TEXT, read_count, shown

MODEL, TRAINED = "training_config.model_config", "training_config.training_args"
ADAPTERS = f"{MODEL}.peft_config"
WORDS = {
    f"{MODEL}.model_name_or_path": "model_name_or_path",
    f"{TRAINED}.micro_train_batch_size": "per_device_train_batch_size",
    f"{TRAINED}.max_len": "max_length",
    f"{TRAINED}.gradient_checkpointing": "gradient_checkpointing",
    f"{ADAPTERS}.r": "lora_r",
    f"{ADAPTERS}.lora_dropout": "lora_dropout",
    f"{ADAPTERS}.target_modules": "lora_target_modules",
}
"""Setting of a recipe: the word for it in files of transformers' trainers."""
STRATEGY = f"{TRAINED}.strategy"
KNOWN = Known(
    list_names(
        f"""
        run.* trainer.* display_name instance_types elastic_policy.* version scale_config.* training_config.datasets.*
        training_config.mlflow.* training_config.force_rerun {MODEL}.apply_chat* {MODEL}.attn_implementation
        {MODEL}.chat_template* {MODEL}.device_map {MODEL}.generation_cfg.* {MODEL}.*_path {MODEL}.model_save_name
        {ADAPTERS}.bias {ADAPTERS}.lora_alpha {ADAPTERS}.peft_type {ADAPTERS}.task_type {TRAINED}.adam_betas
        {TRAINED}.aux_loss_coef {TRAINED}.disable_* {TRAINED}.eval_* {TRAINED}.grad_accum_dtype
        {TRAINED}.gradient_checkpointing_* {TRAINED}.gradient_clipping* {TRAINED}.l2 {TRAINED}.learning_rate
        {TRAINED}.l* {TRAINED}.max_* {TRAINED}.merge_weights {TRAINED}.override* {TRAINED}.pretrain_mode
        {TRAINED}.resume_* {TRAINED}.save_* {TRAINED}.seed {TRAINED}.trainer_callbacks {TRAINED}.training_dir
        {TRAINED}.ring_head_stride {TRAINED}.use_tensorboard {TRAINED}.use_wandb {TRAINED}.weight_decay
        {STRATEGY}.fsdp_config.auto_wrap_policy {STRATEGY}.fsdp_config.*prefetch {STRATEGY}.fsdp_config.cpu_ram*
        {STRATEGY}.fsdp_config.s* {STRATEGY}.fsdp_config.use_orig_params resources.* processor.* output_path
        """
    ),
    {
        f"{TRAINED}.trainer_type": Unmodelled(PREFERENCES, (None, "sft")),
        f"{TRAINED}.ring_attn_size": Unmodelled("this split of sequences", (None, 1)),
        f"{TRAINED}.ulysses_sequence_parallel_size": Unmodelled("this split of sequences", (None, 1)),
        f"{TRAINED}.uneven_batch.*": Unmodelled("replicas with unequal batches", (None, False)),
        f"{MODEL}.multimodal": Unmodelled("a tower of images or sound"),
        f"{ADAPTERS}.use_dora": Unmodelled("DoRA"),
        f"{MODEL}.load_in_4bit": Unmodelled("weights in 4 bits"),
        f"{STRATEGY}.fsdp_config.cpu_offload": Unmodelled("weights on the CPU"),
        f"{STRATEGY}.deepspeed_config.*": Unmodelled("DeepSpeed in this spelling", ()),
    },
    {f"{TRAINED}.packing_samples": Unmodelled("packed documents: give training.document_tokens")},
)


def read_hyperpod(document: Document, path: str) -> Reading:
    """Return the request of a recipe of HyperPod's own trainer; others are refused by name."""
    kind = document.find("run.model_type")
    if kind != "llm_finetuning_aws" or document.find(f"{TRAINED}.max_len") is None:
        which = shown(kind)[:MAX_TEXT] if kind is not None else "another kind"
        raise SpecError(
            "--from", Words(f"{PurePath(path).name}, a file of SageMaker HyperPod"),
            f"a recipe with run.model_type llm_finetuning_aws: recipes of {which} are not read",
        )  # fmt: skip
    config = document.find(f"{STRATEGY}.fsdp_config")
    values = {word: value for key, word in WORDS.items() if (value := document.find(key)) is not None}
    sharding = str(config.get("sharding_strategy", "FULL_SHARD")) if isinstance(config, Mapping) else "FULL_SHARD"
    values["fsdp_config"] = {"sharding_strategy": sharding.replace("HYBRID_SHARD", "FULL_SHARD").lower()}
    values["use_peft"] = isinstance(document.find(ADAPTERS), Mapping)
    reading = read_finetuning(Document(values, {}), path, TRL, launched=True)
    devices = read_count("trainer.devices", document.find("trainer.devices"), 1)
    request = {**reading.request, "training": dict(reading.request["training"])}
    request["training"]["global_batch_size"] = read_count(
        f"{TRAINED}.train_batch_size", document.find(f"{TRAINED}.train_batch_size"), 1
    )
    if "HYBRID" in sharding:
        request["parallelism"] = {**request["parallelism"], "shard_size": devices}
    del request["training"]["precision"]
    unread = sort_unread(document.settings, KNOWN, document.lines)
    nodes = document.find("trainer.num_nodes")
    return replace(
        reading,
        request=request,
        not_understood=unread.not_understood,
        unmodelled=(*reading.unmodelled, *unread.unmodelled),
        small=(*reading.small, *unread.small),
        missing={
            **reading.missing,
            "training.precision": "--precision WORD (left to the trainer of SageMaker HyperPod)",
        },
        notes=tuple(note.replace(TRL, "SageMaker HyperPod") for note in reading.notes),
        microbatches=None,
        nodes=None if nodes is None else read_count("trainer.num_nodes", nodes, 1),
        gpus_per_node=devices,
    )
