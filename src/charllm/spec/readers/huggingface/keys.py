"""Settings of a Hugging Face config that its reader does not use: without effect on a step, or not modelled."""

from charllm.spec.readers.ledger import OFF, Known, Unmodelled, list_names

RUN = list_names(
    """
    architectures auto_map* transformers_version torch_dtype dtype model_type _name_or_path name_or_path
    _commit_hash _attn_implementation* attn_implementation _flash_attn_2_enabled *use_flash_attn*
    use_flash_attention* flash_attention _from_model_config _diffusers_version use_cache use_cache_*
    gradient_checkpointing use_gradient_checkpointing cache_implementation is_decoder unsloth* pretraining_tp
    ep_size skip_bias_add skip_bias_add_qkv onnx_safe init_device init_config* use_fused* fused_* use_dynamic_ntk
    use_logn_attn use_cache_quantization use_cache_kernel softmax_in_fp32 fp16 bf16 fp32 safe_softmax slow_but_exact
    reorder_and_upcast_attn attention_softmax_in_fp32 scale_attention_softmax_in_fp32 apply_query_key_layer_scaling
    inference_* *cpu_offload* pp tp mp_size use_mamba_kernels chunk_size mamba_chunk_size block_size
    mamba_ssm_cache_dtype num_logits_to_keep mamba_ssm_dtype verbose quantization_config* quantization
    quantization_bit pre_seq_len prefix_projection lora* *_revision _moe_implementation transformers.js_config*
    base_model_* wandb* experts_implementation is_llama_config enable_fp32_lm_head fp32_lm_head sigmoid_router*
    use_mla_kernel* _experts_implementation
    """
)
"""How a checkpoint is loaded, run and described."""
TOKENS = list_names(
    """
    *token_id *token_ids *token_index tokenizer_class tokenizer* eos_token pad_token bos_token vocab_type
    token_type_ids *_token_type_id type_vocab_size
    """
)
GENERATION = list_names(
    """
    max_length min_length do_sample temperature top_k top_p typical_p repetition_penalty length_penalty num_beams
    num_beam_groups diversity_penalty early_stopping no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids
    num_return_sequences output_scores max_new_tokens return_dict* forced_* suppress_tokens begin_suppress_tokens
    remove_invalid_values exponential_decay_length_penalty output_attentions output_hidden_states torchscript
    use_bfloat16 tf_legacy_loss pruned_heads* tie_encoder_decoder cross_attention_hidden_size prefix finetuning_task
    problem_type task_specific_params* id2label* label2id* num_labels chunk_size_feed_forward summary_* generation*
    max_context_len max_window_size window_attn*
    """
)
NUMBERS = list_names(
    """
    initializer_* init_* *_init_std *_init rescale_prenorm_residual *norm_eps *norm_epsilon *layernorm_epsilon
    *layer_norm_epsilon layer_norm_eps ln_eps norm_eps rms_norm_eps* eps time_step_* mamba_hidden_act mamba_dt_*
    residual_in_fp32 rope* rotary* partial_rotary_factor
    original_max_position_embeddings use_rotary* max_rope* no_rope_layers no_rope_layer_interval yarn*
    mrope_section* swa_rope_theta *rope_theta alibi_bias_max norm_topk_prob *scaling_factor scoring_func
    score_function topk_method moe_router_* router_* *aux_loss* seq_aux output_router_logits *z_loss* aux_loss_alpha
    moe_norm_min use_expert_bias* moe_gate* use_correction_bias *jitter* scale_router* expert_capacity norm_head
    norm_softmax *logit_softcapping *logits_scaling logit_scale *_multiplier *_multipliers scale_emb scale_depth
    dim_model_base mup* query_pre_attn_scalar attn_temperature_tuning attn_scale floor_scale scale_attn_*
    attention_multiplier softmax_scale attn_*_factor *_alpha_factor *_beta_factor layernorm_*_alpha layernorm_*_beta
    layernorm_* logits_soft_cap attn_logit_softcapping swiglu_limit clip_qkv attn_config.clip_qkv attn_config.*
    ffn_config.* cla_* residual_scale attention_dropout attn_pdrop attn_dropout* embd_pdrop emb_pdrop
    embedding_dropout embed_dropout classifier_dropout attention_probs_dropout_prob hidden_dropout_prob layerdrop
    seq_aux* interleaved apply_residual_connection_post_layernorm postnorm
    post_layer_norm layer_norm_elementwise_affine rmsnorm norm_type layernorm_type
    normalization_function mlp_type layer_norm_type weight_tying original_rope clip_softmax use_qk_norm_per_layer
    qk_norm_type expand mamba_expand moe_shared_expert_overlap ignore_index use_unified_vision_chunk
    language_model_only output_gate_type mlp_only_layers use_routing_bias use_qk_norm qkv_bias use_mrope
    initial_context_length video_placeholder image_placeholder moe_use_* n_ctx parallel_attn_mlp_res attention_scale
    embedding_fraction hidden_act_param mtp_loss* use_parallel_residual layer_rope_theta expert_selection_fn
    attention_value_scale mup_enabled route_scale routed_scaling* embedding_initializer_range enable_moe_fp32_combine
    """
)
"""Constants of formulas, and dropout inside attention kernels: they change values, not times."""

VISION = "a vision tower (the text model alone is read)"
AUDIO = "an audio tower (the text model alone is read)"
PER_LAYER = "widths that differ from layer to layer"
SHARED_KV = "keys and values shared between layers"

UNMODELLED = {
    **{f"{key}*": Unmodelled(VISION, ()) for key in (
        "vision_config", "visual", "vision_tower", "mm_vision", "vision_lora", "img_processor", "vit_", "vision_model",
        "perceiver_config", "vision_feature", "mm_projector", "image_size", "mm_hidden_size", "resampler",
        "encoder_config",
    )},
    **{f"{key}*": Unmodelled(AUDIO, ()) for key in ("audio_config", "audio_processor", "speech_lora", "talker_config")},
    "projector_*": Unmodelled(VISION),
    "mm_*": Unmodelled(VISION),
    "vision_*": Unmodelled(VISION),
    "image_*": Unmodelled(VISION),
    "video_*": Unmodelled(VISION),
    "multi_modal*": Unmodelled(VISION),
    "multimodal*": Unmodelled(VISION),
    "downsample_ratio": Unmodelled(VISION),
    "spatial_*": Unmodelled(VISION),
    "deepstack*": Unmodelled(VISION),
    "embd_layer*": Unmodelled(VISION),
    "block_configs": Unmodelled(PER_LAYER),
    "num_attention_heads_per_layer": Unmodelled(PER_LAYER),
    "num_kv_shared_layers": Unmodelled(SHARED_KV),
    "use_cla": Unmodelled(SHARED_KV),
    "index_topk_freq": Unmodelled("layers that share an indexer", (None, 0, 1)),
    "index_*": Unmodelled("layers that share an indexer"),
    "mtp_use_dedicated_embeddings": Unmodelled("embeddings of multi-token prediction"),
    "attention_bias": Unmodelled("biases of attention in this type"),
    "mlp_bias": Unmodelled("biases of the feed-forward block in this type"),
    "projectors_bias": Unmodelled("biases of projections in this type"),
    **{key: Unmodelled("convolutions without a bias", (None, True)) for key in ("mamba_conv_bias", "use_conv_bias")},
    "_remove_final_layer_norm": Unmodelled("a model without a last norm"),
    "do_layer_norm_before": Unmodelled("a model without a last norm", (None, True)),
    "use_sliding_window": Unmodelled("windows in this type"),
    "use_bias": Unmodelled("biases of Mamba's projections"),
    "add_cross_attention": Unmodelled("cross attention"),
    "is_encoder_decoder": Unmodelled("an encoder and a decoder in one model"),
    "use_bidirectional_attention": Unmodelled("attention to later tokens", (*OFF, "vision")),
    "attn_uses_sequence_id": Unmodelled("masks of packed documents (set training.document_tokens)"),
    "attn_config.attn_uses_sequence_id": Unmodelled("masks of packed documents (set training.document_tokens)"),
    "attn_config.prefix_lm": Unmodelled("prefix attention"),
    "prefix_lm": Unmodelled("prefix attention"),
    "lm_head_bias": Unmodelled("a bias of the LM head"),
    "mamba_proj_bias": Unmodelled("biases of Mamba's projections"),
    "hc_mult": Unmodelled("several residual streams", (None, 0, 1)),
    "altup_num_inputs": Unmodelled("several residual streams", (None, 0, 1)),
    "laurel_rank": Unmodelled("LAuReL blocks"),
    "hidden_size_per_layer_input": Unmodelled("embeddings of each layer"),
    "zero_expert_num": Unmodelled("experts that do nothing"),
    "mlp_only_layer_size": Unmodelled(PER_LAYER),
}  # fmt: skip

KNOWN = Known((*RUN, *TOKENS, *GENERATION, *NUMBERS), UNMODELLED)
