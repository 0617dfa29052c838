"""How programs that tune a published model spell their settings, and what each of them does to a step."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from charllm.spec.readers.ledger import OFF, Known, Unmodelled, list_names
from charllm.spec.readers.reading import PREFERENCES


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a program spells its settings; each is a list of keys of which the first that is stated counts."""

    model: tuple[str, ...]
    micro: tuple[str, ...]
    sequence: tuple[str, ...]
    known: Known
    micro_default: int | None = None
    sequence_default: int | None = None
    adapter: tuple[str, ...] = ()
    adapters: Mapping[str, bool] = field(default_factory=dict)
    """Word for the way of tuning: whether it is LoRA (else all weights)."""
    adapter_default: str = "full"
    rank: tuple[str, ...] = ("lora_rank", "lora_r")
    rank_default: int | None = 8
    targets: tuple[str, ...] = ("lora_target", "target_modules", "lora_target_modules")
    target_default: str | None = "all"
    recomputes: bool = False
    """Whether activations are recomputed unless the file says otherwise."""
    launched: bool = False
    """Whether Accelerate's launch file, and no setting of its own, says what is sharded."""
    narrow: bool = False
    """Whether weights are kept in 16 bits where the products are in 16 bits."""


_TRAINER = list_names(
    """
    output_dir logging_* save_* eval_* evaluation_* per_device_eval_* report_to run_name learning_rate lr_*
    num_train_epochs max_steps warmup_* weight_decay seed data_seed dataloader_* dataset* *_dataset* do_* overwrite_*
    preprocessing_* max_samples template plot_loss ddp_* trust_remote_code resume_* push_to_hub* hub_*
    remove_unused_columns load_best* metric_* greater_* adam_* max_grad_norm tokenizer* chat_template* torch_compile*
    tf32 val_size train_on_* mask_* image_* video_* infer_* predict_* compute_accuracy streaming buffer_size
    mix_strategy interleave_* wandb* swanlab* trackio* mlflow* comet* disable_tqdm log_level* local_rank
    model_revision attn_implementation flash_attn* use_cache gradient_checkpointing_kwargs.*
    gradient_checkpointing_kwargs lora_alpha lora_dropout lora_bias use_rslora train_from_* num_epochs split*
    *_strategy group_by_length neftune* include_* label_* length_column_name use_fast_tokenizer resize_vocab ray_*
    enable_liger_kernel use_unsloth* rope_scaling rope_theta model_name_or_path cache_dir hf_* ms_* system
    default_system prompt* truncation* columns lazy_tokenize num_proc *_num_proc packing_* shuffle* *_file *_path
    special_tokens* add_* strict debug load_from_cache_file custom_* loss_* max_length_* stop* temperature top_*
    repetition_penalty max_new_tokens agent_* model_author model_name model_type check_model create_checkpoint_symlink
    acc_strategy external_plugins* use_hf
    """
)
_TRAINED = {
    "pref_loss": Unmodelled(PREFERENCES),
    "pref_beta": Unmodelled(PREFERENCES),
    "rl": Unmodelled(PREFERENCES),
    "rlhf_type": Unmodelled(PREFERENCES),
    "reward_model": Unmodelled(PREFERENCES),
    "task_type": Unmodelled("a head of another task", (*OFF, "causal_lm", "CAUSAL_LM")),
    "num_labels": Unmodelled("a head of another task"),
    "quantization_bit": Unmodelled("weights in few bits"),
    "quant_bits": Unmodelled("weights in few bits"),
    "quant_method": Unmodelled("weights in few bits"),
    "quantization_method": Unmodelled("weights in few bits", (*OFF, "bnb", "bitsandbytes")),
    "load_in_4bit": Unmodelled("weights in 4 bits"),
    "load_in_8bit": Unmodelled("weights in 8 bits"),
    "quantize_moe_experts": Unmodelled("weights in 4 bits"),
    "quantization.*": Unmodelled("weights in few bits", ()),
    "quant_config.*": Unmodelled("weights in few bits", ()),
    **dict.fromkeys(
        ("vision_tower*", "tune_vision*", "tune_mm*", "tune_visual*", "mm_projector*", "freeze_vision*"),
        Unmodelled("a vision tower"),
    ),
    "processor_type": Unmodelled("a tower of images or sound"),
    "use_dora": Unmodelled("DoRA"),
    "lora_modules_to_save": Unmodelled("layers that are trained whole beside adapters"),
    "modules_to_save": Unmodelled("layers that are trained whole beside adapters"),
    "additional_target": Unmodelled("layers that are trained whole beside adapters"),
    "lora_target_parameters": Unmodelled("adapters on experts"),
    "unfrozen_parameters": Unmodelled("frozen weights"),
    "freeze_*": Unmodelled("frozen weights"),
    "lisa_*": Unmodelled("layers that take turns"),
    "relora*": Unmodelled("restarted adapters"),
    "use_llama_pro": Unmodelled("added layers"),
    "mixture_of_depths": Unmodelled("tokens that skip layers"),
    "use_galore": Unmodelled("another optimizer"),
    "use_apollo": Unmodelled("another optimizer"),
    "use_badam": Unmodelled("another optimizer"),
    "use_adam_mini": Unmodelled("another optimizer"),
    "use_muon": Unmodelled("another optimizer"),
    "use_kt": Unmodelled("experts on the CPU"),
    "qat.*": Unmodelled("training for fewer bits", ()),
    "qat": Unmodelled("training for fewer bits"),
    "fp8": Unmodelled("products in 8 bits of this program"),
    "activation_offloading": Unmodelled("activations on the CPU"),
    "sequence_parallel_size": Unmodelled("this split of sequences", (*OFF, 1)),
    "sequence_parallel_degree": Unmodelled("this split of sequences", (*OFF, 1)),
    "context_parallel_size": Unmodelled("this split of sequences", (*OFF, 1)),
    "tensor_parallel_size": Unmodelled("tensor parallelism of this program", (*OFF, 1)),
    "expert_parallel_size": Unmodelled("expert parallelism of this program", (*OFF, 1)),
    "vllm.*": Unmodelled(PREFERENCES, ()),
    "trl.*": Unmodelled(PREFERENCES, ()),
    "ebft.*": Unmodelled(PREFERENCES, ()),
    "diffusion.*": Unmodelled("diffusion of text", ()),
    "peft_config.*": Unmodelled("adapters of this spelling", ()),
}
_SMALL = {
    "sample_packing": Unmodelled("packed documents: give training.document_tokens"),
    "padding_free": Unmodelled("packed documents: give training.document_tokens"),
    "packing": Unmodelled("packed documents: give training.document_tokens"),
    "liger_kernel": Unmodelled("Liger's kernels"),
    "enable_liger_kernel": Unmodelled("Liger's kernels"),
    "use_liger_kernel": Unmodelled("Liger's kernels"),
    "use_unsloth": Unmodelled("Unsloth's kernels"),
    "torch_compile": Unmodelled("compiled kernels"),
}


def _known(more: str, used: str) -> Known:
    return Known((*_TRAINER, *list_names(more), *list_names(used)), _TRAINED, _SMALL)


_CHOSEN = ("beta", "max_prompt_length", "num_generations", "reward_*", "dpo_*", "max_completion_length", "use_vllm",
           "vllm_*", "simpo_*", "kto_*", "rollout_*", "gamma_beta_ratio")  # fmt: skip
_TRL = Spelling(
    model=("model_name_or_path", "model_name", "model_id", "base_model", "model_path"),
    micro=("per_device_train_batch_size",),
    micro_default=8,
    sequence=("max_length", "max_seq_length", "model_max_length", "block_size", "cutoff_len"),
    adapter=("use_peft", "use_lora"),
    adapters={"true": True, "false": False},
    rank_default=None,
    rank=("lora_r", "lora_rank"),
    target_default=None,
    launched=True,
    known=_known(
        "", "torch_dtype dtype deepspeed deepspeed_config fsdp fsdp_config bf16 fp16 optim use_peft use_lora"
    )._replace(
        unmodelled={
            **_TRAINED,
            **dict.fromkeys(_CHOSEN, Unmodelled(PREFERENCES)),
            "loss_type": Unmodelled(
                PREFERENCES, (*OFF, "nll", "dft", "chunked_nll", "cross_entropy", "ForCausalLMLoss")
            ),
        }
    ),
)
_OPEN_INSTRUCT = list_names("use_slow_tokenizer with_tracking checkpointing_steps keep_last_n_checkpoints exp_name")
WORDS: dict[str, Spelling] = {
    "Axolotl": Spelling(
        model=("base_model",),
        micro=("micro_batch_size",),
        micro_default=1,
        sequence=("sequence_len",),
        adapter=("adapter",),
        adapters={"lora": True, "qlora": True, "none": False, "full": False},
        rank_default=None,
        target_default=None,
        narrow=True,
        known=_known(
            """
            plugins liger_* cut_cross_entropy datasets test_datasets rl_beta base_model_config base_model_ignore*
            val_set_size eot_tokens *_kernel pad_to_sequence_len sample_packing_* eval_sample_packing
            torchdistx_path is_* skip_* pretraining_dataset evals_per_epoch saves_per_epoch
            early_stopping* wandb_* xformers* gptq* model_config.* lora_model_dir lora_fan* peft_use* low_cpu*
            s2_attention sdp_attention flex_attn* tokens* use_kernels use_scattermoe experts_implementation cosine_*
            dataset_* gpu_* device_map tiled_mlp
            """,
            "lora_target_linear fsdp fsdp_config.* fsdp_version deepspeed bf16 fp16 bfloat16 float16 optimizer adapter",
        ),
    ),
    "LLaMA-Factory": Spelling(
        model=("model_name_or_path",),
        micro=("per_device_train_batch_size",),
        micro_default=8,
        sequence=("cutoff_len",),
        sequence_default=2048,
        adapter=("finetuning_type",),
        adapters={"lora": True, "full": False},
        adapter_default="lora",
        recomputes=True,
        known=_known(
            "", "stage finetuning_type deepspeed fsdp fsdp_config bf16 fp16 pure_bf16 optim disable_gradient*"
        ),
    ),
    "ms-swift": Spelling(
        model=("model", "model_id_or_path", "model_type"),
        micro=("per_device_train_batch_size", "batch_size"),
        micro_default=1,
        sequence=("max_length",),
        adapter=("tuner_type", "train_type", "sft_type"),
        adapters={"lora": True, "full": False},
        adapter_default="lora",
        target_default="all-linear",
        rank=("lora_rank",),
        recomputes=True,
        narrow=True,
        known=_known(
            "attn_impl experts_impl", "torch_dtype deepspeed fsdp optim tuner_type train_type sft_type bf16 fp16"
        ),
    ),
    "TRL or the alignment handbook": _TRL,
    "Open Instruct": replace(_TRL, known=_TRL.known._replace(no_effect=(*_TRL.known.no_effect, *_OPEN_INSTRUCT))),
}
