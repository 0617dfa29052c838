"""What a DeepSpeed configuration becomes."""

import json
from pathlib import Path
from typing import Any

import pytest

from charllm.spec.readers import read_foreign
from charllm.spec.readers.deepspeed import read_deepspeed
from charllm.spec.readers.reading import Reading

CONFIG: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 8,
    "zero_optimization": {"stage": 2, "overlap_comm": True, "reduce_bucket_size": 5e8},
    "bf16": {"enabled": True},
    "gradient_clipping": 1.0,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
}


def reading_of(**changes: Any) -> Reading:
    return read_deepspeed({**CONFIG, **changes}, "ds.json")


def test_a_configuration_gives_batch_precision_and_sharding() -> None:
    found = reading_of()
    assert found.request["training"] == {
        "micro_batch_size": 4,
        "precision": "bf16",
        "clip_gradients": True,
        "optimizer": "adam",
    }
    assert found.request["parallelism"] == {"zero": 2, "overlap": ["dp"]}
    assert found.microbatches == 8
    assert not found.unmodelled


def test_the_model_has_to_be_named() -> None:
    assert "--model NAME" in reading_of().missing["model"]


def test_zero_plus_plus_keeps_a_second_copy() -> None:
    found = reading_of(zero_optimization={"stage": 3, "zero_hpz_partition_size": 8})
    assert found.request["parallelism"] == {"zero": 3, "regather_size": 8, "overlap": ["dp"]}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}}, "weights on the CPU"),
        ({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}}}, "an optimizer on a disk"),
        ({"optimizer": {"type": "OneBitAdam"}}, "another optimizer"),
        ({"sparse_attention": {"mode": "fixed"}}, "sparse attention"),
    ],
)
def test_what_is_not_modelled_is_listed(changes: dict[str, Any], reason: str) -> None:
    assert [setting.reason for setting in reading_of(**changes).unmodelled] == [reason]


@pytest.mark.parametrize(
    "changes",
    [
        {"zero_optimization": {"stage": 3, "offload_param": {"device": "none"}}},
        {"curriculum_learning": {"enabled": False}},
        {"wall_clock_breakdown": True},
    ],
)
def test_what_is_off_or_without_effect_is_not_mentioned(changes: dict[str, Any]) -> None:
    found = reading_of(**changes)
    assert not (found.unmodelled)
    assert not (found.warnings())


def test_offloading_gives_the_shares_of_the_host() -> None:
    found = reading_of(zero_optimization={"stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 0.5}})
    assert found.request["training"]["optimizer_offload_fraction"] == 0.5
    found = reading_of(activation_checkpointing={"cpu_checkpointing": True})
    assert found.request["training"]["activation_offload_fraction"] == 1.0


def test_an_unknown_key_is_listed() -> None:
    assert reading_of(turbo=1).warnings() == ["not understood and not used: turbo: 1"]


def test_the_file_is_told_from_a_model_by_its_keys(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG), encoding="utf-8")
    assert read_foreign(str(path)).request["framework"] == "deepspeed"


@pytest.mark.parametrize(
    ("table", "asked"),
    [
        ({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}},
         {"training.micro_batch_size", "training.global_batch_size", "training.precision"}),
        ({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": "auto"}, {"training.global_batch_size"}),
        ({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, "train_batch_size": "auto"}, set()),
        ({"train_batch_size": 8, "zero_optimization": {"stage": "auto"}}, {"parallelism.zero"}),
    ],
)  # fmt: skip
def test_auto_is_asked_for(table: dict[str, Any], asked: set[str]) -> None:
    reading = read_deepspeed(table, "ds.json")
    assert set(reading.missing) == {"model", *asked}
