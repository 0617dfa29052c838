"""Settings of NeMo and Megatron Bridge that their reader does not use: without effect on a step, or not modelled."""

from charllm.spec.readers.ledger import Known, Unmodelled, list_names
from charllm.spec.readers.reading import PREFERENCES

TWO_STACKS = "an encoder and a decoder in one model are not modelled"
REFUSED = {
    "model.encoder": TWO_STACKS,
    "model.decoder": TWO_STACKS,
    "model.enc_num_layers": TWO_STACKS,
    "model.decoder_seq_length": TWO_STACKS,
    "model.hybrid_override_pattern": "hybrids are read from a config.json",
    "model.hybrid_layer_pattern": "hybrids are read from a config.json",
    "model.hybrid_attention_ratio": "hybrids are read from a config.json",
    "model.mamba_ssm_ngroups": "hybrids are read from a config.json",
    "model.hyena": "Hyena layers are not modelled",
    "model.retro": "retrieval is not modelled",
    "model.logits_soft_cap": "the recurrent layers of Griffin are not modelled",
    "model.mm_cfg": "a vision tower is not modelled",
    "model.vision": "a vision tower is not modelled",
    "model.unet_config": "diffusion models are not modelled",
    "model.experimental_attention_variant": "this attention is not modelled",
    "model.linear_attention_type": "this attention is not modelled",
}
"""Setting: what would have to be modelled to read the file."""

FILES = list_names(
    """
    display_name version instance_types pre_script resources.* mmap.* callbacks precision
    model.overwrite_base_config.* trainer.rm.* trainer.reload_dataloaders_every_n_epochs model.optim.amsgrad run.*
    exp_manager.* name hydra.* restore_from_path restore_from_ckpt *.restore_from_path *.restore_from_ckpt
    *.resume_from_checkpoint model.nemo_path logger.* checkpoint.* profiling.* profile.* log.* resume.*
    s3_checkpointing.* env_vars.* cluster.* launcher.* tensorboard_dir wandb.* *.nsys_profile.* model.version
    model.seed seed rng.* scheduler.* lr_scheduler.* chat chatbot_config.* server port username password web_port
    web_server share export.* quantization.algorithm quantization.awq* quantization.sq* quantization.num_calib_size
    quantization.enable_kv_cache quantization.decoder_type inference.* *inference.* mcore_bert tokenizer.*
    model.tokenizer.* straggler.* ft.* nvrx* rerun_state_machine.* inprocess_restart.* base_results_dir data_dir
    stages cluster_type launcher_scripts_path search_config wandb_api_key* container* model.dist_ckpt* dist_ckpt*
    data.* dataset.* model.data.* model.dump_debug_info* model.reset_lr* model.skip_train model.eval_languages
    model.save_nemo_on_validation_end model.enable_megatron_timers model.megatron_timer_kwargs.* target *_target_
    _target_ *._call_ *._partial_ *._args_ trainer.accelerator trainer.logger trainer.enable_checkpointing
    trainer.replace_sampler_ddp trainer.use_distributed_sampler trainer.max_epochs trainer.max_steps
    trainer.max_time trainer.log_every_n_steps trainer.val_check_interval trainer.limit_*_batches trainer.benchmark
    trainer.enable_model_summary trainer.enable_progress_bar trainer.num_sanity_val_steps
    trainer.check_val_every_n_epoch trainer.profiler trainer.detect_anomaly trainer.fast_dev_run trainer.min_steps
    trainer.min_epochs trainer.default_root_dir trainer.sft.* trainer.dpo.* trainer.deterministic
    trainer.sync_batchnorm trainer.callbacks* trainer.plugins* trainer.num_layers trainer.gradient_clip_algorithm
    """
)
"""Where a job runs, logs, reads and writes."""
OPTIMISER = list_names(
    """
    model.optim.name model.optim.lr model.optim.min_lr model.optim.weight_decay model.optim.betas model.optim.eps
    model.optim.sched.* model.optim.bucket_cap_mb model.optim.contiguous_* model.optim.dtype model.optim.nccl_ub
    model.optim.capturable model.optim.master_weights model.optim.param_sync_dtype model.optim.store_param*
    model.optim.ddp_with_param* model.optim.average_in_collective model.optim.overlap_* model.optim.grad_sync_dtype
    model.optim.pipeline* model.optim.with_scaled_states model.optim.distribute_within_nodes model.optim.bucket*
    optim.lr_scheduler.* optim.no_weight_decay_cond optim.scale_lr_cond optim.lr_mult optim.config.lr
    optim.config.min_lr optim.config.weight_decay optim.config.adam_* optim.config.bf16 optim.config.fp16
    optim.config.sgd_momentum optim.config.use_distributed_optimizer optimizer.lr optimizer.min_lr
    optimizer.finetune_lr optimizer.decoupled_* optimizer.weight_decay optimizer.adam_* optimizer.sgd_momentum
    optimizer.bf16 optimizer.fp16 optimizer.params_dtype optimizer.store_param_remainders optimizer.main_*_dtype
    optimizer.loss_scale optimizer.initial_loss_scale optimizer.min_loss_scale optimizer.loss_scale_window
    optimizer.hysteresis optimizer.log_num_zeros_in_grad optimizer.barrier_with_L1_time optimizer.timers
    optimizer.config_logger_dir optimizer.use_torch_optimizer_for_cpu_offload
    optimizer.overlap_cpu_optimizer_d2h_h2d optimizer.pin_cpu_* optimizer.overlap_param_gather_with_optimizer_step
    optimizer.fp8_recipe optimizer.reuse_grad_buf* optimizer.muon_* optimizer.use_distributed_optimizer
    optimizer.overlap_param_gather model.rampup_batch_size train.rampup_batch_size
    train.decrease_batch_size_if_needed train.train_iters train.train_samples train.exit_* train.check_*
    train.train_sync_interval train.eval_* train.skip_train train.empty_unused_memory_level train.manual_gc*
    train.iterations_to_skip validation.*
    """
)
"""Learning rates, schedules of steps, and what the optimizer's name implies."""
INSIDE = list_names(
    """
    model.custom.* custom.* model.disable_parameter_transpose_cache model.tp_comm_disable_* model.init_method*
    model.*init_method* model.use_scaled_init_method model.embedding_init_method* model.perform_initialization
    model.use_cpu_initialization model.layernorm_epsilon model.layernorm_zero_centered_gamma
    model.do_layer_norm_weight_decay model.persist_layer_norm model.memory_efficient_layer_norm
    model.max_position_embeddings model.rotary_* model.rope_* model.scale_positional_embedding
    model.add_position_embedding model.seq_len_interpolation_factor model.yarn_* model.beta_fast model.beta_slow
    model.mscale* model.original_max_position_embeddings model.mrope_section model.use_rope_scaling
    model.attention_dropout model.embedding_dropout model.ffn_dropout model.apply_query_key_layer_scaling
    model.normalize_attention_scores model.attention_softmax_in_fp32 model.softmax_scale
    model.disable_bf16_reduced_precision_matmul model.qk_clip* model.openai_gelu model.onnx_safe
    model.fp16_lm_cross_entropy model.apply_embedding_scaling
    model.mcore_customization_config.* model.megatron_legacy model.megatron_lm_compatible model.mcore_gpt
    model.mcore_t5 model.mcore_bert model.name model.pre_process model.post_process model.add_pooler
    model.add_lm_head model.tokens_head_bias model.bert_* model.share_token_embeddings
    model.share_decoder_tokens_head_embeddings model.gated_linear_unit model.masked_softmax_fusion
    model.get_attention_mask_from_fusion model.attention_mask_type model.bias_dropout_add_fusion
    model.bias_dropout_fusion model.bias_swiglu_fusion model.bias_gelu_fusion model.grad_div_ar_fusion
    model.use_emha model.native_amp_* model.hysteresis model.initial_loss_scale model.apex_transformer_log_level
    model.gc_interval model.gradient_as_bucket_view model.grad_allreduce_chunk_size_mb model.sync_batch_comm
    model.batch_p2p_comm model.batch_p2p_sync model.overlap_p2p_comm model.variable_seq_lengths
    model.transformer_engine model.transformer_impl model.use_te_rng_tracker model.te_rng_tracker
    model.deterministic_mode model.deteministic_mode model.use_tp_pp_dp_mapping model.fp8_* model.fp8
    model.reduce_amax model.fsdp_* model.ub_tp_comm_overlap_cfg* model.tp_comm_overlap_* model.tp_comm_atomic*
    model.tp_comm_bulk* model.tp_comm_split* model.tp_comm_bootstrap* model.sharp
    model.nccl_communicator_config_path model.use_sharp model.nccl_ub model.validation_param_sync_overlap
    model.answer_only_loss model.pipeline_model_parallel_split_rank model.pipeline_model_parallel_comm_backend
    model.pipeline_dtype model.params_dtype model.autocast_dtype model.enable_autocast model.bf16 model.fp16
    model.cpu_offloading_* model.moe_aux_loss_coeff model.moe_z_loss_coeff model.moe_pad_expert_input_to_capacity
    model.moe_token_drop_policy model.moe_input_jitter_eps model.moe_per_layer_logging
    model.moe_use_legacy_grouped_gemm model.moe_layer_recompute model.moe_shared_expert_overlap
    model.moe_shared_expert_gate model.moe_deepep* model.moe_hybridep* model.moe_flex* model.moe_enable_deepep
    model.moe_permute_fusion model.moe_router_fusion model.mtp_loss_scaling_factor model.moe_apply_probs_on_input
    model.defer_embedding_wgrad_compute model.wgrad_deferral_limit model.deallocate_pipeline_outputs
    model.async_tensor_model_parallel_allreduce model.use_ring_exchange_p2p
    model.apply_rope_fusion model.gradient_accumulation_fusion model.bias_activation_fusion model.parallel_output
    model.should_pad_vocab model.cross_entropy_fusion_impl model.barrier_with_L1_time model.timers
    model.finalize_model_grads_func model.grad_s* model.no_sync_func model.param_sync_func model.hf_model_id
    model.generation_config model.inference_* model.flash_decode model.cuda_graph_* model.external_cuda_graph
    model.use_mamba_mem_eff_path model.test_mode model.activations_checkpoint_method
    model.activations_checkpoint_num_layers model.activations_checkpoint_recurrent model.recompute_method
    model.recompute_num_layers model.distribute_saved_activations model.attn_logit_softcapping
    model.final_logit_softcapping model.scatter_embedding_sequence_parallel model.calculate_per_token_loss
    model.precision ddp.check_for_* ddp.average_in_collective ddp.bucket_size ddp.align_param_gather
    ddp.fp8_param_gather ddp.pad_buckets_* ddp.gradient_reduce_div_fusion ddp.suggested_communication_unit_size
    ddp.preserve_fp32_weights ddp.keep_fp8_transpose_cache* ddp.nccl_ub ddp.use_nccl_ub ddp.fsdp_*
    ddp.disable_symmetric_registration ddp.reuse_grad_buf_for_mxfp8_param_ag ddp.delay_wgrad_compute
    ddp.megatron_fsdp_* ddp.overlap_* ddp.data_parallel_sharding_strategy dist.distributed_* dist.local_rank
    dist.lazy_* dist.external_* dist.enable_megatron_core_experimental dist.use_tp_pp_dp_mapping
    dist.align_grad_reduce dist.use_gloo_process_groups dist.sharp_enabled_group dist.use_sharp
    dist.nccl_communicator_config_path dist.high_priority_stream_groups comm_overlap.tp_comm_overlap_cfg*
    comm_overlap.batch_p2p_comm comm_overlap.overlap_* comm_overlap.align_param_gather comm_overlap.bucket_size
    comm_overlap.defer_embedding_wgrad_compute comm_overlap.wgrad_deferral_limit comm_overlap.delay_wgrad_compute
    comm_overlap.data_parallel_size comm_overlap.tp_comm_bootstrap_backend comm_overlap.user_comm_overlap_cfg*
    mixed_precision.fp16 mixed_precision.params_dtype mixed_precision.pipeline_dtype mixed_precision.autocast_*
    mixed_precision.grad_reduce_in_fp32 mixed_precision.fp8_* mixed_precision.fp4_* mixed_precision.loss_scale
    mixed_precision.initial_loss_scale mixed_precision.min_loss_scale mixed_precision.loss_scale_window
    mixed_precision.hysteresis mixed_precision.num_layers_at_* mixed_precision.reuse_grad_buf_for_mxfp8_param_ag
    mixed_precision.fp32 model.peft.restore_* model.peft.adapter_tuning.* model.peft.p_tuning.*
    model.peft.ia3_tuning.* model.peft.selective_tuning.* model.peft.lora_tuning.* peft.alpha peft.dropout*
    peft.lora_* peft.a2a_experimental peft.normalize_moe_lora peft.exclude_modules
    model.moe_router_load_balancing_type model.moe_router_score_function model.moe_router_pre_softmax
    model.moe_router_topk_scaling_factor model.moe_router_topk_limited_devices model.moe_router_enable_expert_bias
    model.moe_router_bias_update_rate model.moe_router_dtype model.moe_router_group_topk model.moe_router_num_groups
    model.moe_router_padding_for_* model.moe_router_force_load_balancing model.cuda_graph_warmup_steps
    model.window_attn_skip_freq model.moe_mlp_glu_interleave_size
    """
)
"""Constants of formulas, fusions of small kernels, buckets and settings that another setting switches on."""

OFFLOADED = "offloading to the CPU"
UNMODELLED = {
    **{
        f"model.{kind}.*": Unmodelled(PREFERENCES, ())
        for kind in ("dpo", "ppo", "kto", "rpo", "grpo", "spin", "regression")
    },
    "model.reward_model_type": Unmodelled(PREFERENCES),
    "trainer.ppo.*": Unmodelled(PREFERENCES, ()),
    "remote_critic_rm.*": Unmodelled(PREFERENCES, ()),
    "model.knowledge_distillation.*": Unmodelled("the passes of a teacher", ()),
    "model.cpu_offloading": Unmodelled(OFFLOADED),
    "model.fp32_residual_connection": Unmodelled("a residual stream in fp32"),
    "model.config.fp32_residual_connection": Unmodelled("a residual stream in fp32"),
    "model.fine_grained_activation_offloading": Unmodelled(OFFLOADED),
    "model.headscale": Unmodelled("learned scales of heads"),
    "model.transformer_block_type": Unmodelled("this order of norms", (None, "pre_ln")),
    "model.attention_type": Unmodelled("this attention", (None, "multihead", "self_attn")),
    "model.activations_checkpoint_layers_per_pipeline": Unmodelled("recomputation of fewer layers in later stages"),
    "model.num_micro_batches_with_partial_activation_checkpoints": Unmodelled("recomputation in some microbatches"),
    "model.moe_token_dispatcher_type": Unmodelled("this dispatch of tokens", (None, "alltoall", "flex")),
    "optimizer.optimizer_cpu_offload": Unmodelled(OFFLOADED),
    "optimizer.optimizer_offload_fraction": Unmodelled(OFFLOADED),
    "trainer.strategy.cpu_offload": Unmodelled(OFFLOADED),
    "dist.use_torch_fsdp2": Unmodelled("PyTorch's FSDP under Megatron"),
    "model.use_torch_fsdp2": Unmodelled("PyTorch's FSDP under Megatron"),
    "ddp.num_distributed_optimizer_instances": Unmodelled("several copies of optimizer shards", (None, 1)),
    "ddp.outer_dp_sharding_strategy": Unmodelled("sharding over groups of replicas", (None, "no_shard")),
    "model.peft.lora_tuning.layer_selection": Unmodelled("adapters in some layers only"),
    "model.drop_layers": Unmodelled("layers that are left out"),
    "model.heterogeneous_layers_config_path": Unmodelled("widths that differ from layer to layer"),
    "trainer.accumulate_grad_batches": Unmodelled("accumulation by the trainer", (None, 1)),
}
SMALL = {
    "model.use_flash_attention": Unmodelled("another fused attention kernel", (None, True)),
    "model.fp8_dot_product_attention": Unmodelled("attention in 8 bits"),
    "model.data.train_ds.packed_sequence": Unmodelled("packed documents: give training.document_tokens"),
}
NEMO2 = (
    *(
        room + name.removeprefix("model.")
        for name in (*INSIDE, *FILES)
        if name.startswith("model.")
        for room in ("model.config.", "trainer.strategy.", "strategy.")
    ),
    *(
        f"{room}.{name}"
        for name in (*INSIDE, "ckpt_*", "fsdp", "ddp")
        if not name.startswith("model.")
        for room in ("trainer.strategy", "strategy")
    ),
    *(f"optim.{name}" for name in ("max_lr", "min_lr", "warmup_steps", "constant_steps", "precision", "clip_grad")),
    *(
        "dir",
        "num_nodes",
        "num_gpus_per_node",
        "performance_mode",
        "model.config.softmax_type",
        "model.config.moe_grouped_gemm",
    ),
)
"""NeMo 2 keeps the settings of a model in tables of its own."""
KNOWN = Known((*FILES, *OPTIMISER, *INSIDE, *NEMO2), UNMODELLED, SMALL)
