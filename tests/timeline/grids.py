"""Small runs of every kind of grid."""

from typing import Any

from charllm.catalog.resolve import resolve_run
from charllm.spec.request import merge
from charllm.spec.run import RunSpec

SMALL: dict[str, Any] = {
    "model": {"name": "tiny", "layers": 4, "hidden": 64, "ffn": 128, "heads": 4, "vocab": 64},
    "cluster": "h200x8",
    "training": {"seq_length": 32, "global_batch_size": 16},
}
SPARSE = {"model": {"experts": 4, "topk": 2, "expert_ffn": 64, "shared_ffn": 64}}
GRIDS: dict[str, dict[str, Any]] = {
    "tp2-pp2-dp2": {"parallelism": {"tp": 2, "pp": 2}},
    "pp4-dp2": {"parallelism": {"pp": 4}},
    "cp2-tp2-dp2": {"parallelism": {"cp": 2, "tp": 2}},
    "fsdp8": {"parallelism": {"zero": 3}},
    "fsdp4-pp2": {"parallelism": {"zero": 3, "pp": 2}},
    "zero2-pp2": {"parallelism": {"zero": 2, "pp": 2}},
    "overlap": {"parallelism": {"tp": 2, "zero": 1, "overlap": ["tp", "dp"]}},
    "experts": merge(SPARSE, {"parallelism": {"ep": 4, "tp": 2}}),
    "grouped experts": merge(SPARSE, {"parallelism": {"ep": 2}, "training": {"grouped_gemm": True}}),
    "tied": {"model": {"tied_embeddings": True}, "parallelism": {"pp": 2}},
    "recompute": {"parallelism": {"pp": 2}, "training": {"recompute": "full"}},
    "lora": {"parallelism": {"tp": 2, "pp": 2}, "training": {"lora_rank": 8}},
    "fp8": {"parallelism": {"tp": 2}, "training": {"precision": "fp8"}},
    "zero bubble": {"parallelism": {"pp": 2, "schedule": "zero-bubble"}},
    "gpipe": {"parallelism": {"pp": 2, "schedule": "gpipe"}},
    "interleaved": {"parallelism": {"pp": 2, "vpp": 2}},
    "eager experts": merge(SPARSE, {"framework": "pytorch-eager", "parallelism": {"ep": 2}}),
    "latent attention": {
        "model": {"attention": "mla", "kv_lora_rank": 16, "rope_head_dim": 8, "v_head_dim": 16},
        "parallelism": {"tp": 2},
    },
    "deepspeed": {"framework": "deepspeed"},
    "unfused": {"framework": "megatron-2020", "model": {"norm": "layernorm", "dropout_fraction": 0.1}},
    "mxfp8 experts": merge(SPARSE, {"parallelism": {"ep": 4}, "training": {"precision": "mxfp8"}}),
}


def small(name: str) -> RunSpec:
    return resolve_run(merge(SMALL, GRIDS[name]))
