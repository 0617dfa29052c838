from dataclasses import replace

import pytest

from charllm.catalog.resolve import resolve_model, resolve_run
from charllm.spec.model import Model
from charllm.workload.cut import whole_cut
from charllm.workload.layer import layer, layer_kinds, mtp_kinds
from charllm.workload.memory import worst_memory
from charllm.workload.model_flop import model_flop
from charllm.workload.op import Module
from charllm.workload.step import build_step

NANO, SUPER = "nemotron3-nano-30b-a3b", "nemotron3-super-120b-a12b"


def names(model: Model, part: str) -> list[str]:
    kind = next(kind for kind in layer_kinds(model) if kind.part == part)
    return [module.name for module in layer(whole_cut(model), kind)]


def test_a_hybrid_has_the_layers_of_its_pattern() -> None:
    parts = [kind.part for kind in layer_kinds(resolve_model(NANO))]
    assert (parts.count("M"), parts.count("E"), parts.count("*")) == (23, 23, 6)
    assert all(kind.sparse == (kind.part == "E") for kind in layer_kinds(resolve_model(NANO)))


@pytest.mark.parametrize(("part", "inside"), [("M", "mamba scan"), ("*", "core attention"), ("E", "dispatch")])
def test_a_layer_of_a_hybrid_is_one_part_between_norm_and_residual(part: str, inside: str) -> None:
    modules = names(resolve_model(NANO), part)
    assert inside in modules
    assert modules[0].endswith(" norm")
    assert sum(name.endswith(" residual") for name in modules) == 1
    assert len({"mamba scan", "core attention", "dispatch"} & set(modules)) == 1


def test_a_prediction_layer_has_parts_of_its_own() -> None:
    assert [kind.part for kind in mtp_kinds(resolve_model(SUPER))] == ["*", "E"]
    deepseek = resolve_model("deepseek-v3")
    assert mtp_kinds(deepseek) == layer_kinds(deepseek)[-1:]
    blocks = [block.name for block in build_step(run(SUPER)).stage_blocks(0)]
    assert blocks[-4:] == ["mtp entry", "mtp *", "mtp E", "mtp head"]


def test_experts_in_a_latent_are_sent_less_and_projected() -> None:
    latent = resolve_model(SUPER)
    wide = replace(latent, expert_latent=0)

    def dispatched(model: Model) -> Module:
        kind = next(kind for kind in layer_kinds(model) if kind.part == "E")
        return next(module for module in layer(whole_cut(model), kind) if module.name == "dispatch")

    assert dispatched(latent).forward_scratch_bytes == dispatched(wide).forward_scratch_bytes / 4
    assert {"latent down", "latent up"} <= set(names(latent, "E"))
    assert not {"latent down", "latent up"} & set(names(wide, "E"))


def run(model: str, **training: object):  # type: ignore[no-untyped-def]
    table = {"model": model, "cluster": "h100x64", "parallelism": {"ep": 8}, "framework": "megatron"}
    return resolve_run({**table, "training": {"micro_batch_size": 1, "global_batch_size": 64, **training}})


def test_a_hybrid_needs_the_flop_its_makers_count() -> None:
    # Megatron's TFLOP/s over its tokens/s for Super at 8192 tokens, prediction layers included: 84.3 GFLOP.
    assert model_flop(run(SUPER)) / (64 * 8192) == pytest.approx(84.3e9, rel=0.02)


def test_recomputation_leaves_a_hybrid_less_to_keep() -> None:
    kept = [worst_memory(build_step(run(NANO, recompute=how))).activations for how in ("none", "selective", "full")]
    assert kept[0] > kept[1] > kept[2] > 0
