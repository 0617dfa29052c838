"""Readers of training programs' YAML: own files in the words of each, down to a run that resolves."""

from pathlib import Path
from typing import Any

import pytest

from charllm.api.keywords import build_request
from charllm.catalog.foreign import complete_request
from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.spec.readers import Reading, read_foreign
from charllm.spec.request import merge
from charllm.spec.run import RunSpec

NEOX = """
{ "pipe_parallel_size": 2, "model-parallel-size": 2, "num-layers": 32, "hidden-size": 2560,
  "num-attention-heads": 32, "seq-length": 2048, "max-position-embeddings": 2048, "pos-emb": "rotary",
  "no-weight-tying": true, "gpt-j-residual": true, "attention-config": [[["flash"], 32]],
  "vocab-file": "/data/20B_tokenizer.json", "optimizer": {"type": "Adam", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 1, "overlap_comm": True}, "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": 8, "checkpoint-activations": true, "fp16": {"enabled": true} }
"""
NANOTRON = """
model:
  dtype: bfloat16
  model_config: {is_llama_config: true, hidden_act: silu, hidden_size: 2048, intermediate_size: 8192,
    num_attention_heads: 32, num_hidden_layers: 16, num_key_value_heads: 8, tie_word_embeddings: true,
    vocab_size: 128256,    max_position_embeddings: 4096}
optimizer: {accumulate_grad_in_fp32: true, clip_grad: 1.0, zero_stage: 1, optimizer_factory: {name: adamW}}
parallelism: {dp: 2, pp: 1, tp: 4, tp_mode: REDUCE_SCATTER, tp_linear_async_communication: true, pp_engine: 1f1b}
tokens: {micro_batch_size: 2, sequence_length: 4096, batch_accumulation_per_replica: 8, train_steps: 10}
"""
FOUNDRY = """
max_seq_len: 2048
model: {name: mpt_causal_lm, d_model: 4096, n_heads: 32, n_layers: 32, expansion_ratio: 4, max_seq_len: 2048,
  vocab_size: 50368, no_bias: true, attn_config: {alibi: true, attn_impl: flash}}
train_loader: {name: text, dataset: {split: train}}
optimizer: {name: decoupled_adamw, lr: 0.0001}
algorithms: {gradient_clipping: {clipping_threshold: 1.0}}
global_train_batch_size: 512
device_train_microbatch_size: 8
precision: amp_bf16
fsdp_config: {sharding_strategy: FULL_SHARD, mixed_precision: PURE, activation_checkpointing: true}
"""
AXOLOTL = """
base_model: meta-llama/Llama-3.1-8B-Instruct
datasets: [{path: x, type: alpaca}]
sequence_len: 4096
micro_batch_size: 2
gradient_accumulation_steps: 4
optimizer: adamw_torch
bf16: auto
gradient_checkpointing: true
adapter: lora
lora_r: 32
lora_target_linear: true
"""
FACTORY = """
model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
stage: sft
do_train: true
finetuning_type: full
template: llama3
cutoff_len: 2048
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
bf16: true
deepspeed: configs/z3.json
"""
AUTOMODEL = """
recipe: TrainFinetuneRecipeForNextTokenPrediction
step_scheduler: {global_batch_size: 64, local_batch_size: 8}
model: {_target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained,
  pretrained_model_name_or_path: meta-llama/Llama-3.2-1B}
distributed: {strategy: fsdp2, dp_size: none, tp_size: 2, cp_size: 1, sequence_parallel: true,
  activation_checkpointing: true}
packed_sequence: {packed_sequence_size: 4096}
optimizer: {_target_: torch.optim.Adam, lr: 0.00001}
peft: {match_all_linear: true, dim: 8}
"""
PRIMUS = """
work_group: amd
modules:
  pre_trainer:
    framework: megatron
    config: pre_trainer.yaml
    model: tiny_8B.yaml
    overrides:
      micro_batch_size: 2
      global_batch_size: 32
      seq_length: 4096
      tensor_model_parallel_size: 2
      pipeline_model_parallel_size: 1
      overlap_grad_reduce: true
      gradient_accumulation_fusion: false
      fp8: hybrid
      stderr_sink_level: DEBUG
"""
PRIMUS_MODEL = """
extends: [tiny_base.yaml]
tokenizer_type: HuggingFaceTokenizer
tokenizer_model: meta-llama/Llama-3.1-8B
num_layers: 32
hidden_size: 4096
ffn_hidden_size: 14336
num_attention_heads: 32
num_query_groups: 8
group_query_attention: true
"""
PRIMUS_BASE = (
    "swiglu: true\nadd_bias_linear: false\nnormalization: RMSNorm\nposition_embedding_type: rope\n"
    "untie_embeddings_and_output_weights: true\nhidden_dropout: 0.0\n"
)
FLAGSCALE = """
defaults: [{train: 8b}, _self_]
experiment: {exp_name: x, task: {type: train, backend: megatron}, runner: {nnodes: 2, nproc_per_node: 8}}
"""
FLAGSCALE_TRAIN = """
system: {tensor_model_parallel_size: 4, pipeline_model_parallel_size: 2, sequence_parallel: True,
  disable_bias_linear: True,

  use_distributed_optimizer: True, use_flash_attn: True, precision: {bf16: True}, checkpoint: {save_interval: 10}}
model: {num_layers: 32, hidden_size: 4096, num_attention_heads: 32, group_query_attention: True, num_query_groups: 8,
  multiple_of: 1024, hidden_dim_multiplier: 1.3, seq_length: 8192, swiglu: True, normalization: RMSNorm,
  hidden_dropout: 0.0,
  use_rotary_position_embeddings: True, no_position_embedding: True, untie_embeddings_and_output_weights: True,
  micro_batch_size: 1, global_batch_size: 64, optimizer: {adam_beta1: 0.9, lr_scheduler: {lr: 0.0001}}}
data: {data_path: "${data_path:??}", tokenizer: {tokenizer_type: Llama3TokenizerFS, vocab_size: 128256}}
"""
FILES: dict[str, tuple[str, dict[str, Any]]] = {
    "GPT-NeoX": (
        NEOX,
        {
            "tp": 2,
            "pp": 2,
            "dp": 2,
            "zero": 1,
            "overlap": ("dp",),
            "precision": "fp16",
            "global_batch_size": 64,
            "micro_batch_size": 4,
            "recompute": "full",
            "ffn": 10240,
            "vocab": 50277,
            "position": "rope",
            "norms_per_layer": 2,
            "profile": "megatron-deepspeed",
            "tied_embeddings": False,
            "bias": "all",
            "dropout_fraction": 0.0,
        },
    ),
    "nanotron": (
        NANOTRON,
        {
            "tp": 4,
            "dp": 2,
            "sp": True,
            "zero": 1,
            "global_batch_size": 32,
            "micro_batch_size": 2,
            "seq_length": 4096,
            "layers": 16,
            "kv_heads": 8,
            "tied_embeddings": True,
            "overlap": ("tp",),
            "recompute": "none",
            "reduce_precision": "fp32",
            "master_weights": True,
            "weight_precision": "16bit",
        },
    ),
    "Primus": (
        PRIMUS,
        {
            "layers": 32,
            "ffn": 14336,
            "vocab": 128256,
            "kv_heads": 8,
            "bias": "none",
            "tied_embeddings": False,
            "tp": 2,
            "sp": True,
            "zero": 1,
            "overlap": ("dp",),
            "precision": "fp8",
            "global_batch_size": 32,
            "fused_gradients": False,
        },
    ),
    "FlagScale": (
        FLAGSCALE,
        {
            "layers": 32,
            "ffn": 14336,
            "vocab": 128256,
            "kv_heads": 8,
            "tp": 4,
            "pp": 2,
            "dp": 2,
            "precision": "bf16",
            "global_batch_size": 64,
            "position": "rope",
            "bias": "none",
            "zero": 1,
        },
    ),
    "LLM Foundry": (
        FOUNDRY,
        {
            "zero": 3,
            "global_batch_size": 512,
            "micro_batch_size": 8,
            "recompute": "full",
            "position": "alibi",
            "ffn": 16384,
            "bias": "none",
            "profile": "llm-foundry",
            "reduce_precision": "bf16",
            "tied_embeddings": True,
        },
    ),
    "Axolotl": (
        AXOLOTL,
        {
            "name": "llama3-8b",
            "lora_rank": 32,
            "lora_targets": ("qkv", "proj", "fc1", "fc2"),
            "zero": 0,
            "global_batch_size": 64,
            "micro_batch_size": 2,
            "seq_length": 4096,
            "recompute": "full",
            "profile": "pytorch-eager",
        },
    ),
    "LLaMA-Factory": (
        FACTORY,
        {
            "name": "llama3-8b",
            "lora_rank": 0,
            "zero": 3,
            "global_batch_size": 16,
            "recompute": "full",
            "precision": "bf16",
            "profile": "deepspeed",
            "optimizer_offload_fraction": 1.0,
        },
    ),
    "NeMo Automodel": (
        AUTOMODEL,
        {
            "name": "llama3.2-1b",
            "tp": 2,
            "sp": True,
            "zero": 3,
            "global_batch_size": 64,
            "micro_batch_size": 8,
            "lora_rank": 8,
            "recompute": "full",
            "seq_length": 4096,
            "weight_precision": "16bit",
            "master_weights": False,
        },
    ),
}


TITAN = """
work_group: amd
modules:
  pre_trainer:
    framework: torchtitan
    config: pre_trainer.yaml
    model: llama3.1_8B-fp8.yaml
    overrides:
      training: {local_batch_size: 4, seq_len: 8192}
      parallelism: {tensor_parallel_degree: 2}
      quantize: {linear: {float8: {enable_fsdp_float8_all_gather: true}}}
      primus_turbo: {use_turbo_attention: true}
"""
FILES["primus-torchtitan"] = (
    TITAN,
    {
        "layers": 32, "tp": 2, "zero": 3, "micro_batch_size": 4, "seq_length": 8192,
        "precision": "fp8", "narrow_weights": True, "recompute": "none", "reduce_precision": "fp32",
    },
)  # fmt: skip
VERL = """
data: {train_batch_size: 64, micro_batch_size_per_gpu: 2, max_length: 2048}
model: {partial_pretrain: meta-llama/Llama-3.1-8B-Instruct, lora_rank: 16, target_modules: all-linear}
ulysses_sequence_parallel_size: 2
trainer: {total_epochs: 1}
"""
FILES["verl"] = (
    VERL,
    {
        "name": "llama3-8b", "global_batch_size": 64, "micro_batch_size": 2, "seq_length": 2048, "lora_rank": 16,
        "cp": 2, "cp_kind": "all-to-all", "zero": 3, "recompute": "full", "reduce_precision": "fp32",
    },
)  # fmt: skip
HYPERPOD = """
run: {model_type: llm_finetuning_aws, name: x}
trainer: {devices: 8, num_nodes: 2}
training_config:
  model_config: {model_name_or_path: meta-llama/Llama-3.1-8B-Instruct, multimodal: false,
    peft_config: {r: 16, lora_dropout: 0.05, target_modules: all-linear, peft_type: lora}}
  training_args: {gradient_checkpointing: true, max_len: 4096, micro_train_batch_size: 2, train_batch_size: 128,
    trainer_type: sft, strategy: {fsdp_config: {sharding_strategy: HYBRID_SHARD, cpu_offload: false}}}
"""


def test_a_recipe_of_hyperpod_is_read_but_for_the_format_that_its_trainer_chooses(tmp_path: Path) -> None:
    run = run_of(tmp_path, HYPERPOD, precision="bf16")
    expected = {
        "name": "llama3-8b", "lora_rank": 16, "micro_batch_size": 2, "global_batch_size": 128, "seq_length": 4096,
        "zero": 3, "shard_size": 8, "recompute": "full",
    }  # fmt: skip
    assert {name: field_of(run, name) for name in expected} == expected
    assert run.cluster.gpus == 16
    with pytest.raises(SpecError, match=r"--precision WORD.*HyperPod"):
        run_of(tmp_path, HYPERPOD)
    with pytest.raises(SpecError, match="preferences"):
        run_of(tmp_path, HYPERPOD.replace("trainer_type: sft", "trainer_type: dpo"), precision="bf16")


OTHERS = {
    "primus/configs/models/megatron/tiny_8B.yaml": PRIMUS_MODEL,
    "primus/configs/models/megatron/tiny_base.yaml": PRIMUS_BASE,
    "train/8b.yaml": FLAGSCALE_TRAIN,
}
"""Files of a checkout that settings name."""


def run_of(folder: Path, text: str, **words: Any) -> RunSpec:
    path = folder / "settings.yaml"
    path.write_text(text)
    (folder / "configs").mkdir(exist_ok=True)
    for name, content in OTHERS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    zero = '{"stage": 3, "offload_optimizer": {"device": "cpu"}}'
    engine = f'{{"bf16": {{"enabled": "auto"}}, "train_batch_size": "auto", "zero_optimization": {zero}}}'
    (folder / "configs" / "z3.json").write_text(engine)
    return resolve_run(build_request(None, {"from_": str(path), "cluster": "h100x8", **words}))


def field_of(run: RunSpec, name: str) -> Any:
    order = (run.parallelism, run.training, run.model, run.framework)
    return next(getattr(part, name) for part in order if hasattr(part, name))


@pytest.mark.parametrize("program", FILES)
def test_a_file_becomes_the_run_that_it_describes(program: str, tmp_path: Path) -> None:
    text, expected = FILES[program]
    run = run_of(tmp_path, text)
    assert {name: field_of(run, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("text", "old", "new", "message"),
    [
        (AXOLOTL, "adapter: lora", "adapter: lora\nload_in_4bit: true", "load_in_4bit.*weights in 4 bits"),
        (AXOLOTL, "adapter: lora\n", "", "lora_r|adamw_torch|not understood"),
        (AXOLOTL, "lora_r: 32\n", "", "--lora N"),
        (TITAN, "llama3.1_8B", "rocket_9B", "rocket_9B-fp8.yaml from Primus"),
        (TITAN, "use_turbo_attention: true", "enable_attention_float8: true", "few bits of Primus-Turbo"),
        (AXOLOTL, "micro_batch_size", "tensor_parallel_size: 2\nmicro_batch_size", "tensor_parallel_size"),
        (AXOLOTL, "sequence_len: 4096\n", "", "training.seq_length"),
        (AXOLOTL, "meta-llama/Llama-3.1-8B-Instruct", "acme/rocket-9b", "model: got nothing.*acme/rocket-9b"),
        (FACTORY, "stage: sft", "stage: dpo", "stage: dpo.*preferences"),
        (FACTORY, "z3.json", "away.json", "parallelism.zero.*configs/away.json"),
        (FACTORY, "finetuning_type: full", "finetuning_type: freeze", "finetuning_type"),
        (FACTORY, "do_train: true", "do_predict: true", "a file that trains"),
        (AUTOMODEL, "tp_size: 2", "tp_size: 2, pp_size: 2", "pipelines of this program"),
        (AUTOMODEL, "packed_sequence_size: 4096", "packed_sequence_size: 0", "training.seq_length"),
        (AUTOMODEL, "FinetuneRecipeForNext", "BiEncoderRecipeForNext", "recipe"),
        (FOUNDRY, "device_train_microbatch_size: 8", "device_train_microbatch_size: auto", "training.micro_batch_size"),
        (PRIMUS, "tiny_8B", "away_8B", "model: got nothing.*away_8B.yaml from Primus"),
        (PRIMUS, "framework: megatron", "framework: maxtext", "framework"),
        (PRIMUS, "fp8: hybrid", "lora: {enabled: true, dim: 8}", "adapters"),
        (PRIMUS, "fp8: hybrid", "recompute_layer_ids: [1, 2]", "recompute_layer_ids.*not understood"),
        (FLAGSCALE, "train: 8b", "train: away", "training file of this experiment"),
        (NANOTRON, "is_llama_config", "is_mamba_config", "model: got nothing"),
        (NANOTRON, "dp: 2", "sequence_parallel_degree: 2, dp: 2", "not understood"),
        (NEOX, '"pos-emb"', '"moe_num_experts": 8, "pos-emb"', "moe_num_experts"),
        (NEOX, '"vocab-file": "/data/20B_tokenizer.json",', '"activation": "swiglu",', "model.ffn, model.vocab"),
        (NEOX, '["flash"]', '["mamba"]', "attention_config"),
    ],
)
def test_what_a_file_leaves_open_or_asks_for_in_vain_is_named(
    text: str, old: str, new: str, message: str, tmp_path: Path
) -> None:
    assert old in text
    with pytest.raises(SpecError, match=message) as caught:
        run_of(tmp_path, text.replace(old, new, 1))
    assert caught.value.exit_code == 2


SWIFT = """
NPROC_PER_NODE=4 \\
swift sft --model meta-llama/Llama-3.1-8B-Instruct --tuner_type lora --lora_rank 16 --target_modules all-linear \\
    --torch_dtype bfloat16 --per_device_train_batch_size 2 --gradient_accumulation_steps 4 --max_length 4096 \\
    --deepspeed zero2
"""
TRAINER = """
accelerate launch --config_file fsdp.yaml train.py --model_name_or_path meta-llama/Meta-Llama-3-8B --bf16 True \\
    --per_device_train_batch_size 1 --gradient_accumulation_steps 2 --max_seq_length 2048 --gradient_checkpointing True
"""
SCRIPTS = {
    "swift": (
        SWIFT,
        {"name": "llama3-8b", "lora_rank": 16, "zero": 2, "global_batch_size": 64, "profile": "deepspeed"},
    ),
    "accelerate": (
        TRAINER,
        {"name": "llama3-8b", "zero": 3, "global_batch_size": 16, "recompute": "full", "profile": "fsdp"},
    ),
    "verl": (
        "torchrun --nproc_per_node=$1 -m verl.trainer.fsdp_sft_trainer data.micro_batch_size_per_gpu=1 \\\n"
        "  model.partial_pretrain=meta-llama/Llama-3.1-8B model.enable_gradient_checkpointing=False",
        {"name": "llama3-8b", "global_batch_size": 256, "micro_batch_size": 1, "seq_length": 1024, "recompute": "none"},
    ),
    "llamafactory": (
        "llamafactory-cli train settings.yaml cutoff_len=1024\n",
        {"name": "llama3-8b", "zero": 3, "seq_length": 1024, "global_batch_size": 16},
    ),
}
ACCELERATE = """
distributed_type: FSDP
num_processes: 8
fsdp_config: {fsdp_sharding_strategy: FULL_SHARD, fsdp_offload_params: false}
"""


def script_run(folder: Path, text: str) -> RunSpec:
    run_of(folder, FACTORY)
    (folder / "fsdp.yaml").write_text(ACCELERATE)
    path = folder / "run.sh"
    path.write_text(text)
    return resolve_run(build_request(None, {"from_": str(path), "cluster": "h100x8"}))


@pytest.mark.parametrize("program", SCRIPTS)
def test_a_script_that_tunes_a_model_becomes_its_run(program: str, tmp_path: Path) -> None:
    text, expected = SCRIPTS[program]
    run = script_run(tmp_path, text)
    assert {name: field_of(run, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SWIFT.replace("swift sft", "swift rlhf"), "preferences"),
        (SWIFT.replace("--deepspeed", "--task_type seq_cls --deepspeed"), "head of another task"),
        (SWIFT.replace("--max_length 4096", ""), "training.seq_length"),
        (SWIFT.replace("_size 2", "_size $BATCH"), "--env BATCH"),
        (TRAINER.replace("fsdp.yaml", "away.yaml"), "away.yaml"),
        ("llamafactory-cli train away.yaml\n", "away.yaml"),
        ("swift infer --model Qwen/Qwen3-8B\n", "ms-swift that trains nothing"),
        ("python swift/cli/sft.py --model Qwen/Qwen3-8B --torch_dtype bfloat16\n", "training.seq_length"),
        (
            "megatron sft --model Qwen/Qwen3-8B --max_length 4096 --pipeline_model_parallel_size 2 \\\n"
            "  --micro_batch_size 1 "
            "  --global_batch_size 16 --decoder_last_pipeline_num_layers 17\n",
            "layers_per_stage.*num-layers 17",
        ),
        ("python3 -m verl.trainer.main_ppo data.train_batch_size=8\n", "a script that starts verl"),
        ("# as with verl.trainer\nvllm serve Qwen/Qwen3-8B\n", "starts a server of generation"),
        (
            "torchrun -m verl.trainer.fsdp_sft_trainer data.micro_batch_size=4 model.partial_pretrain=Qwen/Qwen3-8B\n",
            "--mbs N",
        ),
    ],
)
def test_what_a_tuning_script_leaves_open_is_named(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=message):
        script_run(tmp_path, text)


TRL = "model_name_or_path: Qwen/Qwen3-8B\noutput_dir: x\nper_device_train_batch_size: 2\nmax_length: 1024\nbf16: true\n"


def read_text_as(text: str, name: str, folder: Path) -> Reading:
    (folder / name).write_text(text, encoding="utf-8")
    return read_foreign(str(folder / name))


def test_what_accelerate_shards_is_asked_for_where_the_file_alone_is_given(tmp_path: Path) -> None:
    alone = read_text_as(TRL, "sft.yaml", tmp_path)
    assert set(alone.missing) == {"framework", "parallelism.zero"}
    command = (
        "accelerate launch --use_deepspeed --zero_stage 3 --mixed_precision bf16 sft.py --per_device_train_batch_size 2"
    )
    script = f"{command} --model_name_or_path Qwen/Qwen3-8B --max_length 1024\n"
    launched = read_text_as(script, "sft.sh", tmp_path)
    assert not launched.missing
    assert launched.request["parallelism"]["zero"] == 3
    assert launched.request["training"]["precision"] == "bf16"


@pytest.mark.parametrize("line", ["beta: 0.1", "loss_type: sigmoid", "num_generations: 8"])
def test_training_by_preferences_is_no_plain_tuning(line: str, tmp_path: Path) -> None:
    assert "preferences" in read_text_as(f"{TRL}{line}\n", "dpo.yaml", tmp_path).unmodelled[0].reason


def test_states_of_adapters_may_be_in_eight_bits(tmp_path: Path) -> None:
    found = read_text_as(AXOLOTL.replace("adamw_torch", "adamw_bnb_8bit"), "lora.yaml", tmp_path)
    assert found.request["training"]["optimizer"] == "adam"
    assert any("8bit" in setting.text for setting in found.small)


def test_a_switch_that_is_on_by_default_can_be_turned_off(tmp_path: Path) -> None:
    on, off = (read_text_as(f"swift sft --model Qwen/Qwen3-8B --max_length 1024 {more}\n", "run.sh", tmp_path)
               for more in ("", "--gradient_checkpointing false"))  # fmt: skip
    assert on.request["training"]["recompute"] == "full"
    assert off.request["training"]["recompute"] == "none"


@pytest.mark.parametrize("flag", ["--fsdp fsdp2.json", "--fsdp full_shard --fsdp_config fsdp2.json"])
def test_the_file_of_fsdp_counts_and_is_asked_for(flag: str, tmp_path: Path) -> None:
    script = f"swift sft --model Qwen/Qwen3-8B --max_length 1024 --gradient_checkpointing false {flag}\n"
    assert "fsdp2.json" in read_text_as(script, "run.sh", tmp_path).missing["parallelism.zero"]
    inner = '{"reshard_after_forward": false, "activation_checkpointing": true}'
    own = f'{{"fsdp": "full_shard auto_wrap", "fsdp_config": {inner}}}'
    (tmp_path / "fsdp2.json").write_text(own if "fsdp_config" not in flag else inner)
    found = read_text_as(script, "run.sh", tmp_path)
    assert not found.missing
    assert (found.request["parallelism"]["zero"], found.request["training"]["recompute"]) == (2, "full")
    (tmp_path / "fsdp2.json").write_text(
        own.replace("reshard_after_forward", "activation_cpu_offload").replace("false", "true")
    )
    with pytest.raises(SpecError, match="activations on the CPU"):
        read_text_as(script, "run.sh", tmp_path)


def test_a_program_named_after_preferences_is_refused(tmp_path: Path) -> None:
    script = (
        "python runner.py -- torchrun dpo_tune.py --per_device_train_batch_size 2 --model_name_or_path Qwen/Qwen3-8B\n"
    )
    assert "preferences" in read_text_as(script, "run.sh", tmp_path).unmodelled[0].reason


def test_prediction_layers_are_added_to_the_model_that_a_command_names(tmp_path: Path) -> None:
    script = (
        "megatron sft --model Qwen/Qwen3-8B --mtp_num_layers 1 --tensor_model_parallel_size 2 --micro_batch_size 1\n"
    )
    found = read_text_as(script, "sft.sh", tmp_path)
    assert set(found.missing) == {"training.seq_length"}
    request = complete_request(found, merge(found.request, {"cluster": "h200x8", "training": {"seq_length": 4096}}))
    assert request["model"] == {"base": "qwen3-8b", "mtp_layers": 1}


def test_settings_of_olmo_are_not_taken_for_those_of_llm_foundry(tmp_path: Path) -> None:
    text = "model:\n  d_model: 64\nglobal_train_batch_size: 8\ndevice_train_microbatch_size: 1\n"
    with pytest.raises(SpecError, match="a file of OLMo"):
        read_text_as(text, "olmo.yaml", tmp_path)
