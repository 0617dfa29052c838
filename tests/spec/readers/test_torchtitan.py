"""What a torchtitan job config becomes."""

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from charllm.catalog.foreign import complete_request
from charllm.catalog.resolve import resolve_model, resolve_run
from charllm.errors import SpecError
from charllm.spec.readers.reading import Reading
from charllm.spec.readers.torchtitan import read_torchtitan
from charllm.spec.readers.torchtitan.flavors import DEBUG, FLAVORS, find_flavor
from charllm.spec.readers.torchtitan.stages import spread_layers
from charllm.workload.parameters import count_parameters

JOB = """
[job]
dump_folder = "./outputs"
[model]
name = "llama3"
flavor = "8B"
[optimizer]
name = "AdamW"
lr = 3e-4
[training]
local_batch_size = 2
seq_len = 8192
max_norm = 1.0
[parallelism]
tensor_parallel_degree = 4
[activation_checkpoint]
mode = "selective"
selective_ac_option = "op"
[compile]
enable = true
"""


def reading_of(text: str) -> Reading:
    return read_torchtitan(text, "job.toml")


def changed(old: str, new: str) -> Reading:
    assert old in JOB
    return reading_of(JOB.replace(old, new))


def test_a_job_says_everything_but_the_number_of_gpus() -> None:
    reading = reading_of(JOB)
    assert reading.request["model"]["layers"] == 32
    assert reading.request["parallelism"] == {
        "tp": 4, "pp": 1, "cp": 1, "ep": 1, "sp": True, "overlap": ["dp"], "zero": 3,
    }  # fmt: skip
    assert reading.request["training"]["micro_batch_size"] == 2
    assert (reading.nodes, reading.microbatches) == (None, 1)
    assert (reading.not_understood, reading.unmodelled, reading.small) == ((), (), ())


@pytest.mark.parametrize(
    ("name", "flavor", "billions"),
    [
        ("llama2", "7B", 6.74),
        ("llama2", "70B", 68.98),
        ("llama3", "8B", 8.03),
        ("llama3", "405B", 405.85),
        ("llama4", "17bx16e", 107.8),
        ("llama4", "17bx128e", 400.7),
        ("deepseek_v3", "16B", 15.7),
        ("deepseek_v3", "236B", 235.7),
        ("deepseek_v3", "671B", 671.0),
        ("qwen3", "0.6B", 0.596),
        ("qwen3", "32B", 32.76),
        ("qwen3", "235B-A22B", 235.1),
        ("gpt_oss", "120b", 116.8),
    ],
)
def test_a_flavor_has_the_published_size(name: str, flavor: str, billions: float) -> None:
    assert count_parameters(resolve_model(find_flavor(name, flavor))) / 1e9 == pytest.approx(billions, rel=0.002)


@pytest.mark.parametrize("name", FLAVORS)
def test_every_flavor_is_a_model(name: str) -> None:
    assert set(DEBUG) == set(FLAVORS)
    for flavor in (*FLAVORS[name], "debugmodel", f"{next(iter(FLAVORS[name]))}_flex"):
        assert resolve_model(find_flavor(name, flavor)).layers > 1


def test_a_flavor_without_rotation_everywhere_attends_in_chunks() -> None:
    assert (find_flavor("llama4", "17bx16e_irope") or {})["window_kind"] == "chunked"


@pytest.mark.parametrize(
    ("old", "new", "part", "expected"),
    [
        ("local_batch_size = 2", "batch_size = 3", "training", {"micro_batch_size": 3}),
        ("local_batch_size = 2", "global_batch_size = 64", "training", {"global_batch_size": 64}),
        ("seq_len = 8192", "", "training", {"seq_length": 2048}),
        ("max_norm = 1.0", "max_norm = 0", "training", {"clip_gradients": False}),
        ('mode = "selective"', 'mode = "full"', "training", {"recompute": "full"}),
        ('mode = "selective"', 'mode = "none"', "training", {"recompute": "none"}),
        ('option = "op"', 'option = "2"', "training", {"recompute": "full", "recompute_layers": 16}),
        ('flavor = "8B"', 'flavor = "8B"\nconverters = ["float8"]', "training", {"precision": "fp8"}),
        ('flavor = "8B"', 'flavor = "8B"\nconverters = ["mx"]', "training", {"precision": "mxfp8"}),
        ("[compile]", '[float8]\nrecipe_name = "rowwise"\n[compile]', "framework",
         {"base": "torchtitan", "fp8_scaling": "row"}),
        ("[parallelism]", '[parallelism]\nexpert_parallel_comm_backend = "standard"', "parallelism", {"tp": 4}),
        ("[parallelism]", '[parallelism]\nexpert_parallel_comm_backend = "deepep"', "framework",
         {"base": "torchtitan", "dispatcher": "deepep", "fused_permute": True}),
        ("[compile]", "[float8]\nenable_float8_linear = true\n[compile]", "training", {"precision": "fp8"}),
        ("seq_len = 8192", 'fp8_linear = "dynamic"', "training", {"precision": "fp8"}),
        ("[parallelism]", "[experimental]", "parallelism", {"tp": 4}),
        ("tensor_", "enable_async_tensor_parallel = true\ntensor_", "parallelism", {"overlap": ["tp", "dp"]}),
        ("[parallelism]", "[parallelism]\ndata_parallel_shard_degree = 8", "parallelism", {"dp": 8, "zero": 3}),
        ("[parallelism]", "[parallelism]\ndata_parallel_shard_degree = 1", "parallelism", {"zero": 0}),
        ("[parallelism]", '[parallelism]\nfsdp_reshard_after_forward = "never"', "parallelism", {"zero": 2}),
        ("[parallelism]", "[parallelism]\ncontext_parallel_degree = 2", "parallelism", {"cp": 2}),
        (
            "[parallelism]",
            "[parallelism]\ndata_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 8",
            "parallelism",
            {"dp": 16, "shard_size": 8},
        ),
    ],
)  # fmt: skip
def test_a_setting_means_what_torchtitan_makes_of_it(old: str, new: str, part: str, expected: dict[str, Any]) -> None:
    table = changed(old, new).request[part]
    assert {key: table.get(key) for key in expected} == expected


def test_a_pipeline_counts_embedding_and_head_as_layers() -> None:
    reading = changed("[parallelism]", "[parallelism]\npipeline_parallel_degree = 4")
    parallelism = reading.request["parallelism"]
    assert parallelism["layers_per_stage"] == [8, 9, 8, 7]
    assert (parallelism["schedule"], parallelism["zero"]) == ("1f1b", 2)
    assert (reading.request["training"]["micro_batch_size"], reading.microbatches) == (1, 2)


def test_an_interleaved_pipeline_has_two_stages_for_each_rank() -> None:
    schedule = '[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = "Interleaved1F1B"'
    parallelism = changed("[parallelism]", schedule).request["parallelism"]
    assert (parallelism["schedule"], parallelism["vpp"]) == ("interleaved", 2)
    assert sum(parallelism["layers_per_stage"]) == 32


def test_split_points_begin_stages() -> None:
    points = '[experimental]\npipeline_parallel_degree = 2\npipeline_parallel_split_points = ["layers.10"]'
    assert changed("[parallelism]", points).request["parallelism"]["layers_per_stage"] == [10, 22]


def test_copies_share_the_ranks_of_the_cluster() -> None:
    reading = changed("[parallelism]", "[parallelism]\ndata_parallel_replicate_degree = 2")
    assert (reading.missing, reading.copies) == ({}, 2)
    # 16 GPUs, cut four ways: two copies on four replicas.
    run = resolve_run(complete_request(reading, {**reading.request, "cluster": "h100x16"}))
    assert (run.parallelism.dp, run.parallelism.shard_size) == (4, 2)
    with pytest.raises(SpecError, match=r"shard_size.*2 copies on 4 GPUs"):
        complete_request(reading, {**reading.request, "cluster": "h100x4"})


def test_a_flavor_that_is_not_known_leaves_the_model_to_be_named() -> None:
    reading = changed('flavor = "8B"', 'flavor = "9B"')
    assert "flavor 9B of llama3" in reading.missing["model"]
    run = resolve_run(complete_request(reading, {**reading.request, "model": "llama3-8b", "cluster": "h100x8"}))
    assert (run.model.name, run.parallelism.tp) == ("llama3-8b", 4)


def test_weights_in_16_bits_have_gradients_and_moments_in_16_bits() -> None:
    reading = changed("[training]", '[training]\ndtype = "bfloat16"\nmixed_precision_reduce = "bfloat16"')
    framework = reading.request["framework"]
    assert {framework[f"{part}_precision"] for part in ("weight", "gradient", "moment")} == {"16bit"}
    assert reading.request["training"]["reduce_precision"] == "bf16"


def test_float8_gathers_and_filters_are_read() -> None:
    text = JOB.replace("[model]", '[model]\nconverters = ["float8"]')
    assert 'converters = ["float8"]' in text
    tables = '\n[float8]\nenable_fsdp_float8_all_gather = true\nfilter_fqns = ["output", "attention.wk"]\n'
    reading = reading_of(text + tables)
    assert (reading.request["training"]["precision"], reading.request["training"]["narrow_weights"]) == ("fp8", True)
    assert any("attention.wk" in setting.text for setting in reading.small)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("seq_len = 8192", "enable_cpu_offload = true", "CPU"),
        ("lr = 3e-4", "early_step_in_backward = true", "inside backward"),
    ],
)
def test_what_is_not_modelled_is_named_with_its_line(old: str, new: str, reason: str) -> None:
    (setting,) = changed(old, new).unmodelled
    assert reason in setting.reason
    assert setting.line == 1 + JOB.replace(old, new).splitlines().index(new)


def test_a_typo_is_listed_with_its_line() -> None:
    (setting,) = changed("tensor_parallel_degree", "tensor_paralel_degree").unmodelled
    assert (setting.name, setting.line) == ("parallelism.tensor_paralel_degree", 15)


def test_a_model_that_is_not_compiled_is_a_small_difference() -> None:
    (setting,) = changed("enable = true", "enable = false").small
    assert setting.name == "compile.enable"


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ('name = "llama3"', 'name = "flux"', "model.name"),
        ('mode = "selective"', 'mode = "memory_budget"', "activation_checkpoint.mode"),
        ('name = "AdamW"', 'name = "Muon"', "optimizer.name"),
        ("degree = 4", "degree = 0", "tensor_parallel_degree"),
        ("[training]", "[training", "valid TOML"),
        ('flavor = "8B"', "", "job config"),
    ],
)
def test_what_cannot_be_read_names_its_key(old: str, new: str, match: str) -> None:
    with pytest.raises(SpecError, match=match):
        changed(old, new)


def test_layers_are_all_placed() -> None:
    for layers in (7, 32, 61, 126):
        for stages in (1, 2, 4, 7):
            assert sum(spread_layers(layers, stages, 1, 1)) == layers
    with pytest.raises(SpecError):
        spread_layers(2, 40, 1, 1)


KEYS = sorted({line.split(" = ")[0] for line in JOB.splitlines() if " = " in line})
VALUES = st.sampled_from(["true", "-1", "0", "3", '"op"', '"llama3"', "[]", "[1]", "{a = 1}", "1e400", '""', "8192"])


@settings(deadline=None, max_examples=200)
@given(pairs=st.lists(st.tuples(st.sampled_from(KEYS), VALUES), max_size=4), text=st.text(max_size=30))
def test_any_toml_gives_a_request_or_a_spec_error_at_once(pairs: list[tuple[str, str]], text: str) -> None:
    start = time.process_time()
    lines = JOB.splitlines()
    for key, value in pairs:
        lines = [f"{key} = {value}" if line.startswith(f"{key} = ") else line for line in lines]
    for content in ("\n".join(lines), text, JOB + text):
        try:
            reading = reading_of(content)
            assert "model" in reading.missing or reading.request["model"]["layers"] > 0
        except SpecError:
            continue
    assert time.process_time() - start < 1
