"""What a Megatron-LM launch script becomes."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from charllm.errors import SpecError
from charllm.spec.fields import read
from charllm.spec.model import Model, fill_model
from charllm.spec.readers import read_foreign
from charllm.spec.readers.megatron import read_megatron
from charllm.spec.training import Training

Table = dict[str, Any]

GPT3 = """\
#!/bin/bash
# Trains a model of 175 billion parameters.
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NNODES=${SLURM_NNODES:-16}
TP=8   # inside a node
PP=16
DATA=$1

LAUNCH_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NNODES
)
SIZE_ARGS=(
    --num-layers 96
    --hidden-size 12288
    --num-attention-heads 96
    # --num-layers 2
    --seq-length 2048 --max-position-embeddings 2048
)
TRAIN_ARGS="--micro-batch-size 1 \\
    --global-batch-size $((GPUS_PER_NODE * NNODES * 12)) --bf16 \\
    --lr 6.0e-5 --clip-grad 1.0"
PARALLEL_ARGS=( --tensor-model-parallel-size ${TP} --pipeline-model-parallel-size "$PP" )
PARALLEL_ARGS+=( --sequence-parallel --use-distributed-optimizer )

torchrun "${LAUNCH_ARGS[@]}" pretrain_gpt.py \\
    "${SIZE_ARGS[@]}" \\
    $TRAIN_ARGS \\
    ${PARALLEL_ARGS[@]} \\
    --tokenizer-type GPT2BPETokenizer --data-path $DATA 2>&1 | tee log.txt
"""
LLAMA = (
    "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 "
    "--group-query-attention --num-query-groups 8 --seq-length 8192 --max-position-embeddings 131072 "
    "--swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights "
    "--position-embedding-type rope --hidden-dropout 0 --vocab-size 128256 "
    "--micro-batch-size 1 --global-batch-size 128 --bf16 "
)
DEEPSEEK = (
    "--num-layers 61 --hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128 "
    "--kv-channels 128 --multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 "
    "--qk-pos-emb-head-dim 64 --v-head-dim 128 --qk-layernorm --swiglu --normalization RMSNorm "
    "--disable-bias-linear --untie-embeddings-and-output-weights --position-embedding-type rope "
    "--hidden-dropout 0.0 --num-experts 256 --moe-router-topk 8 --moe-ffn-hidden-size 2048 "
    "--moe-shared-expert-intermediate-size 2048 --moe-layer-freq '([0]*3+[1]*58)' --moe-grouped-gemm "
    "--mtp-num-layers 1 --vocab-size 129280 --seq-length 4096 --micro-batch-size 1 "
    "--global-batch-size 8192 --bf16 "
)
PIPELINE = "--pipeline-model-parallel-size 4 "
VIRTUAL = f"{PIPELINE} --num-virtual-stages-per-pipeline-rank 2 "


def request_of(text: str) -> Table:
    return read_megatron(text, "jobs/train_model.sh").request


def model_of(text: str) -> Model:
    return read(Model, fill_model(request_of(text)["model"]), "model")


def test_arrays_strings_and_variables_are_followed() -> None:
    request = request_of(GPT3)
    assert request["framework"] == {"base": "megatron", "cross_entropy": "vocab-parallel"}
    assert request["parallelism"] == {
        "tp": 8,
        "pp": 16,
        "cp": 1,
        "ep": 1,
        "vpp": 1,
        "sp": True,
        "zero": 1,
        "overlap": [],
    }
    assert request["training"] == {
        "seq_length": 2048,
        "micro_batch_size": 1,
        "global_batch_size": 1536,
        "precision": "bf16",
        "reduce_precision": "fp32",
        "optimizer": "adam",
        "recompute": "none",
    }


def test_gpt3_gets_the_defaults_of_megatron() -> None:
    model = model_of(GPT3)
    assert (model.layers, model.hidden, model.ffn, model.heads, model.vocab) == (96, 12288, 49152, 96, 50257)
    assert (model.activation, model.norm, model.bias, model.position) == (
        "gelu",
        "layernorm",
        "all",
        "learned",
    )
    assert model.tied_embeddings
    assert model.dropout_fraction == 0.1
    assert model.name == "train_model"


def test_a_bare_argument_string_is_enough() -> None:
    model = model_of(LLAMA)
    assert (model.kv_heads, model.ffn, model.activation, model.norm) == (8, 14336, "swiglu", "rmsnorm")
    assert (model.bias, model.tied_embeddings, model.dropout_fraction) == ("none", False, 0)
    assert model.seq_length == 8192


def test_arguments_that_nothing_uses_yet_are_read() -> None:
    assert model_of(f'ARGS="{LLAMA}"').layers == 32
    assert model_of(f"ARGS=({LLAMA})").layers == 32


def test_a_command_inside_a_string_is_read() -> None:
    assert model_of(f'CMD="torchrun pretrain.py {LLAMA}"\nsrun -l sh -c "${{CMD}}"').layers == 32


@pytest.mark.parametrize(
    ("script", "layers"),
    [
        ("N=8\nN=16", 16),
        ("N=${DEPTH:-24}", 24),
        ("N=${DEPTH-24}", 24),
        ("DEPTH=12\nN=${DEPTH:-24}", 12),
        ("N=$1\nN=${N:-40}", 40),
        (': "${N:=20}"', 20),
        ("N=${A:-${B:-28}}", 28),
        ("A=4; B=6; N=$((A*B))", 24),
        ("A=4; N=$(( ($A + 2) * 2 - 1 ))", 11),
        ("A=9; N=$((A / 2 % 3))", 1),
        ("export N='48'", 48),
        ("N='4''2'", 42),
        ("declare -i N=7", 7),
        ("if [ -z $X ]; then N=3; fi", 3),
    ],
)
def test_variables_take_the_value_a_shell_would_give_them(script: str, layers: int) -> None:
    assert model_of(f"{script}\nrun {LLAMA} --num-layers $N").layers == layers


@pytest.mark.parametrize(
    ("script", "layers"),
    [
        ("if [ $SIZE = 7b ]; then N=7; elif [ $SIZE = 13b ]; then N=13; else N=70; fi", 13),
        ("if [[ $SIZE != 13b ]]; then N=7; else N=70; fi", 70),
        ('N=7\nif [ -n "$DEPTH" ]\nthen\n N=$DEPTH\nfi', 7),
        ("N=7\nif ! [ -z $SIZE ]; then if [ 2 -gt 3 ]; then N=8; fi; else N=9; fi", 7),
        ("N=7\nif test 3 -le 3; then N=8; fi", 8),
        ("N=7\nif [ -f here ] && [ -f there ]; then N=8; fi", 7),
        ("N=7\nif [ -f here ]; then N=8; else exit 1; fi", 8),
        ("case $SIZE in\n 7b) N=7;;\n 8b|13b)\n N=13\n ;;\n *) N=70;;\nesac", 13),
        ("case $1 in\n 7b) N=7;;\n *) N=70;;\nesac", 70),
        ("while [ $# -gt 0 ]; do case $1 in --deep) N=99; shift;; esac; done; N=${N:-5}", 5),
        ("N=7; [ $SIZE = 7b ] && N=8; [ $SIZE = 7b ] || N=9", 9),
        ("N=7; [ $SIZE = 7b ] && [ 1 = 1 ] && N=8", 7),
        ("N=7; if this were prose", 7),
    ],
)
def test_branches_follow_the_variables_of_the_script(script: str, layers: int) -> None:
    filler = "\ntrue" * 10
    assert model_of(f"SIZE=13b\n{script}{filler}\nrun {LLAMA} --num-layers $N").layers == layers


def test_what_is_printed_is_no_argument() -> None:
    assert model_of(f'run {LLAMA}\necho "--num-layers 99"').layers == 32


def test_switches_may_be_written_with_a_value() -> None:
    flags = "--tensor_model_parallel_size 2 --sequence_parallel true --use_distributed_optimizer false"
    parallelism = request_of(f"{LLAMA} {flags}")["parallelism"]
    assert (parallelism["sp"], parallelism["zero"]) == (True, 0)


def test_quoted_pairs_in_an_array_are_split() -> None:
    text = f'A=()\nA+=(\n "--fp8-format hybrid"\n "--split \'9,1\'"\n)\nrun {LLAMA} ${{A[@]}}'
    assert request_of(text)["training"]["precision"] == "fp8"


def test_the_last_flag_wins() -> None:
    assert model_of(f"{LLAMA} --num-layers 8 --num-layers=9").layers == 9


def test_a_pattern_keeps_its_blanks() -> None:
    text = DEEPSEEK.replace("'([0]*3+[1]*58)'", "'([0] * 3 + [1] * 58)'")
    assert model_of(f"FREQ='([0] * 3 + [1] * 58)'\nrun {text}").dense_layers == 3
    assert model_of(f"ARGS=({text})\nrun ${{ARGS[@]}}").dense_layers == 3


def test_nothing_is_executed(tmp_path: Path) -> None:
    target = tmp_path / "made"
    text = f"touch {target}; X=$(touch {target}); Y=`touch {target}`\nrun {LLAMA} --num-layers $((1)) $X"
    assert model_of(text).layers == 1
    assert not target.exists()


def test_deepseek_keeps_its_ranks_and_dense_layers() -> None:
    model = model_of(DEEPSEEK)
    assert (model.attention, model.q_lora_rank, model.kv_lora_rank) == ("mla", 1536, 512)
    assert (model.head_dim, model.rope_head_dim, model.v_head_dim) == (128, 64, 128)
    assert (model.experts, model.topk, model.expert_ffn, model.shared_ffn) == (256, 8, 2048, 2048)
    assert (model.layers, model.dense_layers, model.mtp_layers, model.qk_norm) == (61, 3, 1, False)
    assert request_of(DEEPSEEK)["training"]["grouped_gemm"] is True


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--swiglu --hidden-size 4096", {"ffn": 10880}),
        ("--hidden-size 4096", {"ffn": 16384}),
        ("--squared-relu", {"activation": "squared-relu"}),
        ("--quick-geglu", {"activation": "geglu"}),
        ("--disable-bias-linear --add-qkv-bias", {"bias": "qkv"}),
        ("--qk-layernorm", {"qk_norm": True}),
        ("--kv-channels 128", {"head_dim": 128}),
        ("--num-query-groups 4", {"kv_heads": 16}),
        ("--group-query-attention", {"kv_heads": 1}),
        ("--use-rotary-position-embeddings", {"position": "rope"}),
        ("--max-position-embeddings 4096", {"seq_length": 4096}),
        ("--num-experts 8", {"experts": 8, "topk": 2, "expert_ffn": 4096}),
        ("--num-experts 0", {"experts": 0}),
        ("--num-experts 8 --moe-layer-freq 1", {"dense_layers": 0}),
        ("--num-experts 8 --moe-layer-freq [0]+[1]*11", {"dense_layers": 1}),
        ("--window-size 128,0 --window-attn-skip-freq 2", {"window": 128, "full_attention_every": 2}),
        ("--window-size (128,0) --softmax-type learnable", {"window": 128, "attention_sinks": True}),
        ("--window-size 128,0 --window-attn-skip-freq [1,1,0]*4", {"full_attention_every": 3}),
        ("--padded-vocab-size 50304 --vocab-size 50257", {"vocab": 50304}),
        (
            "--tokenizer-type HuggingFaceTokenizer --tokenizer-model meta-llama/Meta-Llama-3-8B",
            {"vocab": 128256},
        ),
    ],
)
def test_model_flags_mean_what_megatron_makes_of_them(flags: str, expected: Table) -> None:
    base = "--num-layers 12 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 "
    vocab = "" if "vocab" in flags or "tokenizer" in flags else "--vocab-size 32000 "
    model = model_of(f"{base}{vocab}{flags}")
    assert {field: getattr(model, field) for field in expected} == expected


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("", {"sp": False, "zero": 0, "overlap": []}),
        ("--sequence-parallel", {"sp": False}),
        (
            "--tensor-model-parallel-size 2 --sequence-parallel --tp-comm-overlap",
            {"sp": True, "overlap": ["tp"]},
        ),
        ("--tensor-model-parallel-size 2 --tp-comm-overlap", {"sp": False, "overlap": []}),
        (
            "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather",
            {"zero": 1, "overlap": ["dp"]},
        ),
        ("--use-torch-fsdp2", {"zero": 3, "overlap": ["dp"]}),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params", {"zero": 3}),
        ("--use-custom-fsdp --data-parallel-sharding-strategy=optim_grads", {"zero": 2}),
        ("--use-megatron-fsdp", {"zero": 0}),
        ("--context-parallel-size 2", {"cp": 2, "cp_kind": "ring", "overlap": ["cp"]}),
        ("--context-parallel-size 2 --cp-comm-type a2a", {"cp_kind": "all-to-all", "overlap": []}),
        ("--num-experts 8 --expert-model-parallel-size 8 --expert-tensor-parallel-size 1", {"ep": 8, "etp": 1}),
        (
            "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2",
            {"vpp": 4, "overlap": ["pp"]},
        ),
        (VIRTUAL, {"vpp": 2}),
        (f"{VIRTUAL} --no-overlap-p2p-communication", {"overlap": []}),
        (
            f"{PIPELINE} --decoder-first-pipeline-num-layers 7 --decoder-last-pipeline-num-layers 5",
            {"layers_per_stage": [7, 10, 10, 5]},
        ),
        (
            f"{VIRTUAL} --decoder-last-pipeline-num-layers 2",
            {"layers_per_stage": [5, 5, 5, 1, 5, 5, 5, 1]},
        ),
        (
            "--num-layers 30 --pipeline-model-parallel-size 4 --account-for-embedding-in-pipeline-split "
            "--account-for-loss-in-pipeline-split",
            {"layers_per_stage": [7, 8, 8, 7]},
        ),
        (
            "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout 'Et*3|(tt|)*6,tL'",
            {"vpp": 2, "layers_per_stage": [3, 2, 2, 2, 2, 2, 2, 1]},
        ),
        ("--use-tp-pp-dp-mapping", {"order": "tp-cp-ep-pp-dp"}),
        (
            "--use-distributed-optimizer --nproc-per-node 8 --nnodes 4 --num-distributed-optimizer-instances 2",
            {"shard_size": 16},
        ),
    ],
)
def test_parallel_flags_mean_what_megatron_makes_of_them(flags: str, expected: Table) -> None:
    parallelism = request_of(f"{LLAMA} {flags}")["parallelism"]
    assert {field: parallelism[field] for field in expected} == expected


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--bf16", {"precision": "bf16", "reduce_precision": "fp32"}),
        ("--bf16 --grad-reduce-in-bf16", {"reduce_precision": "bf16"}),
        ("--fp16", {"precision": "fp16", "reduce_precision": "bf16"}),
        ("--fp16 --accumulate-allreduce-grads-in-fp32", {"reduce_precision": "fp32"}),
        ("", {"precision": "fp32", "reduce_precision": "fp32"}),
        ("--bf16 --fp8-format hybrid", {"precision": "fp8"}),
        ("--bf16 --fp8-format e4m3 --fp8-recipe mxfp8", {"precision": "mxfp8"}),
        ("--bf16 --fp4-format e2m1", {"precision": "nvfp4"}),
        ("--recompute-activations", {"recompute": "selective"}),
        (
            "--recompute-granularity selective --recompute-modules layernorm moe_act",
            {"recompute": "selective", "recompute_modules": ["layernorm", "moe_act"]},
        ),
        (
            "--recompute-granularity full --recompute-method block --recompute-num-layers 4",
            {"recompute": "full", "recompute_layers": 4},
        ),
        (
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
            {"recompute": "full", "recompute_layers": None},
        ),
        ("--optimizer sgd", {"optimizer": "sgd"}),
        ("--num-experts 8", {"grouped_gemm": False, "capacity_factor": None}),
        ("--num-experts 8 --moe-expert-capacity-factor 1.25", {"capacity_factor": 1.25}),
        ("--moe-grouped-gemm", {"grouped_gemm": None}),
    ],
)
def test_training_flags_mean_what_megatron_makes_of_them(flags: str, expected: Table) -> None:
    base = "--num-layers 12 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --micro-batch-size 2 "
    training = request_of(base + flags)["training"]
    assert {field: training.get(field) for field in expected} == expected


def test_without_a_global_batch_a_replica_works_on_one_microbatch() -> None:
    flags = "--num-layers 2 --hidden-size 8 --micro-batch-size 4 --pipeline-model-parallel-size 2"
    reading = read_megatron(f"WORLD_SIZE=$((8*4))\ntorchrun --nproc_per_node 8 t.py {flags}", "train.sh")
    assert (reading.microbatches, reading.nodes, reading.gpus_per_node) == (1, 1, 8)


def test_the_request_builds_a_training() -> None:
    assert read(Training, request_of(DEEPSEEK)["training"], "training").global_batch_size == 8192


def test_an_unstated_vocabulary_is_left_to_be_set() -> None:
    assert "vocab" not in request_of(LLAMA.replace("--vocab-size 128256", ""))["model"]


def test_a_script_without_sizes_leaves_the_model_open() -> None:
    assert "model" not in request_of("--use-checkpoint-args --micro-batch-size 1")


@pytest.mark.parametrize(
    ("flags", "field"),
    [
        ("--num-layers many", "--num-layers"),
        ("--num-layers 2.5", "--num-layers"),
        ("--num-layers -3", "--num-layers"),
        ("--num-layers", "--num-layers"),
        ("--num-layers 99999999999999999999", "--num-layers"),
        ("--tensor-model-parallel-size 0", "--tensor-model-parallel-size"),
        ("--hidden-dropout much", "--hidden-dropout"),
        ("--normalization BatchNorm", "--normalization"),
        ("--position-embedding-type sinusoidal", "--position-embedding-type"),
        ("--recompute-granularity half", "--recompute-granularity"),
        ("--recompute-activations --recompute-modules everything", "--recompute-modules"),
        ("--num-experts 8 --moe-layer-freq ([0,1]*15)", "--moe-layer-freq"),
        ("--num-experts 8 --moe-layer-freq [0]*3+[1]*58", "--moe-layer-freq"),
        ("--cp-comm-type allgather --context-parallel-size 2", "--cp-comm-type"),
        (
            "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 3",
            "--num-layers-per-virtual",
        ),
        (
            "--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 1",
            "--pipeline-model-parallel-size",
        ),
        (
            "--pipeline-model-parallel-size 3 --pipeline-model-parallel-layout 'tt|tt'",
            "--pipeline-model-parallel-layout",
        ),
        ("--pipeline-model-parallel-layout 'xyz'", "--pipeline-model-parallel-layout"),
        ("--pipeline-model-parallel-layout '(t|)*9999'", "--pipeline-model-parallel-layout"),
        ("--hybrid-override-pattern MXM-", "--hybrid-override-pattern"),
        ("--window-size all", "--window-size"),
    ],
)
def test_a_value_that_cannot_be_read_names_its_flag(flags: str, field: str) -> None:
    with pytest.raises(SpecError) as caught:
        request_of(f"{LLAMA} {flags}")
    assert caught.value.field.startswith(field)


def test_an_unset_variable_is_missing_with_what_gives_it() -> None:
    reading = read_megatron(f"run {LLAMA} --num-layers $DEPTH", "train.sh")
    assert "layers" not in reading.request["model"]
    assert "--env DEPTH=VALUE" in reading.missing["model.layers"]


@pytest.mark.parametrize("text", ["", "echo hello", "num-layers 3", "\0"])
def test_a_text_without_megatron_arguments_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="Megatron-LM arguments"):
        request_of(text)


def test_doubling_variables_are_stopped() -> None:
    doubling = "\n".join(f'A{i + 1}="$A{i}$A{i}"' for i in range(60))
    with pytest.raises(SpecError, match="expand"):
        request_of(f"A0=xxxxxxxx\n{doubling}\nrun $A60 {LLAMA}")
    with pytest.raises(SpecError, match="expand"):
        request_of(f"A={'x' * 1000}\nB=" + "$A" * 100_000)


def test_a_huge_script_is_refused() -> None:
    with pytest.raises(SpecError, match="at most"):
        request_of("#" * (2**20 + 1))


def test_files_are_read_by_their_suffix(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(GPT3, encoding="utf-8")
    assert read_foreign(str(script)).request["model"]["name"] == "train"
    config = tmp_path / "config.json"
    sizes = dict.fromkeys(("hidden_size", "num_attention_heads", "intermediate_size", "vocab_size"), 8)
    config.write_text(json.dumps(sizes | {"model_type": "llama", "num_hidden_layers": 2}), encoding="utf-8")
    assert read_foreign(str(config)).request["model"]["layers"] == 2
    recipe = tmp_path / "run.yaml"
    recipe.write_text("model: {num_layers: 4}", encoding="utf-8")
    assert read_foreign(str(recipe)).request["framework"] == "nemo"
    with pytest.raises(SpecError, match="--from"):
        read_foreign(str(tmp_path / "missing.sh"))


MARKUP = (
    "=",
    "+=",
    "(",
    ")",
    "{",
    "}",
    "$",
    "${",
    "$((",
    "))",
    "$(",
    "'",
    '"',
    "`",
    "\\",
    "\n",
    " ",
    ";",
    "#",
)
FLOW = ("if ", "then ", "else ", "elif ", "fi", "case ", " in", "esac", "[ ", " ]", "&&", "||", "do ")
WORDS = ("A", "B", "8", "[0]*3", "-", ":-", "@", "[", "]", "*", "|", "--num-layers", "--moe-layer-freq")
FLAGS = (
    "--num-experts",
    "--window-size",
    "--pipeline-model-parallel-size",
    "--pipeline-model-parallel-layout",
)
PIECES = st.sampled_from((*MARKUP, *FLOW, *WORDS, *FLAGS, "--decoder-last-pipeline-num-layers"))


@settings(deadline=None, max_examples=400)
@given(text=st.lists(PIECES, max_size=60).map("".join) | st.text(max_size=200), path=st.text(max_size=20))
def test_any_text_gives_a_request_or_a_spec_error(text: str, path: str) -> None:
    for whole in (text, f"{LLAMA} {text}", f"{text}\nrun {DEEPSEEK} $A ${{B[@]}}"):
        try:
            request = read_megatron(whole, path).request
        except SpecError:
            continue
        assert "framework" in request


SWIFT = """
PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True' NPROC_PER_NODE=8 \\
megatron sft --model meta-llama/Llama-3.1-8B-Instruct --tensor_model_parallel_size 2 --sequence_parallel true \\
    --micro_batch_size 2 --global_batch_size 32 --max_length 4096 --recompute_granularity full --lr 1e-5 \\
    --recompute_method uniform --recompute_num_layers 1 --packing true --finetune true
"""


def test_megatron_under_swift_has_the_formats_of_its_model_and_shards_its_optimizer() -> None:
    found = read_megatron(SWIFT, "run.sh")
    assert (found.model_id, found.missing, found.unmodelled) == ("meta-llama/Llama-3.1-8B-Instruct", {}, ())
    training, parallelism = found.request["training"], found.request["parallelism"]
    assert (training["precision"], parallelism["zero"], training["seq_length"]) == ("bf16", 1, 4096)
    assert (training["global_batch_size"], training.get("lora_rank")) == (32, None)


def test_adapters_of_swift_and_of_mindspeed_are_trained() -> None:
    swift = read_megatron(
        SWIFT.replace("--finetune true", "--tuner_type lora --lora_rank 16 --target_modules all-linear"), "run.sh"
    )
    assert swift.request["training"]["lora_rank"] == 16
    mind = read_megatron(
        "torchrun --nproc_per_node 8 posttrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 "
        "--seq-length 4096 --micro-batch-size 1 --global-batch-size 16 --bf16 --vocab-size 32000 --lora-r 8 "
        "--lora-alpha 16 --lora-target-modules linear_qkv linear_proj",
        "run.sh",
    )
    assert mind.request["training"]["lora_rank"] == 8
    assert mind.request["training"]["lora_targets"] == ["qkv", "proj"]
    assert not mind.unmodelled


def test_preferences_under_swift_are_refused() -> None:
    (setting,) = read_megatron(SWIFT.replace("megatron sft", "megatron rlhf"), "run.sh").unmodelled
    assert "preferences" in setting.reason


PLAIN = (
    "python main.py --num-layers 8 --hidden-size 512 --num-attention-heads 8 --micro-batch-size 1 --seq-length 128 "
    "--tensor-model-parallel-size 2 --bf16 --vocab-size 100"
)


@pytest.mark.parametrize(
    "launch",
    ["torchrun --nproc_per_node 8 -c '{}'", "su - user -c '{}'", "python -m launcher -c '{}'", "srun x -c '{}'"],
)
def test_a_command_in_one_word_after_c_is_followed(launch: str) -> None:
    found = read_megatron(launch.format(PLAIN) + "\n", "run.sh")
    assert found.request["parallelism"]["tp"] == 2
    assert found.request["model"]["layers"] == 8


@pytest.mark.parametrize("text", ["([0]*int(1)+[1]*7)", "[0]*(8-7)+[1]*7", "0,1,1,1,1,1,1,1", "[0]+[1]*(14//2)"])
def test_the_layers_with_experts_may_be_an_expression(text: str) -> None:
    found = read_megatron(f"{PLAIN} --num-experts 8 --moe-layer-freq '{text}'\n", "run.sh")
    assert found.request["model"]["dense_layers"] == 1
