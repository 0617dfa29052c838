from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.evaluate.published import Unresolved, read_row

ROW: dict[str, str] = {
    "id": "X-001", "gpu": "H100-SXM5-80GB", "n_gpus": "64", "gpus_per_node": "8",
    "interconnect": "EOS: 8x400 Gb/s IB per node", "framework": "NeMo 24.09", "model": "LLAMA3_70B",
    "layers": "80", "hidden": "8192", "ffn": "28672", "heads": "64", "kv_heads": "8", "vocab": "128256",
    "seq": "8192", "gbs": "128", "mbs": "1", "precision": "fp8", "tp": "4", "pp": "4", "vpp": "5", "cp": "2",
    "ep": "", "dp": "2", "fsdp_or_zero": "distributed optimizer", "sp": "yes", "recompute": "",
    "overlap": "TP comm overlap (userbuffers)", "notes": "tp 999", "iter_time_s": "3.2",
}  # fmt: skip


def run(**changes: str) -> Any:
    return resolve_run(read_row({**ROW, **changes}))


def test_a_full_row_becomes_a_run() -> None:
    spec = run()
    degrees = spec.parallelism
    assert (spec.model.name, spec.cluster.gpu.name, spec.framework.name) == ("llama3-70b", "h100", "nemo")
    assert (degrees.tp, degrees.pp, degrees.vpp, degrees.cp, degrees.dp, degrees.zero) == (4, 4, 5, 2, 2, 1)
    assert (set(degrees.overlap), spec.training.precision) == ({"tp", "dp", "pp"}, "fp8")
    assert (spec.cluster.nodes, spec.cluster.fabric.nics_per_node) == (8, 8)


def test_dimensions_override_the_catalog() -> None:
    assert run(layers="40").model.layers == 40
    sparse = run(
        model="Qwen3_30B_a3B", layers="48", hidden="2048", ffn="512", heads="32", kv_heads="4", vocab="", vpp=""
    )
    assert (sparse.model.expert_ffn, sparse.model.head_dim) == (512, 128)


def test_measured_columns_and_notes_change_nothing() -> None:
    assert run(iter_time_s="", memory_gb="1", notes="x") == run()


def test_layers_that_do_not_divide_are_split_as_engines_do() -> None:
    assert run(layers="78", vpp="", framework="Megatron-LM").parallelism.layers_per_stage == (19, 20, 20, 19)
    assert run(layers="79", vpp="", framework="Megatron-LM").parallelism.layers_per_stage == (20, 20, 20, 19)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none in yaml", ("none", None, ())),
        ("full (gradient_checkpointing)", ("full", None, ())),
        ("full (20 of 80 layers)", ("full", 1, ())),
        ("selective: layernorm moe_act", ("selective", None, ("layernorm", "moe_act"))),
        ("selective AC", ("selective", None, ())),
    ],
)
def test_recomputation_is_read_from_words(text: str, expected: tuple[Any, ...]) -> None:
    training = run(recompute=text).training
    assert (training.recompute, training.recompute_layers, training.recompute_modules) == expected


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("gpu", "TPU v5", "gpu: got 'TPU v5'; expected a GPU of the catalog"),
        ("gpu", "", "gpu: blank"),
        ("fsdp_or_zero", "ZeRO-9", "fsdp_or_zero: got 'ZeRO-9'; expected words"),
        ("interconnect", "carrier pigeons", "interconnect: got 'carrier pigeons'; expected adapters and rates"),
        ("layers", "", "layers: blank; expected a whole number"),
        ("layers", "eighty", "layers: got 'eighty'; expected a number"),
        ("hidden", "999999999999", "hidden: got '999999999999'; expected a number from 0 to"),
        ("capacity", "lots", "capacity: got 'lots'; expected a number"),
        ("tp", "-4", "tp: got '-4'; expected a number"),
        ("mbs", "1.5", "mbs: got '1.5'; expected a whole number"),
        ("seq", "", "seq: blank"),
        ("n_gpus", "63", "n_gpus: got '63'; expected a multiple"),
        ("graphs", "some", "graphs: got 'some'; expected one of none, partial, full"),
        ("dispatcher", "pigeon", "dispatcher: got 'pigeon'; expected one of alltoall, deepep, hybridep"),
        ("recompute", "perhaps", "recompute: got 'perhaps'; expected none, selective"),
    ],
)
def test_what_does_not_resolve_is_a_reason(column: str, value: str, reason: str) -> None:
    with pytest.raises(Unresolved, match=reason.replace("(", r"\(")):
        read_row({**ROW, column: value})


def test_lora_is_read_from_the_models_name() -> None:
    assert run(model="Llama2-70B LoRA", vocab="32000", vpp="").training.lora_rank == 16


def test_the_newer_rack_has_the_faster_nics() -> None:
    racks = {gpu: run(gpu=gpu, gpus_per_node="4", interconnect="NVL72 NVLink5 domain") for gpu in ("GB200", "GB300")}
    bandwidth = {gpu: spec.cluster.fabric.nic_bandwidth_bytes_per_s for gpu, spec in racks.items()}
    assert bandwidth["GB300"] == 2 * bandwidth["GB200"]
    assert racks["GB200"].cluster.domain_nodes == 16


def test_graphs_are_of_a_whole_step_or_of_all_but_the_experts() -> None:
    whole, some, none = (
        run(overlap=text).framework for text in ("full-iteration CUDA graphs", "TE CUDA graphs moe_router", "")
    )
    assert (whole.graphs, some.graphs, none.graphs) == ("full", "partial", "none")


def test_layers_that_are_not_printed_follow_from_the_weights() -> None:
    model = run(model="BLOOM", layers="", hidden="4096", ffn="16384", heads="32", kv_heads="32", vocab="32000",
                params_b="6.6", vpp="").model  # fmt: skip
    assert model.layers == 32
    with pytest.raises(Unresolved, match="layers: blank"):
        run(layers="")


def test_a_batch_that_is_not_printed_is_of_many_microbatches() -> None:
    assert run(gbs="", vpp="").training.global_batch_size == 2 * 16
    with pytest.raises(Unresolved, match="gbs: blank"):
        run(gbs="", mbs="")


def test_a_source_may_add_up_profiled_layers() -> None:
    source = "VIA-Research/vTrain data/ground_truth_single.csv (MICRO 2024)"
    assert run(source=source).framework.composed
    assert run(source=source, recompute="full").training.recompute == "none"
    assert not run(source="NVIDIA").framework.composed


def test_a_column_that_the_table_filled_in_for_a_source_is_blank() -> None:
    small = {"model": "GPT", "hidden": "2048", "heads": "16", "kv_heads": "16", "layers": "20", "vocab": "51200"}
    assert run(**small).model.vocab == 51200
    assert run(**small, source="VIA-Research/vTrain").model.vocab == 50257


def test_experts_are_spread_over_all_ranks_where_only_their_dispatcher_is_named() -> None:
    sparse = {
        "model": "Qwen3_30B_a3B", "layers": "48", "hidden": "2048", "ffn": "768", "heads": "32", "kv_heads": "4",
        "vocab": "", "experts": "128", "topk": "8", "tp": "1", "pp": "1", "cp": "1", "vpp": "", "dp": "", "sp": "",
    }  # fmt: skip
    assert run(**sparse, framework="NeMo AutoModel (PyTorch FSDP2), TE + DeepEP").parallelism.ep == 64
    assert run(**sparse, framework="NeMo AutoModel (PyTorch FSDP2), TE").parallelism.ep == 1


SPARSE = {
    "model": "Qwen3_30B_a3B", "layers": "48", "hidden": "2048", "ffn": "768", "heads": "32", "kv_heads": "4",
    "vocab": "", "experts": "128", "topk": "8", "tp": "1", "pp": "1", "cp": "1", "vpp": "", "dp": "", "sp": "",
    "ep": "8", "n_gpus": "8", "gpus_per_node": "", "interconnect": "", "overlap": "",
}  # fmt: skip


@pytest.mark.parametrize(
    ("release", "gpu", "precision", "overlap", "expected"),
    [
        ("26.06", "GB300", "mxfp8", "", ("full", True)),
        ("26.06", "GB300", "mxfp8", "CUDA graphs", ("full", True)),
        ("26.06", "GB300", "mxfp8", "TE CUDA graphs moe_router", ("partial", False)),
        ("26.06", "GB300", "mxfp8", "EP comm overlap", ("none", False)),
        ("26.06", "B300", "mxfp8", "", ("full", True)),
        ("26.08", "GB200", "bf16", "", ("partial", False)),
        ("26.04.01", "GB300", "mxfp8", "", ("partial", False)),
        ("26.04.01", "H100-SXM5-80GB", "fp8", "", ("none", False)),
        ("25.11", "GB300", "mxfp8", "", ("partial", False)),
        ("25.09", "B200", "fp8", "", ("full", False)),
        ("25.11", "H100-SXM5-80GB", "fp8", "", ("none", False)),
    ],
)
def test_recipes_of_a_release_say_what_is_captured_where_a_row_does_not(
    release: str, gpu: str, precision: str, overlap: str, expected: tuple[str, bool]
) -> None:
    changes = {**SPARSE, "gpu": gpu, "precision": precision, "overlap": overlap}
    framework = run(**changes, framework=f"Megatron-Bridge {release}").framework
    assert (framework.graphs, framework.fused_experts) == expected


@pytest.mark.parametrize(
    ("release", "gpu", "pp", "expected"),
    [
        ("25.11", "B200", "1", "alltoall"),
        ("26.04", "B200", "1", "hybridep"),
        ("26.04", "B200", "8", "alltoall"),
        ("26.04", "GB200", "8", "hybridep"),
        ("26.04", "H100-SXM5-80GB", "1", "hybridep"),
        ("26.04", "H100-SXM5-80GB", "8", "alltoall"),
    ],
)
def test_recipes_choose_the_dispatcher_by_release_gpu_and_stages(
    release: str, gpu: str, pp: str, expected: str
) -> None:
    changes = {**SPARSE, "gpu": gpu, "pp": pp, "n_gpus": "64", "gpus_per_node": "8", "precision": "bf16"}
    assert run(**changes, framework=f"Megatron-Bridge {release}").framework.dispatcher == expected


def test_recipes_of_sparse_models_leave_dense_ones_alone() -> None:
    dense = {"gpu": "GB300", "gpus_per_node": "", "interconnect": "", "precision": "mxfp8"}
    assert run(**dense, framework="Megatron-Bridge 26.06", overlap="").framework.graphs != "full"


def test_dispatchers_and_steps_of_a_ladder_are_read_from_words() -> None:
    def software(overlap: str, **columns: str) -> tuple[str, bool, str]:
        asked = {**SPARSE, "overlap": overlap, "precision": "bf16", **columns}
        found = run(**asked, framework="Primus (Megatron)").framework
        return found.dispatcher, found.sparse_sync, found.cross_entropy

    assert software("MBS12-Baseline") == ("alltoall", True, "vocab-parallel")
    assert software("Pre+LossFusion") == ("alltoall", True, "fused")
    assert software("Pre+LossFusion", dispatcher="deepep") == ("alltoall", True, "fused")
    assert software("Pre+DeepEP") == ("deepep", True, "fused")
    assert software("Pre+LaunchOpt") == ("deepep", False, "fused")
    assert software("Pre+VPP5") == ("deepep", True, "fused")
    assert software("alltoall dispatcher") == ("alltoall", True, "fused")


def test_dropped_tokens_are_a_capacity() -> None:
    sparse = {**SPARSE, "model": "Qwen3_30B_a3B (tokendrop)", "precision": "bf16"}
    assert run(**sparse).training.capacity_factor == 1.0
    scripts = {**SPARSE, "precision": "bf16", "framework": "Megatron-LM + TE (SimuMax scripts)"}
    assert run(**scripts).training.capacity_factor == 1.0
    assert run(framework="Megatron-LM + TE (SimuMax scripts)").training.capacity_factor is None


@pytest.mark.parametrize(
    ("pp", "vpp", "expected"),
    [("4", "4", (*[4] * 15, 1)), ("8", "4", (1, *[2] * 30, 0)), ("8", "", (*[8] * 7, 5)), ("5", "", (*[13] * 4, 9))],
)
def test_the_last_chunk_is_short_and_then_the_first(pp: str, vpp: str, expected: tuple[int, ...]) -> None:
    assert read_row({**ROW, "layers": "61", "pp": pp, "vpp": vpp})["parallelism"]["layers_per_stage"] == [*expected]


def test_layers_far_fewer_than_chunks_can_hold_are_spread() -> None:
    assert read_row({**ROW, "layers": "9", "pp": "8", "vpp": ""})["parallelism"]["layers_per_stage"] == [2, *[1] * 7]


BARE = dict.fromkeys(("layers", "hidden", "ffn", "heads", "kv_heads", "vocab"), "")
HYBRID = {**BARE, "model": "Nemotron_3_Nano", "tp": "1", "pp": "1", "vpp": "", "cp": "1", "ep": "8", "dp": "64"}
HYBRID |= {"framework": "Megatron-Bridge 26.04", "overlap": "", "sp": ""}


def test_a_row_without_dimensions_has_those_of_the_catalog() -> None:
    model = run(**HYBRID).model
    assert (model.layers, model.experts, model.pattern.count("M")) == (52, 128, 23)
    assert run(**BARE, model="LLAMA3_70B").model == run().model


def test_recipes_of_hybrids_capture_parts_and_recompute_experts_on_small_gpus() -> None:
    small, large = run(**HYBRID), run(**{**HYBRID, "gpu": "GB200", "precision": "mxfp8", "gpus_per_node": "4"})
    assert small.framework.graphs == "partial"
    assert small.training.recompute_modules == ("moe", "layernorm", "core_attn", "moe_act")
    assert large.framework.graphs == "partial"
    assert large.training.recompute == "none"


def test_what_a_row_says_of_recomputation_comes_before_its_recipe() -> None:
    assert run(**{**HYBRID, "recompute": "none"}).training.recompute == "none"


def test_experts_are_spread_where_no_degree_is_printed() -> None:
    blank = dict.fromkeys(("tp", "pp", "cp", "ep", "dp"), "")
    assert run(**{**HYBRID, **blank, "n_gpus": "8"}).parallelism.ep == 8
    assert run(**blank, vpp="", gbs="512").parallelism.ep == 1


def test_recipes_of_hybrids_in_four_bits_keep_their_last_layers_wide() -> None:
    four_bits = {**HYBRID, "gpu": "GB200", "precision": "nvfp4", "gpus_per_node": "4"}
    assert run(**four_bits).training.wide_layers == 8
    assert run(**{**four_bits, "precision": "mxfp8"}).training.wide_layers == 0
