"""Settings of torchtitan that its reader does not use: without effect on a step, or not modelled."""

from charllm.spec.readers.ledger import Known, Unmodelled, list_names

NO_EFFECT = list_names(
    """
    training.disable_cuda_graphs job.* profiling.* metrics.* checkpoint.* validation.* lr_scheduler.* comm.*
    memory_estimation.* fault_tolerance.enable debug.* model.tokenizer_path model.hf_assets_path model.norm_type
    model.print_after_conversion model.tokenizer_type optimizer.lr optimizer.eps optimizer.weight_decay
    optimizer.beta1 optimizer.beta2 optimizer.implementation optimizer.fused optimizer.foreach optimizer.lr_min
    optimizer.moe_router_bias_update_speed training.dataset* training.steps training.warmup_steps training.seed
    training.deterministic training.gc_freq training.gc_debug training.data_parallel_type training.dataloader.*
    training.enable_loss_parallel training.classifer_free_guidance_prob
    parallelism.disable_loss_parallel experimental.disable_loss_parallel parallelism.context_parallel_load_balancer
    training.disable_loss_parallel *.context_parallel_rotate_method
    parallelism.pipeline_parallel_expert_parallel_overlap parallelism.enable_compiled_autograd
    experimental.enable_compiled_autograd experimental.custom_import experimental.custom_args_module
    experimental.custom_model_path compile.components compile.backend compile.precompile*
    activation_checkpoint.preserve_rng_state activation_checkpoint.determinism_check activation_checkpoint.debug
    activation_checkpoint.early_stop activation_checkpoint.visualize* activation_checkpoint.per_op_sac* float8.*
    quantize.* mx.* fault_tolerance.group_size fault_tolerance.replica_id fault_tolerance.process_group*
    fault_tolerance.min_replica_size hf_transformers.* data.* actions.* tokenizer.* dataset.* wandb.* logging.*
    """
)
OFFLOADED = "offloading to the CPU"
KNOWN = Known(
    NO_EFFECT,
    {
        "training.enable_cpu_offload": Unmodelled(OFFLOADED),
        "experimental.enable_cpu_offload": Unmodelled(OFFLOADED),
        "parallelism.enable_cpu_offload": Unmodelled(OFFLOADED),
        "optimizer.early_step_in_backward": Unmodelled("updates inside backward"),
        "fault_tolerance.semi_sync_method": Unmodelled("replicas that synchronise rarely"),
        "parallelism.pipeline_parallel_schedule_csv": Unmodelled("a schedule from a file"),
        "experimental.pipeline_parallel_schedule_csv": Unmodelled("a schedule from a file"),
        "encoder.*": Unmodelled("diffusion models", ()),
        "activation_checkpoint.memory_budget": Unmodelled("a memory budget", (None, 0.5)),
    },
)
