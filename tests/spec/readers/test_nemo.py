"""What a NeMo training YAML becomes."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from charllm.errors import SpecError
from charllm.spec.fields import read
from charllm.spec.model import Model, fill_model
from charllm.spec.readers.nemo import read_nemo
from charllm.spec.training import Training

Table = dict[str, Any]

GPT3 = """
trainer: {devices: 8, num_nodes: 4, accelerator: gpu, precision: bf16, max_time: 05:23:30:00}
exp_manager: {explicit_log_dir: "${ROOT}/results", name: gpt}
model:
  micro_batch_size: 1
  global_batch_size: 128
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 16
  virtual_pipeline_model_parallel_size: null
  sequence_parallel: true
  encoder_seq_length: 2048
  max_position_embeddings: ${.encoder_seq_length}
  num_layers: 96
  hidden_size: 12288
  ffn_hidden_size: ${model.data.width}
  num_attention_heads: 96
  num_query_groups: null
  kv_channels: null
  hidden_dropout: 0.1
  activations_checkpoint_granularity: full
  activations_checkpoint_method: block
  activations_checkpoint_num_layers: 6
  ub_tp_comm_overlap: true
  tokenizer: {library: megatron, type: GPT2BPETokenizer, vocab_file: "${ROOT}/vocab.json"}
  data: {seq_length: 2048, width: 49152, data_prefix: [1.0, "${ROOT}/text"]}
  optim: {name: distributed_fused_adam, lr: 1.6e-4, overlap_grad_sync: true, overlap_param_sync: true}
"""
MIXTRAL = """
trainer: {devices: 8, num_nodes: 4, precision: bf16-mixed}
model:
  micro_batch_size: 1
  global_batch_size: 128
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 2
  expert_model_parallel_size: 8
  sequence_parallel: true
  encoder_seq_length: 4096
  num_layers: 56
  hidden_size: 6144
  ffn_hidden_size: 16384
  num_attention_heads: 48
  num_query_groups: 8
  activation: fast-swiglu
  normalization: rmsnorm
  bias: false
  share_embeddings_and_output_weights: false
  position_embedding_type: rope
  hidden_dropout: 0.0
  num_moe_experts: 8
  moe_router_topk: 2
  moe_grouped_gemm: false
  moe_expert_capacity_factor: 1.0
  tokenizer: {library: huggingface, type: mistralai/Mixtral-8x22B-v0.1}
  optim: {name: mcore_distributed_optim, grad_sync_dtype: bf16, overlap_grad_sync: false}
"""
BRIDGE = """
model:
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: 14336
  num_attention_heads: 32
  num_query_groups: 8
  gated_linear_unit: true
  activation_func: {_target_: torch.nn.functional.silu, _call_: false}
  normalization: RMSNorm
  add_bias_linear: false
  share_embeddings_and_output_weights: false
  position_embedding_type: rope
  hidden_dropout: 0.0
  vocab_size: 128256
  seq_length: 8192
  tensor_model_parallel_size: 4
  context_parallel_size: 2
  sequence_parallel: true
  recompute_granularity: selective
train: {micro_batch_size: 1, global_batch_size: 512}
ddp: {use_distributed_optimizer: true, overlap_grad_reduce: true, grad_reduce_in_fp32: true}
optimizer: {optimizer: adam}
comm_overlap: {tp_comm_overlap: true}
mixed_precision: bf16_with_fp8_current_scaling_mixed
"""


def request_of(text: str) -> Table:
    return read_nemo(text, "recipes/run.yaml").request


def changed(text: str, **model: Any) -> Table:
    document = yaml.safe_load(text)
    document["model"] |= model
    return request_of(yaml.safe_dump(document))


def model_of(request: Table) -> Model:
    return read(Model, fill_model(request["model"]), "model")


def test_gpt3_gets_the_defaults_of_nemo() -> None:
    model = model_of(request_of(GPT3))
    assert (model.layers, model.hidden, model.ffn, model.heads, model.vocab) == (96, 12288, 49152, 96, 50257)
    assert (model.activation, model.norm, model.bias, model.position) == (
        "gelu",
        "layernorm",
        "all",
        "learned",
    )
    assert (model.tied_embeddings, model.dropout_fraction, model.seq_length) == (True, 0.1, 2048)
    assert model.name == "run"


def test_the_run_is_read_but_no_cluster_is_guessed() -> None:
    request = request_of(GPT3)
    assert set(request) == {"framework", "model", "parallelism", "training"}
    assert request["framework"] == "nemo"
    assert request["parallelism"] == {
        "tp": 2,
        "pp": 16,
        "cp": 1,
        "ep": 1,
        "vpp": 1,
        "sp": True,
        "zero": 1,
        "overlap": ["tp", "dp"],
    }
    assert request["training"] == {
        "seq_length": 2048,
        "micro_batch_size": 1,
        "global_batch_size": 128,
        "precision": "bf16",
        "optimizer": "adam",
        "recompute": "full",
        "recompute_layers": 6,
    }


def test_mixtral_is_sparse() -> None:
    request = request_of(MIXTRAL)
    model = model_of(request)
    assert (model.experts, model.topk, model.expert_ffn, model.kv_heads) == (8, 2, 16384, 8)
    assert (model.activation, model.norm, model.bias, model.position) == ("swiglu", "rmsnorm", "none", "rope")
    assert (model.vocab, model.tied_embeddings) == (32000, False)
    training = read(Training, request["training"], "training")
    assert (training.grouped_gemm, training.capacity_factor, training.reduce_precision) == (
        False,
        1.0,
        "bf16",
    )
    assert (request["parallelism"]["ep"], request["parallelism"]["zero"]) == (8, 1)
    assert request["parallelism"]["overlap"] == []


def test_bridge_keys_are_read_where_they_stand() -> None:
    request = request_of(BRIDGE)
    model = model_of(request)
    assert (model.activation, model.norm, model.bias, model.kv_heads) == ("swiglu", "rmsnorm", "none", 8)
    assert (model.vocab, model.seq_length) == (128256, 8192)
    parallelism, training = request["parallelism"], request["training"]
    assert (parallelism["tp"], parallelism["cp"], parallelism["zero"]) == (4, 2, 1)
    assert parallelism["overlap"] == ["tp", "dp"]
    assert (training["global_batch_size"], training["precision"]) == (512, "fp8")
    assert (training["recompute"], training["reduce_precision"]) == ("selective", "fp32")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"activation": "squared-relu"}, {"activation": "squared-relu"}),
        ({"activation": "geglu"}, {"activation": "geglu"}),
        ({"normalization": "layernorm1p"}, {"norm": "layernorm"}),
        ({"bias": False, "qkv_bias": True}, {"bias": "qkv"}),
        ({"kv_channels": 64}, {"head_dim": 64}),
        ({"ffn_hidden_size": None}, {"ffn": 4 * 12288}),
        ({"ffn_hidden_size": None, "activation": "swiglu"}, {"ffn": 4 * 12288}),
        ({"num_moe_experts": 8, "moe_layer_freq": [0] * 2 + [1] * 94}, {"dense_layers": 2}),
        ({"num_moe_experts": 8, "moe_layer_freq": "([0]*1+[1]*95)"}, {"dense_layers": 1}),
        ({"num_moe_experts": 8, "moe_layer_freq": 1}, {"dense_layers": 0, "topk": 2}),
        ({"multi_latent_attention": True, "kv_lora_rank": 256}, {"attention": "mla", "kv_lora_rank": 256}),
        ({"tokenizer": {"library": "sentencepiece", "model": "x/llama-2/tok.model"}}, {"vocab": 32000}),
    ],
)
def test_model_keys_mean_what_nemo_makes_of_them(changes: Table, expected: Table) -> None:
    model = model_of(changed(GPT3, **changes))
    assert {field: getattr(model, field) for field in expected} == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"sequence_parallel": False}, {"sp": False, "overlap": ["dp"]}),
        ({"tensor_model_parallel_size": 1}, {"sp": False, "overlap": ["dp"]}),
        ({"optim": {"name": "fused_adam"}}, {"zero": 0, "overlap": ["tp"]}),
        ({"optim": None}, {"zero": 0}),
        ({"fsdp": True}, {"zero": 3, "overlap": ["dp"]}),
        ({"fsdp": True, "fsdp_sharding_strategy": "grad"}, {"zero": 2}),
        ({"fsdp": True, "fsdp_sharding_strategy": "hybrid"}, {"zero": 3, "shard_size": 4}),
        (
            {"virtual_pipeline_model_parallel_size": 3, "overlap_p2p_comm": True},
            {"vpp": 3, "overlap": ["tp", "dp", "pp"]},
        ),
        (
            {"pipeline_model_parallel_size": 4, "num_layers_in_first_pipeline_stage": 12},
            {"layers_per_stage": [12, 28, 28, 28]},
        ),
        (
            {
                "num_layers": 94,
                "account_for_embedding_in_pipeline_split": True,
                "account_for_loss_in_pipeline_split": True,
            },
            {"layers_per_stage": [5, *[6] * 14, 5]},
        ),
        (
            {"pipeline_model_parallel_size": 2, "pipeline_model_parallel_layout": "Et*48|t*48,L"},
            {"layers_per_stage": [48, 48]},
        ),
        (
            {
                "pipeline_model_parallel_size": 2,
                "pipeline_model_parallel_layout": [["embedding", "decoder"], ["decoder", "loss"]],
            },
            {"layers_per_stage": [1, 1]},
        ),
        ({"context_parallel_size": 2, "cp_comm_type": "a2a"}, {"cp_kind": "all-to-all"}),
    ],
)
def test_parallel_keys_mean_what_nemo_makes_of_them(changes: Table, expected: Table) -> None:
    parallelism = changed(GPT3, **changes)["parallelism"]
    assert {field: parallelism[field] for field in expected} == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"activations_checkpoint_granularity": None}, {"recompute": "none", "recompute_layers": None}),
        (
            {"activations_checkpoint_granularity": "selective"},
            {"recompute": "selective", "recompute_layers": None},
        ),
        ({"activations_checkpoint_method": "uniform"}, {"recompute": "full", "recompute_layers": None}),
        ({"fp8": True}, {"precision": "fp8"}),
        ({"fp8": "hybrid", "fp8_recipe": "mxfp8"}, {"precision": "mxfp8"}),
        ({"fp8": False}, {"precision": "bf16"}),
        ({"fsdp": True, "fsdp_grad_reduce_dtype": "bf16"}, {"reduce_precision": "bf16"}),
        ({"fsdp": True, "fsdp_grad_reduce_dtype": 32}, {"reduce_precision": "fp32"}),
        ({"peft": {"peft_scheme": "none", "lora_tuning": {"adapter_dim": 32}}}, {"lora_rank": None}),
        (
            {"peft": {"peft_scheme": "lora", "lora_tuning": {"adapter_dim": 32}}},
            {"lora_rank": 32, "lora_targets": ["qkv"]},
        ),
        (
            {
                "peft": {
                    "peft_scheme": "lora",
                    "lora_tuning": {"adapter_dim": 8, "target_modules": ["all", "mlp"]},
                }
            },
            {"lora_rank": 8, "lora_targets": ["qkv", "proj", "fc1", "fc2"]},
        ),
        ({"data": {"width": 49152, "train_ds": {"max_seq_length": 512}}}, {"seq_length": 512}),
        (
            {"global_batch_size": None, "data": {"width": 1, "train_ds": {"global_batch_size": 64}}},
            {"global_batch_size": 64},
        ),
    ],
)
def test_training_keys_mean_what_nemo_makes_of_them(changes: Table, expected: Table) -> None:
    training = changed(GPT3, **changes)["training"]
    assert {field: training.get(field) for field in expected} == expected


@pytest.mark.parametrize(
    ("precision", "expected"),
    [(16, "fp16"), ("16-mixed", "fp16"), ("bf16", "bf16"), (32, "fp32"), (None, None)],
)
def test_the_precision_of_the_trainer_is_read(precision: Any, expected: str | None) -> None:
    document = yaml.safe_load(GPT3) | {"trainer": {"precision": precision}}
    assert request_of(yaml.safe_dump(document))["training"].get("precision") == expected


def test_adapters_of_nemo_2_are_read() -> None:
    training = request_of(BRIDGE + "peft: {dim: 16, target_modules: [linear_qkv, linear_proj]}")["training"]
    assert (training["lora_rank"], training["lora_targets"]) == (16, ["qkv", "proj"])


def test_a_recipe_without_sizes_leaves_the_model_open() -> None:
    request = request_of("model: {tensor_model_parallel_size: 8}\ntrain: {global_batch_size: 256}")
    assert "model" not in request
    assert request["training"]["global_batch_size"] == 256


def test_an_unstated_vocabulary_is_left_to_be_set() -> None:
    assert "vocab" not in changed(GPT3, tokenizer={"library": "sentencepiece", "model": "${ROOT}/my.model"})["model"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"num_layers": "many"}, "model.num_layers"),
        ({"num_layers": True}, "model.num_layers"),
        ({"num_layers": [96]}, "model.num_layers"),
        ({"num_layers": "${oc.env:LAYERS}"}, "model.num_layers"),
        ({"num_layers": "${shell:ls}"}, "model.num_layers"),
        ({"num_layers": "${multiply:2,${.activation}}"}, "model.num_layers"),
        ({"num_layers": "${model.depth}"}, "model.num_layers"),
        ({"num_layers": "${model.num_layers}"}, "model.num_layers"),
        ({"num_layers": "${.hidden_size}", "hidden_size": "${.num_layers}"}, "model.num_layers"),
        ({"tensor_model_parallel_size": 0}, "model.tensor_model_parallel_size"),
        ({"sequence_parallel": "yes please"}, "model.sequence_parallel"),
        ({"activation": "reglu"}, "model.activation"),
        ({"normalization": {"a": 1}}, "model.normalization"),
        ({"optim": {"name": "lion"}}, "model.optim.name"),
        ({"peft": {"peft_scheme": "ptuning"}}, "model.peft.peft_scheme"),
        (
            {"peft": {"peft_scheme": "lora", "lora_tuning": {"target_modules": "all"}}},
            "model.peft.lora_tuning",
        ),
        ({"num_moe_experts": 8, "moe_layer_freq": 0}, "model.moe_layer_freq"),
        ({"num_moe_experts": 8, "moe_layer_freq": [1, 0]}, "model.moe_layer_freq"),
        ({"num_moe_experts": 8, "moe_layer_freq": "often"}, "model.moe_layer_freq"),
        ({"pipeline_model_parallel_layout": 7}, "model.pipeline_model_parallel_layout"),
        ({"pipeline_model_parallel_layout": [1] * 16}, "model.pipeline_model_parallel_layout"),
        ({"hybrid_override_pattern": "M-M*"}, "model.hybrid_override_pattern"),
        ({"num_layers_in_first_pipeline_stage": 12}, "model.pipeline_model_parallel_size"),
    ],
)
def test_a_value_that_cannot_be_read_names_its_key(changes: Table, field: str) -> None:
    with pytest.raises(SpecError) as caught:
        changed(GPT3, **changes)
    assert caught.value.field.startswith(field)


def test_references_that_do_not_matter_are_ignored() -> None:
    assert changed(GPT3, seed="${oc.env:SEED}", restore_from_path="${nothing.here}")["model"]["layers"] == 96


def test_a_mandatory_value_that_is_missing_counts_as_absent() -> None:
    assert "global_batch_size" not in changed(GPT3, global_batch_size="???")["training"]


BILLION_LAUGHS = "a0: &a0 {x: 1}\n" + "\n".join(
    f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}" for i in range(1, 12)
)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "just words",
        "- 1\n- 2",
        "model: [",
        "model: {a: 1",
        "\x00",
        "a: b: c",
        "--- 1\n--- 2",
        "model: !!python/object/apply:os.system ['true']",
        "model: !!int x",
        "model: !!bool x",
        "model: !!timestamp x",
        "model: !!float x",
        "? [a, b]\n: 1",
        "when: 2001-99-99",
        "model: &a [*a]",
        "model: &a {num_layers: *a}",
        "[" * 5000,
        "model: {hidden_size: 4}\n" + "#" * 2**18,
        BILLION_LAUGHS,
        "a: &a 1\nb: [" + "*a, " * 10_001 + "]",
        "name: something\nother: {num_layers: 2}",
    ],
    ids=range(22),
)
def test_what_is_no_training_file_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="--from"):
        request_of(text)


@pytest.mark.parametrize("key", ["num_layers", "fp8", "activation", "fsdp", "hidden_dropout", "optim"])
def test_a_huge_number_is_refused(key: str) -> None:
    huge = f"0x{'f' * 6000}" if key != "optim" else f"{{name: 0x{'f' * 6000}}}"
    with pytest.raises(SpecError, match=f"model.{key}"):
        request_of(f"model: {{tensor_model_parallel_size: 2, {key}: {huge}}}")


def keys(table: Table) -> set[str]:
    return set(table).union(*(keys(value) for value in table.values() if isinstance(value, dict)))


KEYS = sorted(set().union(*(keys(yaml.safe_load(text)) for text in (GPT3, MIXTRAL, BRIDGE))))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["${.a}", "${model}", "${multiply:2,${.a}}", "${oc.env:A,3}", "full", "???"])
)
VALUES = st.recursive(
    SCALARS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=8,
)


@settings(deadline=None, max_examples=60)
@given(changes=st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=5))
def test_any_document_gives_a_request_or_a_spec_error(changes: Table) -> None:
    for text in (GPT3, MIXTRAL, BRIDGE):
        document = yaml.safe_load(text)
        for whole in (document | changes, document | {"model": document["model"] | changes}):
            written = yaml.safe_dump(whole)
            start = time.process_time()
            with suppress(SpecError):
                assert read_nemo(written, "run.yaml").request["parallelism"]["tp"] > 0
            assert time.process_time() - start < 1


@settings(deadline=None, max_examples=300)
@given(text=st.text(alphabet=st.sampled_from("model:{}[]&*!|>'\"- \n0123?%@`#,<"), max_size=60) | st.text(max_size=60))
def test_any_text_gives_a_request_or_a_spec_error(text: str) -> None:
    with pytest.raises(SpecError):
        read_nemo(text, "run.yaml")


@pytest.mark.parametrize(
    ("written", "width"),
    [
        ("${multiply:4, ${.hidden_size}}", 4 * 12288),
        ("${multiply:${model.hidden_size}, 2}", 2 * 12288),
        ("${divide_ceil:${.hidden_size}, 5}", 2458),
        ("${divide_floor:${.hidden_size}, 5}", 2457),
        ("${int_div:${..model.hidden_size},2}", 6144),
        ("${sum:${.hidden_size},-288}", 12000),
        ("${oc.env:FFN,7168}", 7168),
        ("${oc.select:model.absent,5120}", 5120),
        ("${if:${eq:${.num_layers},96},1024,2048}", 1024),
        ("${training.model.hidden_size}", 12288),
        ("${multiply:${add:1,1}, ${add:2,2}}", 8),
    ],
)
def test_resolvers_are_worked_out(written: str, width: int) -> None:
    assert changed(GPT3, ffn_hidden_size=written)["model"]["ffn"] == width


@pytest.mark.parametrize(
    "written",
    ["${oc.env:FFN}", "${divide:1,0}", "${multiply:1e300,1e300}", "${eval:1+1}", "${" * 200, "${..........x}", "${}"],
)
def test_what_a_resolver_cannot_work_out_is_refused(written: str) -> None:
    with pytest.raises(SpecError, match=r"model\.ffn_hidden_size"):
        changed(GPT3, ffn_hidden_size=written)


def test_nodes_and_devices_are_those_of_the_trainer() -> None:
    reading = read_nemo(GPT3, "run.yaml")
    assert (reading.nodes, reading.gpus_per_node) == (4, 8)
    automatic = read_nemo(GPT3.replace("devices: 8", "devices: auto"), "run.yaml")
    assert automatic.gpus_per_node is None


def test_a_file_over_another_takes_what_it_leaves_out(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(GPT3)
    text = "defaults: [base, _self_]\nmodel: {num_layers: 12, tensor_model_parallel_size: 4}\n"
    reading = read_nemo(text, str(tmp_path / "run.yaml"))
    assert (reading.request["model"]["layers"], reading.request["model"]["hidden"]) == (12, 12288)
    assert (reading.request["parallelism"]["tp"], reading.nodes) == (4, 4)


def test_a_base_file_that_is_not_there_is_named() -> None:
    text = f"defaults: [base, optional overlap@model.cfg: null]\n{GPT3}"
    (setting,) = read_nemo(text, "nowhere/run.yaml").unmodelled
    assert (setting.name, setting.line) == ("defaults", 1)
    assert "base.yaml" in setting.reason


def test_a_file_mounted_by_the_launcher_is_read_where_it_is_mounted() -> None:
    mounted = yaml.safe_dump({"training": yaml.safe_load(GPT3), "cluster": {"partition": "a"}})
    assert request_of(mounted)["model"]["layers"] == 96


def test_every_setting_of_the_examples_is_accounted_for() -> None:
    for text in (GPT3, MIXTRAL, BRIDGE):
        reading = read_nemo(text, "run.yaml")
        assert not reading.unmodelled
        assert [setting.name for setting in reading.not_understood] == []


def test_a_typo_is_listed_with_its_line() -> None:
    text = GPT3.replace("tensor_model_parallel_size", "tensor_model_paralel_size")
    (setting,) = read_nemo(text, "run.yaml").not_understood
    assert (setting.name, setting.line) == ("model.tensor_model_paralel_size", 7)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"cpu_offloading": True}, "CPU"),
        ({"transformer_block_type": "normformer"}, "norms"),
        ({"headscale": True}, "heads"),
        ({"activations_checkpoint_layers_per_pipeline": 1}, "stages"),
    ],
)
def test_what_is_not_modelled_is_named(changes: Table, reason: str) -> None:
    document = yaml.safe_load(GPT3)
    document["model"] |= changes
    (setting,) = read_nemo(yaml.safe_dump(document), "run.yaml").unmodelled
    assert reason in setting.reason


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"make_vocab_size_divisible_by": 512}, "vocab_multiple", 512),
        ({"bias_activation_fusion": False}, "fused_activation", False),
        ({"cross_entropy_loss_fusion": False}, "cross_entropy", "vocab-parallel"),
        ({"use_flash_attention": False}, "attention", "unfused"),
        ({"megatron_amp_O2": False}, "weight_precision", "fp32"),
        ({"enable_cuda_graph": True}, "graphs", "full"),
        ({"moe_token_dispatcher_type": "flex"}, "dispatcher", "deepep"),
    ],
)
def test_choices_of_the_file_change_the_profile(changes: Table, field: str, value: Any) -> None:
    assert changed(GPT3, **changes)["framework"] == {"base": "nemo", field: value} | (
        {"gradient_precision": "fp32"} if "megatron_amp_O2" in changes else {}
    )


@pytest.mark.parametrize(
    ("key", "value", "match"),
    [
        ("encoder", {"num_layers": 12}, "decoder"),
        ("hyena", {"order": 2}, "Hyena"),
        ("retro", {"retro_num_neighbors": 2}, "retrieval"),
        ("mm_cfg", {"vision_encoder": {}}, "vision"),
    ],
)
def test_another_kind_of_model_is_refused(key: str, value: Any, match: str) -> None:
    with pytest.raises(SpecError, match=match):
        changed(GPT3, **{key: value})


def test_windows_parallel_blocks_and_bert_are_told_from_their_settings() -> None:
    assert changed(GPT3, window_size=[4096, 0])["model"]["window"] == 4096
    falcon = {"parallel_attention": True, "new_decoder_architecture": False}
    assert changed(GPT3, mcore_customization_config=falcon)["model"]["norms_per_layer"] == 1
    assert changed(GPT3, bert_binary_head=True)["model"]["causal"] is False
    sparse = changed(MIXTRAL, moe_layer_freq=2)["model"]
    assert sparse["sparse_layers"] == "E-"


def test_a_file_that_restores_a_model_asks_for_it() -> None:
    document = yaml.safe_load(GPT3)
    for key in ("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "max_position_embeddings"):
        del document["model"][key]
    document["model"] |= {"restore_from_path": "/models/llama2_7b.nemo", "peft": {"peft_scheme": "lora"}}
    reading = read_nemo(yaml.safe_dump(document), "peft.yaml")
    assert "llama2_7b.nemo" in reading.missing["model"]
    assert reading.request["training"]["lora_rank"] == 32


def test_a_vocabulary_that_no_one_knows_is_asked_for() -> None:
    reading = read_nemo(GPT3.replace("GPT2BPETokenizer", "MyTokenizer"), "run.yaml")
    assert "MyTokenizer" in reading.missing["model.vocab"]


def test_a_variable_that_is_given_goes_before_its_default() -> None:
    text = GPT3.replace("num_layers: 96", "num_layers: ${oc.decode:${oc.env:LAYERS,96}}")
    assert read_nemo(text, "run.yaml").request["model"]["layers"] == 96
    assert read_nemo(text, "run.yaml", {"LAYERS": "12"}).request["model"]["layers"] == 12
    with pytest.raises(SpecError, match="--env LAYERS=VALUE"):
        read_nemo(GPT3.replace("num_layers: 96", "num_layers: ${oc.env:LAYERS}"), "run.yaml")


def test_a_reference_is_followed_before_a_setting_is_refused() -> None:
    for written, refused in (("${oc.decode:${oc.env:OFFLOAD,False}}", 0), ("${oc.env:OFFLOAD,True}", 1)):
        text = GPT3.replace("  sequence_parallel: true", f"  sequence_parallel: true\n  cpu_offloading: {written}")
        assert len(read_nemo(text, "run.yaml").unmodelled) == refused


TEST_SET = "{micro_batch_size: 4, global_batch_size: 64, max_seq_length: 1024, tokens_to_generate: 32}"
EVALUATION = f"  skip_train: true\n  data: {{test_ds: {TEST_SET}}}"


def test_a_file_that_skips_training_is_a_run_of_forward_passes() -> None:
    lines = [line for line in GPT3.splitlines() if not line.startswith("  data:") and "model.data.width" not in line]
    reading = read_nemo("\n".join([*lines[:-1], "  ffn_hidden_size: 49152", EVALUATION, lines[-1]]), "eval.yaml")
    assert reading.request["parallelism"]["schedule"] == "forward-only"
    training = reading.request["training"]
    assert (training["micro_batch_size"], training["global_batch_size"], training["seq_length"]) == (4, 64, 1024)
    assert not {"optimizer", "recompute", "recompute_layers", "clip_gradients"} & set(training)
    assert any("nothing is generated" in note for note in reading.warnings())


def test_a_residual_stream_in_fp32_is_refused_and_the_attention_backend_is_used() -> None:
    wide = read_nemo(GPT3.replace("  hidden_size:", "  fp32_residual_connection: true\n  hidden_size:"), "run.yaml")
    assert [setting.reason for setting in wide.unmodelled] == ["a residual stream in fp32"]
    plain = read_nemo(GPT3.replace("  hidden_size:", "  attention_backend: unfused\n  hidden_size:"), "run.yaml")
    assert plain.request["framework"]["attention"] == "unfused"


OVERLAY = """
model: {num_layers: 4, tensor_model_parallel_size: 2, seq_length: 4096}
train: {global_batch_size: 8}
ddp: {overlap_grad_reduce: false, overlap_param_gather: false}
"""


def test_a_file_over_a_recipe_asks_for_what_the_recipe_says_all_at_once() -> None:
    reading = read_nemo(OVERLAY, "override.yaml")
    assert set(reading.missing) == {
        "model", "training.micro_batch_size", "training.precision", "parallelism.pp", "parallelism.cp",
    }  # fmt: skip
    assert "layers 4" in reading.missing["model"]
    assert "model" not in reading.request
    assert reading.request["framework"] == "megatron-bridge"
    assert reading.request["parallelism"]["overlap"] == []
