import json
from pathlib import Path
from typing import Any

import pytest

from charllm.catalog.resolve import resolve_cluster, resolve_model, resolve_run
from charllm.errors import SpecError
from charllm.result.provenance import figure_sources

REQUEST: dict[str, Any] = {"model": "llama3-8b", "cluster": "charllm-ppt-h200"}


def test_defaults_are_those_of_the_contract() -> None:
    run = resolve_run({**REQUEST, "parallelism": {"tp": 4}})
    degrees = run.parallelism
    assert run.framework.name == "megatron"
    assert (degrees.dp, degrees.sp, degrees.zero, degrees.schedule, degrees.overlap) == (8, True, 1, "1f1b", ())
    assert (run.training.precision, run.training.recompute, run.training.routing_skew) == ("bf16", "none", None)
    assert run.training.seq_length == run.model.seq_length
    assert (run.cluster.cooling.inlet_c, run.conditions.silicon_spread_fraction) == (25.0, 0.0)


def test_without_tensor_or_data_parallelism_nothing_is_shared() -> None:
    run = resolve_run({**REQUEST, "cluster": "h200x1"})
    assert (run.parallelism.sp, run.parallelism.zero, run.parallelism.dp) == (False, 0, 1)


def test_a_batch_left_open_is_128_in_whole_microbatches() -> None:
    assert resolve_run({**REQUEST, "training": {"micro_batch_size": 3}}).training.global_batch_size == 192


def test_chunks_mean_the_interleaved_schedule() -> None:
    assert resolve_run({**REQUEST, "parallelism": {"pp": 4, "vpp": 2}}).parallelism.schedule == "interleaved"


def test_fsdp_shards_everything_by_default() -> None:
    assert resolve_run({**REQUEST, "framework": "fsdp"}).parallelism.zero == 3


def test_a_cluster_can_be_scaled_and_changed_deeply() -> None:
    cluster = resolve_cluster({"base": "charllm-ppt-h200", "nodes": 2048, "node": {"gpu": {"memory_gib": 192}}})
    assert cluster.gpus == 16384
    assert cluster.gpu.memory_bytes == 192 * 2**30
    assert cluster.gpu.name == "h200"


def test_a_model_file_is_a_model(tmp_path: Path) -> None:
    file = tmp_path / "tiny.toml"
    file.write_text("layers = 2\nhidden = 64\nffn = 128\nheads = 4\nvocab = 0\nexperts = 8\ntopk = 2\n")
    model = resolve_model(str(file))
    assert (model.name, model.kv_heads, model.head_dim, model.expert_ffn) == ("tiny", 4, 16, 128)


def test_a_model_file_may_build_on_the_catalog(tmp_path: Path) -> None:
    file = tmp_path / "cut.toml"
    file.write_text('base = "llama3-70b"\nlayers = 4\n')
    assert resolve_model(str(file)).layers == 4
    assert resolve_model(str(file)).hidden == 8192


def test_a_hugging_face_config_is_a_model(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    config = {
        "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 512,
    }  # fmt: skip
    file.write_text(json.dumps(config))
    assert resolve_model(str(file)).kv_heads == 2


def test_a_placement_file_is_read_into_the_run(tmp_path: Path) -> None:
    file = tmp_path / "place.json"
    file.write_text(json.dumps(list(range(31, -1, -1))))
    run = resolve_run({**REQUEST, "conditions": {"placement": str(file)}})
    assert run.conditions.gpu_of_rank[0] == 31
    assert resolve_run(run.as_table()) == run


@pytest.mark.parametrize("text", ["[0, 1]", "[" + "0," * 31 + "0]", '{"a": 1}', "[0", '"0"'])
def test_a_placement_must_name_every_gpu_once(tmp_path: Path, text: str) -> None:
    file = tmp_path / "place.json"
    file.write_text(text)
    with pytest.raises(SpecError, match="conditions"):
        resolve_run({**REQUEST, "conditions": {"placement": str(file)}})


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({"cluster": "charllm-ppt-h200"}, "model"),
        ({"model": "llama3-8b"}, "cluster"),
        ({**REQUEST, "colour": "red"}, "colour"),
        ({**REQUEST, "training": 3}, "training"),
        ({**REQUEST, "model": 3}, "model"),
        ({**REQUEST, "model": {"base": "nothing"}}, "model"),
        ({**REQUEST, "model": "./missing.toml"}, "model"),
        ({**REQUEST, "cluster": {"base": "charllm-ppt-h200", "cooling": 3}}, "cluster.cooling"),
        ({**REQUEST, "cluster": {"base": "charllm-ppt-h200", "fabric": "string-and-cans"}}, "cluster.fabric"),
        ({**REQUEST, "conditions": {"placement": "rows"}}, "conditions.placement"),
        ({**REQUEST, "parallelism": {"tp": "x"}}, "parallelism.tp"),
    ],
)
def test_wrong_requests_name_the_field(request_: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as caught:
        resolve_run(request_)
    assert caught.value.field == field


def test_kernel_constants_that_a_gpu_lacks_are_the_h200s_and_are_called_assumed() -> None:
    run = resolve_run({**REQUEST, "cluster": "a100x8"})
    measured, own = resolve_cluster("h200x1").gpu.kernels, run.cluster.gpu.kernels
    assert own.ramp == measured.ramp
    assert own.attention_fraction != measured.attention_fraction
    sources = figure_sources(run)
    assert sources["cluster.node.gpu.kernels.ramp"] == "assumed: as on an H200"
    assert sources["cluster.node.gpu.kernels.attention_fraction"].startswith("published: ")
