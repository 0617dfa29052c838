"""Spellings that no table at hand has: texts are read by their words and numbers, not looked up."""

from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.catalog.tables import entries
from charllm.errors import CharllmError
from charllm.evaluate.corrections import causal_over_full, corrected_s, corrections, doubtful_reason
from charllm.evaluate.machine_columns import read_fabric, read_gpu
from charllm.evaluate.memory import read_rows
from charllm.evaluate.model_columns import drops_tokens, find_model
from charllm.evaluate.published import Unresolved, read_row
from charllm.evaluate.software_columns import read_release, read_sharding, release_table, said_axes
from charllm.evaluate.spellings import spellings
from charllm.evaluate.time import resolve_row
from charllm.spec.framework import Framework
from charllm.spec.grades import is_untuned
from charllm.units import GIGA

ROW: dict[str, str] = {
    "id": "X-001", "gpu": "H100", "n_gpus": "64", "gpus_per_node": "8", "interconnect": "8x400 Gb/s IB",
    "framework": "Megatron-LM", "model": "Mixtral 8x7B", "layers": "", "hidden": "", "ffn": "", "heads": "",
    "kv_heads": "", "vocab": "", "experts": "", "topk": "", "seq": "4096", "gbs": "256", "mbs": "1",
    "precision": "bf16", "tp": "2", "pp": "4", "vpp": "", "cp": "1", "ep": "8", "dp": "8",
}  # fmt: skip


def run(**changes: str) -> Any:
    return resolve_run(read_row({**ROW, **changes}))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("H100-80GB", "h100"),
        ("H100 SXM5 80GB", "h100"),
        ("NVIDIA H100", "h100"),
        ("nvidia-h100-80gb-hbm3", "h100"),
        ("H100 NVL 94GB", "h100-nvl"),
        ("A100 SXM 40 GB", "a100-40gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("DGX A100", "a100-80gb"),
        ("B200 SXM", "b200"),
        ("GB200 NVL72", "gb200"),
        ("GB300 (Grace Blackwell)", "gb300"),
        ("HGX H800", "h800"),
        ("H20 96GB", "h20"),
        ("H200 141GB", "h200"),
        ("Instinct MI355X OAM", "mi355x"),
        ("MI300X 192GB", "mi300x"),
        ("V100 16GB", "v100-16gb"),
        ("unnamed Hopper-class GPU", "h100"),
    ],
)
def test_gpus_are_found_in_any_text(text: str, name: str) -> None:
    assert read_gpu(text) == name


@pytest.mark.parametrize(
    ("text", "gpu", "nics", "gbit"),
    [
        ("800 Gb/s IB per node", "h100", 2, 400),
        ("4x200G", "a100-80gb", 4, 200),
        ("8x400 Gb/s", "h100", 8, 400),
        ("8 x 400Gbps RoCEv2", "h800", 8, 400),
        ("400 Gb/s per GPU", "b200", 8, 400),
        ("3.2 Tb/s", "h100", 8, 400),
        ("3.2 Tbps/node InfiniBand", "h200", 8, 400),
        ("EFA, 16x400 Gb/s", "b300", 16, 400),
        ("32x100 Gb/s EFA", "h100", 32, 100),
        ("NVLink4 900 GB/s + 8x50 GB/s IB", "h100", 8, 400),
        ("NVSwitch; 8 NICs of 200 Gb/s", "a800", 8, 200),
        ("8x NDR InfiniBand", "h100", 8, 400),
        ("HDR InfiniBand", "a100-80gb", 8, 200),
        ("RoCE", "h800", 8, 400),
        ("8x ConnectX-7", "mi300x", 8, 400),
        ("single 100 Gb/s Ethernet", "h100", 1, 100),
        ("Slingshot-11 200 Gb/s per GPU", "gh200", 8, 200),
        ("NVLink (400 GB/s), network not stated", "h800", 8, 400),
        ("", "h100", 8, 400),
        ("", "b300", 8, 800),
        ("", "v100-32gb", 4, 100),
        ("unknown", "mi250x", 4, 200),
        ("n/a", "h100", 8, 400),
        ("EFA", "h200", 16, 200),
        ("AWS p5.48xlarge", "h100", 32, 100),
        ("p4d instances", "a100-40gb", 4, 100),
        ("Slingshot-11", "mi250x", 4, 200),
        ("Perlmutter", "a100-80gb", 4, 200),
        ("JUPITER: 4x NDR200", "gh200", 4, 200),
        ("10 GbE", "a100-80gb", 1, 10),
        ("25GbE TCP", "v100-32gb", 1, 25),
        ("WireGuard over 400 Mb/s", "v100-32gb", 1, 0.4),
        ("InfiniBand 100 Gb/s each way", "v100-32gb", 4, 100),
        ("Thor2 400G", "mi300x", 8, 400),
        ("GCP A3 Mega", "h100", 8, 200),
    ],
)
def test_interconnects_are_read_by_their_numbers(text: str, gpu: str, nics: int, gbit: float) -> None:
    fabric = resolve_run(
        {"model": "llama3-8b", "cluster": {"base": "h100x8", "nodes": 2, "fabric": read_fabric(text, gpu, 8)},
         "training": {"global_batch_size": 64}}
    ).cluster.fabric  # fmt: skip
    assert fabric.nics_per_node == nics
    assert fabric.nic_bandwidth_bytes_per_s * 8 / GIGA == pytest.approx(gbit)


def test_an_interconnect_of_numbers_is_the_clusters_fabric() -> None:
    fabric = run(interconnect="NVLink4 + 4x200 Gb/s RoCE per node").cluster.fabric
    assert (fabric.nics_per_node, fabric.nic_bandwidth_bytes_per_s) == (4, 200 * GIGA / 8)


def test_a_gpu_that_the_catalog_lacks_is_a_change_to_one_it_has() -> None:
    gpu = run(gpu="NVIDIA H20 96GB").cluster.gpu
    assert (gpu.name, gpu.multiprocessors, gpu.peak_bf16_flop_per_s) == ("h20", 78, 148e12)


def test_a_rack_is_as_large_as_it_says() -> None:
    rack = {"gpu": "GB200", "gpus_per_node": "4"}
    assert run(**rack, interconnect="NVL72").cluster.domain_nodes == 16
    assert run(**rack, interconnect="GB200 NVL36x2, NVL36 domain").cluster.domain_nodes == 9


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("HSDP shard 8", (3, 8, 0)),
        ("HSDP", (3, 8, 0)),
        ("HYBRID_SHARD", (3, 8, 0)),
        ("ZeRO-1", (1, 0, 0)),
        ("zero stage 2", (2, 0, 0)),
        ("FSDP full", (3, 0, 0)),
        ("FSDP2 16-way", (3, 16, 0)),
        ("FSDP 32 x DP 2", (3, 32, 0)),
        ("fully sharded over 64 GPUs", (3, 64, 0)),
        ("zero3 hpz 8", (3, 0, 8)),
        ("dist-optimizer, bf16 states", (1, 0, 0)),
        ("DDP", (0, 0, 0)),
        ("no sharding", (0, 0, 0)),
        ("ZeRO-3 (degree 1)", (0, 0, 0)),
    ],
)
def test_shard_sizes_are_read_from_words(text: str, expected: tuple[int, int, int]) -> None:
    table = read_sharding(text, 8)
    assert (table["zero"], table.get("shard_size", 0), table.get("regather_size", 0)) == expected


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Mixtral_8x22B (token-drop, CF=1)", "mixtral-8x22b"),
        ("Mixtral-8x7B-v0.1 dropless", "mixtral-8x7b"),
        ("DeepSeek V3 w/o MTP", "deepseek-v3"),
        ("DeepSeek-V3 671B", "deepseek-v3"),
        ("Qwen3 235B A22B SFT", "qwen3-235b-a22b"),
        ("qwen3_30b_a3b_l4_tp2_ep8", "qwen3-30b-a3b"),
        ("Kimi-K2-Base", "kimi-k2"),
        ("Kimi K2 (tokendrop)", "kimi-k2"),
        ("Grok-1 314B", "grok-1"),
        ("Grok1 (8 layers)", "grok-1"),
        ("meta-llama/Llama-3.1-70B-Instruct", "llama3-70b"),
        ("Llama-3.3-70B LoRA r=32", "llama3-70b"),
        ("GPT OSS 20B (forced balance)", "gpt-oss-20b"),
        ("Llama2_13B pretrain", "llama2-13b"),
        ("DeepSeek-V3-16B", None),
        ("Qwen3-Next-80B-A3B", "qwen3-next-80b-a3b"),
        ("Qwen9 3B", None),
        ("", None),
    ],
)
def test_models_are_found_beside_words_of_the_run(text: str, name: str | None) -> None:
    assert find_model(text) == name


UNKNOWN = {
    "layers": "20",
    "hidden": "2048",
    "heads": "16",
    "vocab": "100000",
    "ffn": "1024",
    "experts": "64",
    "topk": "6",
}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("DeepSeek-V9-Tiny", {"attention": "mla", "kv_lora_rank": 512, "shared_ffn": 2816, "activation": "swiglu"}),
        ("Qwen3-12B-A2B", {"attention": "gqa", "norm": "rmsnorm", "qk_norm": True, "kv_heads": 4}),
        ("HomemadeMoE", {"attention": "gqa", "norm": "rmsnorm", "position": "rope", "shared_ffn": 0}),
        ("GPT-MoE 10B", {"norm": "layernorm", "activation": "gelu", "shared_ffn": 0}),
    ],
)
def test_an_unknown_model_is_its_columns_and_its_nearest_relative(name: str, expected: dict[str, Any]) -> None:
    model = run(**UNKNOWN, model=name).model
    assert (model.layers, model.hidden, model.experts, model.topk, model.expert_ffn) == (20, 2048, 64, 6, 1024)
    assert model.name == name
    assert {field: getattr(model, field) for field in expected} == expected


@pytest.mark.parametrize(
    ("recipe", "graphs"),
    [("gb200/mxfp8_16GPU_paged_stash", "full"), ("gb200/mxfp8_fullcg", "full"), ("gb200/mxfp8_partial_cg", "partial")],
)
def test_a_recipe_file_is_named_after_its_graphs(recipe: str, graphs: str) -> None:
    said = run(**UNKNOWN, model="HomemadeMoE", framework="Megatron-Core dev", source=f"recipe YAML qwen3/{recipe}.yaml")
    assert said.framework.graphs == graphs


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"heads": "32", "kv_heads": "4"}, {"head_dim": 128, "attention": "gqa"}),
        ({"heads": "32", "kv_heads": "32"}, {"attention": "mla", "kv_lora_rank": 512}),
        ({"heads": "16", "kv_heads": "4"}, {"head_dim": 128, "shared_ffn": 0}),
        # 8.7 billion weights by the columns.
        ({"heads": "16", "kv_heads": "4", "params_b": "8.8"}, {"shared_ffn": 0}),
        ({"heads": "16", "kv_heads": "4", "params_b": "9.7"}, {"shared_ffn": 8448}),
        ({"heads": "16", "kv_heads": "4", "params_b": "97"}, {"shared_ffn": 0}),
    ],
)
def test_what_columns_of_an_unknown_sparse_model_leave_out(columns: dict[str, str], expected: dict[str, Any]) -> None:
    model = run(**{**UNKNOWN, **columns}, model="HomemadeMoE").model
    assert {field: getattr(model, field) for field in expected} == expected


def test_an_unknown_dense_model_has_a_plain_block() -> None:
    dense = {**UNKNOWN, "experts": "", "topk": "", "ffn": "", "ep": ""}
    model = run(**dense, model="OPT-9B").model
    assert (model.ffn, model.activation, model.norm, model.experts) == (8192, "gelu", "layernorm", 0)


def test_an_unknown_model_without_dimensions_is_a_reason() -> None:
    with pytest.raises(Unresolved, match="model: got 'Mamba-9'; expected a name in the catalog, or the columns layers"):
        run(model="Mamba-9")


def test_a_name_says_what_was_run() -> None:
    assert run(model="DeepSeek-V3 w/o MTP", tp="1", pp="1", dp="", ep="8").model.mtp_layers == 0
    assert run(model="DeepSeek-V3 (with 1 MTP layer)", tp="1", pp="1", dp="", ep="8").model.mtp_layers == 1
    assert run(model="Mixtral-8x7B (4 layers)").model.layers == 4
    assert run(model="Llama 3 8B (LoRA r=64)", ep="").training.lora_rank == 64
    assert run(model="Llama 3 8B LoRA", ep="").training.lora_rank == 16


@pytest.mark.parametrize(
    ("text", "drops"),
    [
        ("x (tokendrop)", True),
        ("x token-drop", True),
        ("x (token-dropless)", False),
        ("x dropless", False),
        ("x", None),
    ],
)
def test_dropless_contains_drop(text: str, drops: bool | None) -> None:
    assert drops_tokens(text) is drops


@pytest.mark.parametrize(
    ("text", "profile"),
    [
        ("Megatron-Core dev", "megatron-bridge"),
        ("Megatron-Core v0.16 + TE", "megatron-bridge"),
        ("Megatron-LM core_v0.9", "nemo"),
        ("Megatron-Core 0.7", "megatron"),
        ("Megatron-Bridge 25.09", "megatron-bridge"),
        ("NeMo 25.07", "nemo"),
        ("TorchTitan nightly", "torchtitan"),
        ("MaxText on GPU", "jax"),
        ("PaxML", "jax"),
        ("Primus-Megatron 25.8", "megatron"),
        ("DeepSpeed-Ulysses", "deepspeed"),
        ("HF Transformers Trainer", "pytorch-eager"),
        ("our own engine", "megatron"),
        ("", "megatron"),
    ],
)
def test_frameworks_are_found_by_words_else_megatron(text: str, profile: str) -> None:
    assert release_table(read_release({"framework": text}))["base"] == profile


def test_the_catalog_has_few_profiles_and_releases_are_valid_overrides() -> None:
    assert len(entries("frameworks")) <= 18
    for name, table in spellings()["releases"].items():
        built = resolve_run({"model": "gpt2", "cluster": "h200x1", "framework": {"name": name, **table}}).framework
        assert isinstance(built, Framework)
        assert built.name == name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TP comm overlap", {"tp": True}),
        ("no tp comm overlap", {"tp": False}),
        ("overlap-grad-reduce, no tp comm overlap", {"dp": True, "tp": False}),
        ("EP A2A overlap with 1F1B", {"ep": True}),
        ("EP all-to-all overlap OFF (dispatcher exposed)", {"ep": False}),
        ("A2A_OVERLAP=0", {"ep": False}),
        ("moe a2a overlap=1; delay_wgrad", {"ep": True}),
        ("DualPipe", {"ep": True}),
        ("grad-reduce and param-gather overlap", {"dp": True}),
        ("overlap-grad-reduce; alltoall dispatcher", {"dp": True}),
        ("shared-expert overlap", {}),
        ("not stated", {}),
    ],
)
def test_overlap_is_read_by_axis_and_denial(text: str, expected: dict[str, bool]) -> None:
    assert said_axes(text) == expected


def test_columns_say_how_a_row_was_executed() -> None:
    said = run(etp="1", graphs="partial", dispatcher="hybridep", capacity="1.25", routing="forced")
    assert (said.parallelism.etp, said.framework.graphs, said.framework.dispatcher) == (1, "partial", "hybridep")
    assert (said.training.capacity_factor, said.training.routing) == (1.25, "forced")
    silent = run()
    assert (silent.parallelism.etp, silent.framework.graphs, silent.framework.dispatcher) == (2, "none", "alltoall")
    assert (silent.training.capacity_factor, silent.training.routing) == (None, "forced")


@pytest.mark.parametrize(("framework", "etp"), [("Megatron-LM", 2), ("NeMo 25.02", 2), ("Megatron-Bridge", 1)])
def test_expert_tensor_parallelism_follows_the_profile(framework: str, etp: int) -> None:
    assert run(framework=framework).parallelism.etp == etp


def test_notes_are_never_read() -> None:
    notes = "vocab 51200 assumed; full-iteration CUDA graphs; DeepEP; token-drop; natural routing; mbs 4"
    assert resolve_row({**ROW, "notes": notes}) == resolve_row(ROW)


def test_runs_of_users_are_told_from_those_of_who_makes_gpu_or_software() -> None:
    assert is_untuned(run(source="spyysalo/lumi-llm-scaling meg-ds/README.md"))
    assert not is_untuned(run(source="NVIDIA-NeMo/Megatron-Bridge docs/performance-summary.md"))


def test_hosts_that_forward_messages_of_experts_add_to_each_exchange() -> None:
    efa = {"interconnect": "8x H100 + EFA 32x100 Gb/s per node", "gpu": "H100"}
    assert run(**efa, framework="dispatcher flex/deepep = UCCL-EP over EFA").cluster.fabric.exchange_s == 4e-3
    assert run(**efa, framework="Megatron-Bridge").cluster.fabric.exchange_s is None


def test_clouds_with_untuned_hosts_are_slower() -> None:
    assert run(interconnect="16x400 Gb/s EFA", gpu="B300").cluster.node.host_grade == "usual"
    assert run().cluster.node.host_grade == "not stated"


def test_machines_are_cooled_and_read_as_their_source_says() -> None:
    bath = run(source="mlcommons/training_results_v4.0 smc-dc-power/results/64xSMC-H100-SXM-80GB/gpt3").cluster.cooling
    assert (bath.kind, bath.read_at) == ("immersion", "dc")
    air = run(source="mlcommons/training_results_v4.1 Dell/results/8xXE9680x8H100-SXM-80GB-POWER/llama2_70b_lora")
    assert (air.cluster.cooling.kind, air.cluster.cooling.read_at) == ("air", "wall")
    assert run().cluster.cooling.kind == "air"


def test_times_derived_with_full_attention_are_corrected() -> None:
    spec = run(seq="65536", gbs="64", capacity="1")
    factor = causal_over_full(spec)
    assert 0.5 < factor < 0.9
    assert corrected_s("MPF-001", 10.0, spec) == pytest.approx(10 * factor)
    assert corrected_s("MB-001", 10.0, spec) == 10.0
    # Long sequences are corrected more.
    assert causal_over_full(run()) > factor
    assert all(set(entry) == {"rule", "reason"} for entry in corrections().values())


def test_doubtful_rows_have_a_reason_and_exist() -> None:
    ids = {row["id"] for row in read_rows()}
    assert set(spellings()["doubtful"]) <= ids
    assert doubtful_reason("MLR-004")
    assert doubtful_reason("MB-001") is None


def test_the_shipped_table_is_read() -> None:
    """At least 95 % of the rows with time, batch and sequence become runs."""
    rows = [
        row for row in read_rows() if row["seq"] and row["gbs"] and (row["iter_time_s"] or row["tokens_per_s_per_gpu"])
    ]
    unread = []
    for row in rows:
        try:
            resolve_run(read_row(row))
        except CharllmError as error:
            unread.append(f"{row['id']} {error}")
    assert len(unread) <= 0.05 * len(rows), unread


def test_what_a_source_exports_and_states_elsewhere_is_read() -> None:
    wide = {"model": "GPT 195B (BLOOM tuning)", "layers": "80", "hidden": "14400", "ffn": "57600", "ep": ""}
    source = "bigscience-workshop/bigscience chronicles-prequel.md"
    found, other = run(**wide, source=source), run(**wide, source="someone else")
    assert found.framework.blocking_launches
    assert not other.framework.blocking_launches
    assert found.model.heads == 96
    assert run(**{**wide, "heads": "72"}, source=source).model.heads == 72


def test_adapters_of_mlperf_drop_their_input() -> None:
    adapted = {"model": "Llama2-70B LoRA", "ep": ""}
    assert run(**adapted, framework="NeMo/Megatron (MLPerf)").training.lora_dropout_fraction == 0.1
    assert run(**adapted).training.lora_dropout_fraction == 0


@pytest.mark.parametrize(
    ("gpu", "interconnect", "limit_w"),
    [("GH200 96GB (JUPITER, 680 W module)", "4x200 Gb/s IB", 560), ("GH200", "NVLink4, JEDI 4xNDR200", 560),
     ("GH200", "Slingshot-11 (Alps Clariden)", 540), ("GH200", "Slingshot-11", None),
     ("H100", "EOS, 8x400 Gb/s IB", None)],
)  # fmt: skip
def test_a_limit_that_covers_a_processor_leaves_the_gpu_the_rest(
    gpu: str, interconnect: str, limit_w: float | None
) -> None:
    spec = run(gpu=gpu, interconnect=interconnect, gpus_per_node="4" if "GH" in gpu else "8")
    assert spec.conditions.power_cap_w == limit_w
    assert run(gpu=gpu, precision="fp8 rowwise", gpus_per_node="").framework.fp8_scaling == "row"


def test_nodes_hold_as_many_gpus_as_a_row_says_or_as_divide_them_evenly() -> None:
    quads = run(gpu="A100-SXM4-40GB", n_gpus="64", gpus_per_node="4", interconnect="Perlmutter").cluster
    assert (quads.nodes, quads.node.gpus, quads.fabric.nics_per_node) == (16, 4, 4)
    split = run(n_gpus="12", gpus_per_node="", tp="1", pp="1", ep="1", dp="12", gbs="48").cluster
    assert (split.nodes, split.node.gpus) == (3, 4)


@pytest.mark.parametrize(
    ("changes", "node", "fabric", "cooling"),
    [
        ({"gpu": "MI250X", "source": "spyysalo/lumi-llm-scaling"}, "lumi-mi250x", "slingshot-4x200g-host", "liquid"),
        ({"gpu": "MI250X", "interconnect": "Frontier: Slingshot"}, "frontier-mi250x", "slingshot-4x200g", "liquid"),
        ({"gpu": "H100", "source": "frontier models"}, "hgx-h100", "8x400g", "air"),
    ],
)  # fmt: skip
def test_a_machine_of_the_catalog_that_a_row_names_is_taken_whole(
    changes: dict[str, str], node: str, fabric: str, cooling: str
) -> None:
    cluster = run(**changes).cluster
    assert (cluster.node.name, cluster.fabric.name, cluster.cooling.kind) == (node, fabric, cooling)


@pytest.mark.parametrize(
    ("framework", "release"),
    [
        ("HF Trainer + DeepSpeed ZeRO-2", "deepspeed-hf"),
        ("LLaMA-Factory (ZeRO-3)", "deepspeed-hf"),
        ("transformers + accelerate FSDP", "fsdp-hf"),
        ("TRL SFTTrainer", "pytorch-hf"),
        ("GPT-NeoX + DeepSpeed", "megatron-deepspeed-bf16"),
        ("ms-swift (megatron backend)", "megatron"),
        ("Primus (torchtitan)", "torchtitan"),
        ("Megatron-DeepSpeed (Hugging Face BLOOM)", "megatron-deepspeed"),
        ("nanotron v0.5 (Hugging Face)", "nanotron"),
    ],
)
def test_software_of_users_is_read_by_what_it_is_built_on(framework: str, release: str) -> None:
    assert read_release({"framework": framework, "source": ""}) == release


def test_a_sharding_stage_may_stand_in_the_framework_column() -> None:
    stages = {text: run(framework=text, tp="1", pp="1", ep="", dp="64", model="Llama 3.1 8B").parallelism.zero
              for text in ("DeepSpeed ZeRO-2 (HF)", "DeepSpeed ZeRO stage 1 (HF)", "DeepSpeed (HF)")}  # fmt: skip
    assert list(stages.values()) == [2, 1, 3]


def test_a_release_of_rocm_decides_how_fast_its_products_are() -> None:
    for name in ("Megatron-DeepSpeed", "torchtitan"):
        for rocm, rate in (("5.2", 0.83), ("6.2", 1.0)):
            changes = {"gpu": "MI250X", "framework": f"{name}, ROCm {rocm}", "tp": "1", "pp": "1", "ep": "", "dp": "64"}
            assert run(**changes, model="Llama 3.1 8B").framework.library_fraction == rate


@pytest.mark.parametrize(
    ("source", "tuning"),
    [("NVIDIA/NeMo docs", "tuned"), ("oellm runs on JUPITER", "usual"), ("somebody/their-repository", "not stated")],
)
def test_runs_of_unknown_origin_do_not_say_how_they_are_set_up(source: str, tuning: str) -> None:
    assert run(source=source).framework.tuning == tuning


@pytest.mark.parametrize(("dispatcher", "sorts"), [("alltoall", False), ("deepep", True), ("hybridep", True)])
def test_under_torchtitan_deepep_sorts_tokens_itself(dispatcher: str, sorts: bool) -> None:
    framework = run(framework="torchtitan", dispatcher=dispatcher).framework
    assert (framework.dispatcher, framework.fused_permute) == (dispatcher, sorts)
