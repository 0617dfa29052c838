"""Random requests: a sensible one, into which sometimes one or two wrong or absurd settings are put."""

from typing import Any

from hypothesis import strategies as st

from charllm.catalog.tables import entries
from charllm.spec.request import merge, parse_settings

Table = dict[str, Any]


def _some(fields: dict[str, list[Any]]) -> st.SearchStrategy[Table]:
    """Draw some of the fields, each from its list."""
    return st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in fields.items()})


PARALLELISM = _some(
    {
        "tp": [1, 2, 4, 8],
        "pp": [1, 2, 4],
        "cp": [1, 2],
        "ep": [1, 1, 2, 8],
        "etp": [1, 2],
        "vpp": [1, 1, 2],
        "zero": [0, 1, 2, 3],
        "shard_size": [0, 0, 2],
        "sp": [True, False],
        "cp_kind": ["ring", "all-to-all"],
        "schedule": ["1f1b", "gpipe", "zero-bubble"],
        "overlap": [[], ["tp"], ["dp", "pp"], ["ep", "cp"]],
        "order": ["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", "pp-dp-ep-cp-tp"],
    }
)
TRAINING = _some(
    {
        "seq_length": [1024, 2048, 8192, 131072],
        "global_batch_size": [1024, 4096],
        "micro_batch_size": [1, 2, 4],
        "precision": ["bf16", "fp16", "fp8", "mxfp8", "nvfp4", "fp32"],
        "recompute": ["none", "selective", "full"],
        "optimizer": ["adam", "sgd", "none"],
        "lora_rank": [0, 0, 16],
        "lora_targets": [["qkv"], ["qkv", "proj", "fc1", "fc2"], []],
        "reduce_precision": ["fp32", "bf16", "fp8"],
        "narrow_weights": [True, False],
        "first_moment_precision": ["fp32", "16bit", "8bit"],
        "main_weight_precision": ["fp32", "16bit", "none"],
    }
)
SMALL_MODEL = st.fixed_dictionaries(
    {
        "name": st.just("random"),
        "layers": st.sampled_from([1, 4, 8, 24]),
        "hidden": st.sampled_from([64, 4096]),
        "ffn": st.sampled_from([128, 16384]),
        "heads": st.sampled_from([8, 64]),
        "kv_heads": st.sampled_from([1, 2, 8]),
        "head_dim": st.sampled_from([8, 128]),
        "vocab": st.sampled_from([0, 1000, 128256]),
        "activation": st.sampled_from(["swiglu", "gelu", "squared-relu"]),
        "norm": st.sampled_from(["rmsnorm", "layernorm"]),
        "norms_per_layer": st.integers(1, 4),
        "qk_norm": st.booleans(),
        "position": st.sampled_from(["rope", "learned", "alibi", "none"]),
        "bias": st.sampled_from(["none", "qkv", "all"]),
        "tied_embeddings": st.booleans(),
        "dropout_fraction": st.sampled_from([0.0, 0.1]),
        "causal": st.booleans(),
        "window": st.sampled_from([0, 128]),
        "full_attention_every": st.sampled_from([1, 2]),
        "mtp_layers": st.sampled_from([0, 0, 1]),
    },
    optional={"experts": st.just(8), "topk": st.just(2), "shared_ffn": st.just(64), "dense_layers": st.just(1)},
)
SPOILERS = [
    "model=gpt5",
    "model.layers=0",
    "model.layers=7",
    "model.kv_heads=5",
    "model.hidden=nan",
    "model.experts=-3",
    "model.topk=1000",
    "model.wings=2",
    "model.attention=mla",
    "cluster=moonbase",
    "cluster.nodes=0",
    "cluster.nodes=3",
    "cluster.nodes=2048",
    "cluster.node.gpu.memory_gib=1e-9",
    "cluster.fabric.nics_per_node=0",
    "framework=tensorflow",
    "parallelism.tp=3",
    "parallelism.tp=eight",
    "parallelism.pp=64",
    "parallelism.dp=5",
    "parallelism.ep=16",
    "parallelism.vpp=1000000",
    "parallelism.zero=4",
    "parallelism.schedule=dualpipe",
    "parallelism.schedule=interleaved",
    "parallelism.layers_per_stage=[1,2]",
    'parallelism.overlap=["xp"]',
    "parallelism.order=tp-pp",
    "training.seq_length=1000",
    "training.seq_length=1",
    "training.global_batch_size=7",
    "training.micro_batch_size=0",
    "training.micro_batch_size=65536",
    "training.precision=int3",
    "training.optimizer_offload_fraction=0.5",
    "training.activation_offload_fraction=1.0",
    "training.activation_offload_fraction=1.5",
    "training.recompute_layers=3",
    'training.recompute_modules=["mlp", "moe_act"]',
    "training.capacity_factor=1.25",
    "training.routing_skew=1.5",
    "training.grouped_gemm=false",
    'training.lora_targets=["brain"]',
    "conditions.power_cap_w=1",
    "conditions.seed=-1",
    "conditions.placement=thermal",
    "conditions.placement=/nowhere.json",
    "color=blue",
]


def sensible_requests() -> st.SearchStrategy[Table]:
    """Draw a request that is right more often than not."""
    model = st.one_of(st.sampled_from(sorted(entries("models"))), SMALL_MODEL)
    named = st.sampled_from(sorted(entries("clusters")))
    scaled = st.builds(
        lambda base, nodes: {"base": base, "nodes": nodes},
        st.sampled_from(["charllm-ppt-h200", "charllm-ppt-h100", "charllm-ppt-mi250", "gb200-nvl72"]),
        st.sampled_from([4, 8, 16]),
    )
    return st.fixed_dictionaries(
        {
            "model": model,
            "cluster": st.one_of(scaled, scaled, named),
            "framework": st.sampled_from(sorted(entries("frameworks"))),
            "parallelism": PARALLELISM,
            "training": TRAINING,
        }
    )


def requests() -> st.SearchStrategy[Table]:
    """Draw a sensible request, half of the time spoiled once or twice."""
    once_or_twice = st.lists(st.sampled_from(SPOILERS), min_size=1, max_size=2, unique=True)
    spoiled: st.SearchStrategy[list[str]] = st.one_of(st.just([]), once_or_twice)
    return st.builds(lambda request, settings: merge(request, parse_settings(settings)), sensible_requests(), spoiled)
