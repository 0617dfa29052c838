"""A run as arguments of Megatron-LM's pretrain_gpt.py (pretrain_mamba.py for hybrids)."""

from itertools import groupby

from charllm.spec.framework import Framework, groups_experts
from charllm.spec.model import Model
from charllm.spec.parallelism import Parallelism
from charllm.spec.run import RunSpec
from charllm.spec.training import Training
from charllm.spec.writers.stages import uneven_ends, write_layout

Words = list[str]

ACTIVATIONS = {"swiglu": ["--swiglu"], "geglu": ["--quick-geglu"], "squared-relu": ["--squared-relu"]}
NORMS = {"rmsnorm": "RMSNorm", "layernorm": "LayerNorm"}
POSITIONS = {"rope": "rope", "learned": "learned_absolute", "none": "none"}
PRECISIONS = {
    "bf16": ["--bf16"],
    "fp16": ["--fp16"],
    "fp8": ["--bf16", "--fp8-format", "hybrid"],
    "mxfp8": ["--bf16", "--fp8-format", "e4m3", "--fp8-recipe", "mxfp8"],
    "nvfp4": ["--bf16", "--fp4-format", "e2m1"],
    "fp32": [],
}
SHARDINGS = {2: "optim_grads", 3: "optim_grads_params"}
STATE_FORMATS = {"fp32": "fp32", "16bit": "bf16", "8bit": "fp8"}


def write_megatron(run: RunSpec) -> Words:
    """Return the arguments that describe a run; none of data, learning rate, logging or checkpoints is among them."""
    return [
        *_model(run.model, run.training),
        *_experts(run),
        *_parallelism(run.parallelism, run.model),
        *_training(run),
        *_software(run.framework, run.model),
    ]


def _given(flag: str, value: object, *, when: bool = True) -> Words:
    return [flag, str(value)] if when else []


def _switch(flag: str, when: bool) -> Words:
    return [flag] if when else []


def _model(model: Model, training: Training) -> Words:
    learned = model.position == "learned"
    return [
        *_given("--num-layers", model.layers, when=not model.pattern),
        *_given("--hidden-size", model.hidden),
        *_given("--ffn-hidden-size", model.ffn),
        *_given("--num-attention-heads", model.heads),
        *_attention(model),
        *_given("--seq-length", training.seq_length),
        *_given("--max-position-embeddings", model.seq_length if learned else training.seq_length),
        *_given("--position-embedding-type", POSITIONS.get(model.position, "none")),
        *ACTIVATIONS.get(model.activation, []),
        *_given("--normalization", NORMS[model.norm.partition("-")[0]]),
        *_switch("--parallel-attn", model.norms_per_layer == 1),
        *_switch("--disable-bias-linear", model.bias in ("none", "qkv")),
        *_switch("--add-qkv-bias", model.bias == "qkv"),
        *_switch("--untie-embeddings-and-output-weights", not model.tied_embeddings),
        *_given("--hidden-dropout", model.dropout_fraction),
        *_given("--attention-dropout", model.dropout_fraction),
        *_given("--vocab-size", model.vocab),
        *_given("--mtp-num-layers", model.mtp_layers, when=model.mtp_layers > 0),
        *_given("--window-size", f"({model.window},0)", when=model.window > 0),
        *_given("--window-attn-skip-freq", model.full_attention_every, when=model.window > 0),
        *_given("--softmax-type", "learnable", when=model.attention_sinks),
        *_hybrid(model),
    ]


def _attention(model: Model) -> Words:
    if model.attention == "mla":
        return [
            "--multi-latent-attention",
            *_given("--q-lora-rank", model.q_lora_rank, when=model.q_lora_rank > 0),
            *_given("--kv-lora-rank", model.kv_lora_rank),
            *_given("--qk-head-dim", model.head_dim),
            *_given("--qk-pos-emb-head-dim", model.rope_head_dim),
            *_given("--v-head-dim", model.v_head_dim),
        ]
    grouped = ["--group-query-attention", "--num-query-groups", str(model.kv_heads)]
    return [
        *(grouped if model.kv_heads != model.heads else []),
        *_given("--kv-channels", model.head_dim),
        *_switch("--qk-layernorm", model.qk_norm),
    ]


def _hybrid(model: Model) -> Words:
    if not model.pattern:
        return []
    return [
        *_given("--hybrid-override-pattern", model.pattern),
        *_given("--mamba-num-heads", model.ssm_heads),
        *_given("--mamba-head-dim", model.ssm_head_dim),
        *_given("--mamba-state-dim", model.ssm_state),
        *_given("--mamba-num-groups", model.ssm_groups),
    ]


def _experts(run: RunSpec) -> Words:
    model, training, framework = run.model, run.training, run.framework
    if not model.experts:
        return []
    grouped = groups_experts(framework, training)
    flex = framework.dispatcher != "alltoall"
    groups = model.expert_groups > 1
    return [
        *_given("--num-experts", model.experts),
        *_given("--moe-router-topk", model.topk),
        *_given("--moe-ffn-hidden-size", model.expert_ffn),
        *_given("--moe-shared-expert-intermediate-size", model.shared_ffn, when=model.shared_ffn > 0),
        *_given("--moe-router-num-groups", model.expert_groups, when=groups),
        *_given("--moe-router-group-topk", model.groups_per_token, when=groups),
        *_given("--moe-latent-size", model.expert_latent, when=model.expert_latent > 0),
        *_given("--moe-layer-freq", _layer_pattern(model), when=bool(model.dense_layers or model.sparse_layers)),
        *_given("--moe-token-dispatcher-type", "flex" if flex else "alltoall"),
        *_given("--moe-flex-dispatcher-backend", framework.dispatcher, when=flex),
        *_switch("--moe-grouped-gemm", grouped),
        *_switch("--moe-permute-fusion", framework.fused_permute),
        *_switch("--moe-router-fusion", framework.fused_router),
        *_switch("--moe-router-force-load-balancing", training.routing == "forced"),
        # Megatron-Core takes biases with scores of a sigmoid alone.
        *_given("--moe-router-score-function", "sigmoid", when=model.balancing == "bias"),
        *_switch("--moe-router-enable-expert-bias", model.balancing == "bias"),
        *_given("--moe-expert-capacity-factor", training.capacity_factor, when=training.capacity_factor is not None),
    ]


def _layer_pattern(model: Model) -> str:
    """Return which layers have experts as Megatron-LM writes it: ``([0]*3+[1]*58)``."""
    if model.sparse_layers:
        repeated = model.sparse_layers * -(-model.layers // len(model.sparse_layers))
        letters = repeated[: model.layers]
    else:
        letters = "-" * model.dense_layers + "E" * (model.layers - model.dense_layers)
    runs = [f"[{int(letter == 'E')}]*{len(list(group))}" for letter, group in groupby(letters)]
    return f"({'+'.join(runs)})"


def _parallelism(degrees: Parallelism, model: Model) -> Words:
    return [
        *_given("--tensor-model-parallel-size", degrees.tp),
        *_given("--pipeline-model-parallel-size", degrees.pp),
        *_given("--context-parallel-size", degrees.cp),
        *_given("--cp-comm-type", "p2p" if degrees.cp_kind == "ring" else "a2a", when=degrees.cp > 1),
        *_given("--expert-model-parallel-size", degrees.ep, when=model.experts > 0),
        *_given("--expert-tensor-parallel-size", degrees.etp, when=model.experts > 0),
        *_stages(degrees, model.mtp_layers),
        *_switch("--sequence-parallel", degrees.sp),
        *_sharding(degrees),
        *_switch("--tp-comm-overlap", "tp" in degrees.effective_overlap),
        *_switch("--overlap-grad-reduce", "dp" in degrees.overlap),
        *_switch("--overlap-param-gather", "dp" in degrees.overlap and degrees.zero > 0),
        *_switch("--no-overlap-p2p-communication", degrees.vpp > 1 and "pp" not in degrees.overlap),
        *_switch("--overlap-moe-expert-parallel-comm", "ep" in degrees.overlap),
        *_switch("--use-tp-pp-dp-mapping", degrees.order == "tp-cp-ep-pp-dp"),
    ]


def _stages(degrees: Parallelism, mtp_layers: int) -> Words:
    if degrees.pp == 1:
        return []
    split = degrees.layers_per_stage
    if len(set(split)) <= 1:
        return _given("--num-virtual-stages-per-pipeline-rank", degrees.vpp, when=degrees.vpp > 1)
    ends = uneven_ends(split, degrees.vpp)
    if ends is None:
        return _given("--pipeline-model-parallel-layout", write_layout(split, mtp_layers))
    first, last = ends
    return [
        *_given("--decoder-first-pipeline-num-layers", first, when=first is not None),
        *_given("--decoder-last-pipeline-num-layers", last, when=last is not None),
    ]


def _sharding(degrees: Parallelism) -> Words:
    instances = degrees.data_ranks // degrees.shard_size if degrees.shard_size else 1
    split = _given("--num-distributed-optimizer-instances", instances, when=instances > 1)
    if degrees.zero in SHARDINGS:
        kind = ["--use-megatron-fsdp", "--data-parallel-sharding-strategy", SHARDINGS[degrees.zero]]
        return [*kind, "--ckpt-format", "fsdp_dtensor", *split]
    return [*_switch("--use-distributed-optimizer", degrees.zero == 1), *split]


def _training(run: RunSpec) -> Words:
    training = run.training
    return [
        *_given("--micro-batch-size", training.micro_batch_size),
        *_given("--global-batch-size", training.global_batch_size),
        *PRECISIONS[training.precision],
        *_reduction(training.precision, training.reduce_precision or run.framework.reduce_precision),
        *_recompute(training),
        *_given("--optimizer", training.optimizer),
        *_given("--clip-grad", 1.0 if training.clip_gradients else 0.0),
        *_states(training),
        *_wide_layers(training),
        *_switch("--fp8-param-gather", bool(training.narrow_weights)),
        *_switch("--activation-func-fp8-input-store", training.narrow_activation_input),
        *_offload(run),
    ]


def _reduction(precision: str, reduced: str) -> Words:
    if precision == "fp16":
        return _switch("--accumulate-allreduce-grads-in-fp32", reduced != "bf16")
    return _switch("--grad-reduce-in-bf16", reduced == "bf16")


def _recompute(training: Training) -> Words:
    if training.recompute == "none":
        return []
    words = _given("--recompute-granularity", training.recompute)
    if training.recompute == "selective":
        return [*words, *(["--recompute-modules", *training.recompute_modules] if training.recompute_modules else [])]
    if training.recompute_layers is None:
        return [*words, "--recompute-method", "uniform", "--recompute-num-layers", "1"]
    return [*words, "--recompute-method", "block", "--recompute-num-layers", str(training.recompute_layers)]


def _states(training: Training) -> Words:
    stated = {
        "--exp-avg-dtype": training.first_moment_precision,
        "--exp-avg-sq-dtype": training.second_moment_precision,
        "--main-params-dtype": training.main_weight_precision,
        "--main-grads-dtype": training.main_gradient_precision,
    }
    narrow = {flag: STATE_FORMATS[found] for flag, found in stated.items() if found in ("16bit", "8bit")}
    if "--main-params-dtype" in narrow:
        narrow["--main-params-dtype"] = "fp16"
    words = [word for flag, found in narrow.items() for word in (flag, found)]
    # Offloading works by the code of that optimizer.
    aware = bool(words) or training.optimizer_offload_fraction > 0
    return [*_switch("--use-precision-aware-optimizer", aware), *words]


def _wide_layers(training: Training) -> Words:
    if not training.wide_layers:
        return []
    ends = ["--num-layers-at-start-in-bf16", "0", "--num-layers-at-end-in-bf16", str(training.wide_layers)]
    return ["--first-last-layers-bf16", *ends]


def _offload(run: RunSpec) -> Words:
    training, words = run.training, []
    if training.optimizer_offload_fraction:
        words += ["--optimizer-cpu-offload", "--optimizer-offload-fraction", f"{training.optimizer_offload_fraction:g}"]
    if training.activation_offload_fraction:
        layers = round(training.activation_offload_fraction * max(run.model.layers // run.parallelism.pp, 1))
        words += ["--cpu-offloading", "--cpu-offloading-num-layers", str(layers)]
    return words


def _software(framework: Framework, model: Model) -> Words:
    gated = "swiglu" if model.activation in ("swiglu", "geglu") else "gelu"
    return [
        *_given("--transformer-impl", "transformer_engine"),
        *_given("--attention-backend", "auto" if framework.attention == "flash" else "unfused"),
        *_switch("--cross-entropy-loss-fusion", framework.cross_entropy == "fused"),
        *_switch("--no-gradient-accumulation-fusion", not framework.fused_gradients),
        *_switch(f"--no-bias-{gated}-fusion", not framework.fused_activation),
        *_switch("--no-rope-fusion", not framework.fused_rope and model.position == "rope"),
        *_given("--make-vocab-size-divisible-by", framework.vocab_multiple),
    ]
