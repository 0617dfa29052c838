"""Which program wrote a settings file, told by the keys in it."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Sign(NamedTuple):
    """Dotted keys that stand in a program's files: ``key=word`` asks for a word in the value, ``!key`` for none."""

    program: str
    keys: tuple[str, ...]


NEMO, BRIDGE, GPT_NEOX, NANOTRON, LLM_FOUNDRY = "NeMo", "Megatron-Bridge", "GPT-NeoX", "nanotron", "LLM Foundry"
PRIMUS, FLAGSCALE, AXOLOTL, LLAMA_FACTORY, SWIFT = "Primus", "FlagScale", "Axolotl", "LLaMA-Factory", "ms-swift"
AUTOMODEL, HYPERPOD, HF_CONFIG, DEEPSPEED = "NeMo Automodel", "SageMaker HyperPod", "Hugging Face", "DeepSpeed"
GENERATION = "NeMo's generation of text"
VERL, TRL, OPEN_INSTRUCT = "verl", "TRL or the alignment handbook", "Open Instruct"

_SIGNS = f"""
{GENERATION}: model.data.test_ds !model.data.train_ds
{GENERATION}: inference.tokens_to_generate gpt_model_file
Kubernetes: apiVersion kind
NeMo RL: grpo
NeMo RL: policy sft
NeMo RL: policy dpo
NeMo RL: policy cluster
NeMo RL: policy.megatron_cfg
NeMo RL: policy.dtensor_cfg
NeMo RL: data.use_multiple_dataloader
NeMo RL: policy.generation
{VERL}: actor_rollout_ref
{VERL}: data.train_batch_size trainer.total_epochs
{VERL}: model.partial_pretrain
{VERL}: critic algorithm.adv_estimator
OpenRLHF: actor_num_gpus_per_node
torchtune: model._component_
torchtune: tokenizer._component_
{AUTOMODEL}: model._target_=nemo_automodel
{AUTOMODEL}: model._target_=NeMoAutoModel
{AUTOMODEL}: step_scheduler
{PRIMUS}: modules.pre_trainer
{PRIMUS}: modules.post_trainer
{PRIMUS}: modules work_group
{FLAGSCALE}: experiment.task
{FLAGSCALE}: system model.num_layers data
{FLAGSCALE}: system.tensor_model_parallel_size
{FLAGSCALE}: system.checkpoint model
{HYPERPOD}: use_smp_model
{HYPERPOD}: model.model_type run.name trainer
{HYPERPOD}: training_config.training_args
{HYPERPOD}: recipe_job training_config
{HYPERPOD}: run.model_type trainer
Accelerate: compute_environment
Accelerate: distributed_type num_processes
{GPT_NEOX}: pipe_parallel_size
{GPT_NEOX}: pipe-parallel-size
{GPT_NEOX}: model_parallel_size
{GPT_NEOX}: model-parallel-size
{GPT_NEOX}: train_micro_batch_size_per_gpu num_layers
{NANOTRON}: model.model_config parallelism
{NANOTRON}: tokens.micro_batch_size parallelism
{NANOTRON}: general.project tokens parallelism
{AXOLOTL}: base_model datasets
{AXOLOTL}: base_model sequence_len
{AXOLOTL}: base_model micro_batch_size
{LLAMA_FACTORY}: model_name_or_path stage
{LLAMA_FACTORY}: model_name_or_path finetuning_type
{LLAMA_FACTORY}: model_name_or_path template
LLaMA-Factory 1: model_class train_dataset
LLaMA-Factory 1: model_class kernel_config
LLaMA-Factory 1: model_class dist_config
{SWIFT}: tuner_type model
{SWIFT}: train_type model dataset
{SWIFT}: sft_type
{SWIFT}: rlhf_type
{OPEN_INSTRUCT}: model_name_or_path dataset_mixer_list
{OPEN_INSTRUCT}: model_name_or_path with_tracking
{OPEN_INSTRUCT}: model_name_or_path use_slow_tokenizer
{TRL}: model_name_or_path per_device_train_batch_size
{TRL}: model_name_or_path output_dir
OLMo: model.d_model fsdp !model.name
OLMo: model.d_model max_duration !model.name
OLMo: model.d_model global_train_batch_size !model.name
{LLM_FOUNDRY}: device_train_microbatch_size
{LLM_FOUNDRY}: global_train_batch_size
{LLM_FOUNDRY}: train_loader.dataset max_duration
{LLM_FOUNDRY}: parameters.global_train_batch_size
Composer's or MosaicML's platform: integrations compute image
MaxText: base_emb_dim
MaxText: ici_fsdp_parallelism
MaxText: per_device_batch_size model_name
Levanter: trainer.train_batch_size model.type
Levanter: trainer.mp trainer.tracker
LitGPT: train.micro_batch_size tokenizer_dir
LitGPT: train.micro_batch_size checkpoint_dir
LitGPT: train.micro_batch_size model_name
lingua: model.dim distributed.fsdp_type
lingua: distributed.fsdp_type
fairseq: task._name model._name
fairseq: common fairseq
ColossalAI: zero_config booster
Modalities: model_raw app_state
NeMo's launcher or autoconfigurator: search_config
torchtitan: metrics parallelism.data_parallel_shard_degree
Megatron-Core (--yaml-cfg): language_model model_parallel
Megatron's tests: TEST_TYPE MODEL_ARGS
Megatron's tests: MODEL_ARGS ENV_VARS
Docker Compose: services version
Helm: apiVersion appVersion
GitHub Actions: jobs on
SkyPilot: resources setup run
"""
SIGNS = tuple(
    Sign(program.strip(), tuple(keys.split()))
    for program, keys in (line.split(": ", 1) for line in _SIGNS.strip().splitlines())
)
"""Signs of programs, the more particular first: the first that a file bears counts."""


_STARTS = """
verl: verl.trainer | verl.experimental | recipe.dapo | recipe.prime
OpenRLHF: openrlhf.cli
NeMo RL: examples/run_grpo | examples/run_sft | examples/run_dpo | nemo_rl
slime: train_async.py | --rollout-num-gpus
SkyRL: skyrl_train | skyrl.train
torchtune: tune run
LitGPT: litgpt finetune | litgpt pretrain
MaxText: MaxText.train | MaxText/train.py | maxtext.trainers
Levanter: levanter.main
ColossalAI: colossalai run
OLMo-core: olmo_core.launch | src/scripts/train/OLMo
XTuner: xtuner train
PaddleNLP: paddle.distributed.launch
a command of ms-swift that trains nothing: swift infer | swift export | swift app | swift deploy | megatron export
a command of ms-swift that trains nothing: swift eval | swift sample
a command of LLaMA-Factory that trains nothing: llamafactory-cli chat | llamafactory-cli export | llamafactory-cli api
a server of generation: vllm serve | vllm.entrypoints | sglang.launch_server | trtllm-serve | lmdeploy serve
"""
STARTS = tuple(
    (mark, program)
    for program, marks in (line.split(": ", 1) for line in _STARTS.strip().splitlines())
    for mark in marks.split(" | ")
)
"""Words of a command that starts a program, and that program."""


def find_started(text: str) -> str:
    """Return the program that a script starts, of those that are not read; an empty text where none is known."""
    code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return next((program for mark, program in STARTS if mark in code), "")


def find_program(table: Mapping[Any, Any]) -> str:
    """Return the program whose file a table is; an empty text where none of its signs is there."""
    return next((sign.program for sign in SIGNS if all(_bears(table, key) for key in sign.keys)), "")


def list_programs() -> list[str]:
    """List the programs that are known by their files."""
    return list(dict.fromkeys(sign.program for sign in SIGNS))


def _bears(table: Mapping[Any, Any], key: str) -> bool:
    if key.startswith("!"):
        return not _bears(table, key[1:])
    path, _, word = key.partition("=")
    *above, last = path.split(".")
    value: Any = table
    for part in above:
        value = value[part] if isinstance(value, Mapping) and part in value else None
    if not isinstance(value, Mapping) or last not in value:
        return False
    return not word or (isinstance(value[last], str) and word in value[last])
