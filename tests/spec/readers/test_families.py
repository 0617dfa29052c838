"""Launch scripts of Megatron-LM's descendants and of other years: what their own spellings and defaults mean."""

from pathlib import Path
from typing import Any

import pytest

from charllm.errors import SpecError
from charllm.spec.readers.megatron import read_megatron
from charllm.spec.readers.reading import Reading
from charllm.spec.readers.shell import Inputs

SIZES = "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 --max-position-embeddings 1024 "
BATCH = "--micro-batch-size 4 --global-batch-size 64 --fp16 --vocab-file gpt2-vocab.json "
GPT = f"python pretrain_gpt.py {SIZES} {BATCH}"
SPARSE = f"{GPT} --num-experts 8 --expert-model-parallel-size 2 "
DEEPSPEED = f"deepspeed pretrain_gpt.py {SIZES} {BATCH} --deepspeed --zero-stage 1 "


def reading_of(text: str, path: str = "train.sh", arguments: str | None = None, **environment: str) -> Reading:
    words = None if arguments is None else tuple(arguments.split())
    return read_megatron(text, path, Inputs(words, environment))


def field_of(reading: Reading, field: str) -> Any:
    part, _, key = field.partition(".")
    table = reading.request[part]
    return table.get(key) if isinstance(table, dict) else table


@pytest.mark.parametrize(
    ("command", "field", "value"),
    [
        (GPT.replace("--micro-batch-size", "--batch-size"), "training.micro_batch_size", 4),
        (f"{GPT} --model-parallel-size 2", "parallelism.tp", 2),
        (f"{GPT} --checkpoint-activations", "training.recompute", "full"),
        (f"{GPT} --activations-checkpoint-method uniform", "training.recompute", "full"),
        (
            f"{GPT} --activations-checkpoint-method block --activations-checkpoint-num-layers 3",
            "training.recompute_layers",
            3,
        ),
        (f"{GPT} --DDP-impl local", "framework", "megatron-2020"),
        (f"{GPT} --checkpoint-activations --use-flash-attn", "framework.base", "megatron"),
        (f"{GPT} --attention-backend unfused", "framework.attention", "unfused"),
        (f"{GPT} --transformer-impl local", "framework.attention", "unfused"),
        (f"{GPT} --grad-reduce-in-bf16 --bf16", "training.reduce_precision", "bf16"),
        (f"{GPT} --bf16 --fp8-format hybrid --fp8-param-gather", "training.narrow_weights", True),
        (f"{GPT} --cross-entropy-loss-fusion", "framework", "megatron"),
        (f"{GPT} --exp-avg-dtype fp8", "training.first_moment_precision", "8bit"),
        (f"{GPT} --main-params-dtype fp16", "training.main_weight_precision", "16bit"),
        (f"{GPT} --optimizer-cpu-offload", "training.optimizer_offload_fraction", 1.0),
        (f"{GPT} --optimizer-cpu-offload --optimizer-offload-fraction 0.5", "training.optimizer_offload_fraction", 0.5),
        (f"{GPT} --cpu-offloading --cpu-offloading-num-layers 6", "training.activation_offload_fraction", 0.25),
        (f"{GPT} --make-vocab-size-divisible-by 1024", "framework.vocab_multiple", 1024),
        (f"{GPT} --clip-grad 0.0", "training.clip_gradients", False),
        (f"{GPT} --num-experts 8 --moe-layer-freq 2", "model.sparse_layers", "E-"),
        (f"{GPT} --num-experts 8 --moe-layer-freq [0,1]*12", "model.sparse_layers", "-E" * 12),
        (f"{GPT} --hybrid-override-pattern {'M-*-' * 6}", "model.ssm_heads", 32),
        (
            f"{GPT} --pipeline-model-parallel-size 4 --standalone-embedding-stage",
            "parallelism.layers_per_stage",
            [0, 8, 8, 8],
        ),
        (f"{GPT} --glu-activation swiglu --use_rms_norm", "model.bias", "none"),
        (f"{GPT} --attention-head-type multiquery", "model.kv_heads", 1),
        (f"{GPT} --moe-num-experts 8 --moe-top-k 1 --moe-capacity-factor 1", "training.capacity_factor", 1.0),
    ],
)
def test_megatron_of_every_year(command: str, field: str, value: Any) -> None:
    found = reading_of(command)
    assert (found.request["framework"] if field == "framework" else field_of(found, field)) == value


@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        ("", "framework", "megatron-deepspeed"),
        ("--zero-stage 3", "parallelism.zero", 3),
        ("--bf16 --zero-stage 0", "parallelism.zero", 1),
        ("--deepspeed-activation-checkpointing", "training.recompute", "full"),
        ("--num-key-value-heads 4", "model.kv_heads", 4),
        ("--num-experts 64 --moe-expert-parallel-size 16", "parallelism.ep", 16),
        ("--num-experts 64", "model.topk", 1),
        ("--num-experts 64 --topk 2", "model.topk", 2),
        ("--num-experts 64", "model.sparse_layers", "-E"),
        ("--num-experts 64 --expert-interval 1", "model.dense_layers", 0),
        ("--num-experts 64 --expert-interval 3", "model.sparse_layers", "--E"),
        ("--num-experts 64", "training.capacity_factor", 1.0),
        ("--num-experts 64 --disable-moe-token-dropping", "training.capacity_factor", None),
        ("--num-experts 64 --mlp-type residual", "model.shared_ffn", 4096),
        ("--num-experts 64 --tensor-model-parallel-size 2", "parallelism.etp", 1),
        ("--num-experts 64 --tensor-model-parallel-size 2 --enable-expert-tensor-parallelism", "parallelism.etp", 2),
        ("--num-experts 1 --moe-expert-parallel-size 8", "model.experts", None),
        ("--ds-sequence-parallel-size 4", "parallelism.cp", 4),
        ("--ds-sequence-parallel-size 4", "parallelism.cp_kind", "all-to-all"),
        ("--pipeline-model-parallel-size 8 --no-pipeline-parallel", "parallelism.pp", 1),
        ("--use-flash-attn-v2", "framework.attention", "flash"),
        ("--position-embedding-type alibi --pad-vocab-size-to 250880", "model.vocab", 250880),
        ("--pipeline-model-parallel-size 2 --pp-partition-method type:transformer|embedding", "model.layers", 24),
        ("--train-samples 220_000_000 --num-layers 1_2", "model.layers", 12),
    ],
)
def test_megatron_deepspeed_has_defaults_of_its_own(flags: str, field: str, value: Any) -> None:
    found = reading_of(DEEPSPEED + flags.replace("|", "\\|"))
    assert (found.request["framework"] if field == "framework" else field_of(found, field)) == value


def test_a_written_deepspeed_config_decides() -> None:
    config = """cat <<EOF > ./ds.json
{"train_micro_batch_size_per_gpu": $MBS, "zero_optimization": {"stage": $STAGE, "overlap_comm": true},
 "bf16": {"enabled": true}}
EOF
"""
    run = f"deepspeed pretrain_gpt.py {SIZES} --vocab-file gpt2-vocab.json --deepspeed --deepspeed_config ./ds.json"
    found = reading_of(f"MBS=2\nSTAGE=2\n{config}{run}")
    assert (field_of(found, "parallelism.zero"), field_of(found, "training.precision")) == (2, "bf16")
    assert field_of(found, "training.micro_batch_size") == 2
    assert field_of(found, "parallelism.overlap") == ["dp"]


def test_a_deepspeed_config_made_by_sed_from_a_template_is_read(tmp_path: Path) -> None:
    (tmp_path / "template.json").write_text('{"zero_optimization": {"stage": STAGE}}', encoding="utf-8")
    run = f"deepspeed pretrain_gpt.py {SIZES} {BATCH} --deepspeed --deepspeed_config out.json"
    text = f'sed "s/X/Y/" template.json | sed "s/STAGE/2/" > out.json\n{run}'
    assert field_of(reading_of(text, str(tmp_path / "train.sh")), "parallelism.zero") == 2


def test_a_deepspeed_config_elsewhere_is_missing() -> None:
    run = f"deepspeed pretrain_gpt.py {SIZES} {BATCH} --deepspeed --deepspeed_config /far/away.json"
    assert "away.json" in reading_of(run).missing["parallelism.zero"]


def test_offloading_in_a_deepspeed_config_is_taken() -> None:
    config = 'cat > ds.json <<EOF\n{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}\nEOF\n'
    found = reading_of(f"{config}{GPT} --deepspeed --deepspeed_config ds.json")
    assert field_of(found, "training.optimizer_offload_fraction") == 1.0


PAI = f"""
ENV=$1
MODEL_SIZE=$2
TP=$3
AC=${{10}}
if [ $ENV = dsw ]; then
  NNODES=1
fi
if [ $MODEL_SIZE = 7B ]; then
  LAYERS=32
elif [ $MODEL_SIZE = 70B ]; then
  LAYERS=80
fi
case $AC in
  full) ac="--recompute-granularity full --recompute-method uniform" ;;
  none) ac="" ;;
esac
run_cmd="torchrun --nnodes $NNODES --nproc_per_node 8 pretrain_llama.py {SIZES} {BATCH}
  --num-layers ${{LAYERS}} --tensor-model-parallel-size ${{TP}} ${{ac}}
  --patch-tokenizer-type Qwen2Tokenizer --extra-vocab-size 293"
echo ${{run_cmd}}
eval ${{run_cmd}}
"""


def test_positional_arguments_choose_the_branches() -> None:
    found = reading_of(PAI, arguments="dsw 70B 4 x x x x x x full")
    assert (field_of(found, "model.layers"), field_of(found, "parallelism.tp")) == (80, 4)
    assert (field_of(found, "training.recompute"), found.nodes, field_of(found, "model.vocab")) == ("full", 1, 151936)


def test_without_arguments_each_missing_field_names_them() -> None:
    found = reading_of(PAI)
    assert "--args 'WORDS'" in found.missing["model.layers"]
    assert "$3" in found.missing["parallelism.tp"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{GPT} --optimizer-offload-policy auto", "an optimizer on the CPU"),
        (f"{GPT} --optimizer dist_muon", "another optimizer"),
        (f"{GPT} --retro-add-retriever", "retrieval (RETRO)"),
        (f"{GPT} --img-h 336", "a vision tower"),
        (f"{GPT} --grpo-group-size 8", "reinforcement learning"),
        (f"{GPT} --fp32-residual-connection", "a residual stream in fp32"),
        (
            f"{GPT} --num-experts 8 --expert-model-parallel-size 2 --moe-token-dispatcher-type allgather",
            "tokens sent to all expert ranks",
        ),
        (GPT.replace("pretrain_gpt", "pretrain_bert"), "BERT"),
        (GPT.replace("pretrain_gpt", "pretrain_t5"), "an encoder-decoder"),
        (
            GPT.replace("pretrain_gpt", "pretrain_megatron_starcoder"),
            "a model that the program builds with settings of its own",
        ),
    ],
)
def test_what_changes_the_result_and_is_not_modelled_is_listed(text: str, reason: str) -> None:
    assert reason in [setting.reason for setting in reading_of(text).unmodelled]


def test_a_typing_error_is_listed_with_its_line_and_a_hint() -> None:
    (setting,) = reading_of(f"echo start\n{GPT} \\\n  --tensor-model-paralel-size 8").not_understood
    assert (setting.name, setting.line) == ("--tensor-model-paralel-size", 3)
    assert setting.reason == "did you mean --tensor-model-parallel-size?"


@pytest.mark.parametrize(
    "flag", ["--wandb-project x", "--lr 1e-4", "--seed 1", "--save /a", "--log-interval 9", "--split 1"]
)
def test_flags_without_effect_are_not_mentioned(flag: str) -> None:
    found = reading_of(f"{GPT} --use-mcore-models {flag}")
    assert not (found.warnings())
    assert not (found.unmodelled)
    assert not (found.missing)


def test_a_script_that_fits_several_years_says_which_attention_is_taken() -> None:
    assert "since 2024" in reading_of(GPT).notes[0]
    assert not reading_of(f"{GPT} --attention-backend fused").notes


def test_a_small_effect_is_a_warning() -> None:
    assert "the layer norm after the embedding" in reading_of(f"{GPT} --embed-layernorm").warnings()[0]


def test_experts_of_different_numbers_are_refused_by_name() -> None:
    with pytest.raises(SpecError, match="--num-experts"):
        reading_of(f"{DEEPSPEED} --num-experts 32 64")


def test_a_program_that_does_not_train_is_refused() -> None:
    with pytest.raises(SpecError, match="a training script"):
        reading_of(f"python tools/convert.py {SIZES} {BATCH}")


def test_several_different_runs_are_mentioned() -> None:
    found = reading_of(f"for TP in 1 2 4; do {GPT} --tensor-model-parallel-size $TP; done")
    assert field_of(found, "parallelism.tp") == 1
    assert "3 different training commands" in found.notes[0]


def test_a_file_with_a_model_alone_says_nothing_of_the_training() -> None:
    found = reading_of("MODEL_ARGS=(--num-layers 2 --hidden-size 64 --num-attention-heads 2 --vocab-size 99)")
    assert "training" not in found.request
    assert "no training" in found.notes[0]


def test_an_unknown_tokenizer_says_which_setting_gives_the_vocabulary() -> None:
    found = reading_of(f"python train.py {SIZES} --micro-batch-size 1 --tokenizer-model acme/rocket")
    assert found.missing["model.vocab"] == "--set model.vocab=N (the vocabulary of tokenizer acme/rocket is not known)"


def test_a_vocabulary_is_not_guessed_from_a_file_name() -> None:
    text = f"python train.py {SIZES} --micro-batch-size 1 --tokenizer-model /data/tokenizer.model"
    found = reading_of(text, "jobs/pretrain_llama2.sh")
    assert field_of(found, "model.vocab") is None
    assert "/data/tokenizer.model is not known" in found.missing["model.vocab"]
