"""Where each setting of a run comes from."""

from pathlib import Path

from charllm.api.explain import explain_settings

SCRIPT = """torchrun --nproc_per_node 8 pretrain_gpt.py \\
  --num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 128 \\
  --micro-batch-size 1 --global-batch-size 16 --bf16 --use-mcore-models --vocab-size 512 \\
  --tensor-model-parallel-size 1 --swiglu --use-flash-attn
"""


def sources(file: Path, **words: object) -> dict[str, str]:
    return {
        row["setting"]: row["from"] for row in explain_settings(None, {"from_": file, "cluster": "h100x8", **words})
    }


def test_a_setting_of_a_script_is_traced_to_its_line_even_where_it_repeats_the_default(tmp_path: Path) -> None:
    file = tmp_path / "train.sh"
    file.write_text(SCRIPT, encoding="utf-8")
    found = sources(file, tp=2)
    assert found["model.layers"] == "train.sh line 2: --num-layers 4"
    assert found["training.precision"] == "train.sh line 3: --bf16"
    assert found["training.micro_batch_size"] == "train.sh line 3: --micro-batch-size 1"
    assert found["parallelism.tp"] == "your flags or spec"
    assert found["training.optimizer"].startswith("no one line of train.sh")
    assert found["model.head_dim"] == "follows from the others"


def test_settings_of_a_yaml_of_the_profile_and_of_the_catalog_are_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "sft.yaml"
    file.write_text(
        "base_model: Qwen/Qwen3-8B\ndatasets: []\nsequence_len: 4096\nmicro_batch_size: 2\nbf16: true\n"
        "optimizer: adamw_torch\ngradient_accumulation_steps: 4\n",
        encoding="utf-8",
    )
    found = sources(file)
    assert found["training.seq_length"] == "sft.yaml line 3: sequence_len: 4096"
    assert found["training.global_batch_size"] == "sft.yaml line 7: gradient_accumulation_steps: 4"
    assert found["model.layers"] == "catalog: qwen3-8b"
    profile = {
        row["setting"]: row["from"]
        for row in explain_settings(
            None, {"model": "llama3-8b", "cluster": "h100x8", "framework": "nemo", "tp": 2, "pp": 2}
        )
    }
    assert profile["parallelism.overlap"] == profile["parallelism.vpp"] == "profile nemo"
