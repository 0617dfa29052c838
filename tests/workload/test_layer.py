from dataclasses import replace

import pytest

from charllm.catalog.resolve import resolve_model, resolve_run
from charllm.spec.model import Model
from charllm.workload.cut import whole_cut
from charllm.workload.layer import layer, layer_kinds, mtp_kinds
from charllm.workload.memory import rank_memories
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
    table = {"model": model, "cluster": "charllm-ppt-h100", "parallelism": {"ep": 8}, "framework": "megatron"}
    return resolve_run({**table, "training": {"micro_batch_size": 1, "global_batch_size": 64, **training}})


def test_a_hybrid_needs_the_flop_its_makers_count() -> None:
    # Megatron's TFLOP/s over its tokens/s for Super at 8192 tokens, prediction layers included: 84.3 GFLOP.
    assert model_flop(run(SUPER)) / (64 * 8192) == pytest.approx(84.3e9, rel=0.02)


def test_recomputation_leaves_a_hybrid_less_to_keep() -> None:
    kept = [rank_memories(build_step(run(NANO, recompute=how)))[0].activations for how in ("none", "selective", "full")]
    assert kept[0] > kept[1] > kept[2] > 0


LINEAR = Model(
    name="linear", layers=8, mixers="DDD*", sparse_layers="-E", hidden=256, ffn=512, heads=8, kv_heads=2, head_dim=32,
    vocab=1000, ssm_heads=8, ssm_head_dim=32, ssm_state=32, ssm_groups=4, experts=4, topk=2, expert_ffn=128,
)  # fmt: skip


def test_mixers_and_experts_follow_their_patterns_to_the_last_layer() -> None:
    kinds = layer_kinds(LINEAR)
    assert [kind.mixer for kind in kinds] == ["D", "D", "D", ""] * 2
    assert [kind.sparse for kind in kinds] == [False, True] * 4


def test_a_layer_of_linear_attention_keeps_its_feed_forward_block() -> None:
    kinds = layer_kinds(LINEAR)
    linear, full = ([module.name for module in layer(whole_cut(LINEAR), kinds[index])] for index in (0, 3))
    assert {"delta scan", "fc1", "attention residual"} <= set(linear)
    assert "core attention" not in linear
    assert {"core attention", "dispatch"} <= set(full)


def test_letters_say_which_layers_have_a_window() -> None:
    windowed = replace(LINEAR, mixers="*w", window=16, ssm_heads=0)
    assert [kind.window for kind in layer_kinds(windowed)] == [0, 16] * 4


def linear_run(**changes: object):  # type: ignore[no-untyped-def]
    values = {name: getattr(LINEAR, name) for name in LINEAR.__dataclass_fields__} | changes
    training = {"seq_length": 4096, "micro_batch_size": 1, "global_batch_size": 8}
    return resolve_run({"model": values, "cluster": "h100x8", "training": training})


def test_linear_attention_does_not_grow_with_the_sequence_squared() -> None:
    per_token = []
    for length in (4096, 16384):
        run_of = linear_run()
        longer = replace(run_of, training=replace(run_of.training, seq_length=length))
        attention = replace(longer, model=replace(longer.model, mixers="*"))
        per_token.append((model_flop(longer) / length, model_flop(attention) / length))
    (linear, full), (linear_long, full_long) = per_token
    assert linear_long / linear < full_long / full


def test_chunked_attention_is_full_attention_of_each_chunk() -> None:
    full = linear_run(mixers="")
    chunked = linear_run(mixers="w", window=1024, window_kind="chunked")
    sliding = linear_run(mixers="w", window=1024)

    def attention(run_of) -> float:  # type: ignore[no-untyped-def]
        blocks = build_step(run_of).stage_blocks(0)
        return sum(
            op.flop * block.repeats
            for block in blocks
            for module in block.modules
            for op in module.forward
            if op.kind == "attention"
        )

    assert attention(chunked) == attention(full) / 4
    assert attention(chunked) < attention(sliding) < attention(full)


def test_a_gate_doubles_the_projection_of_queries() -> None:
    plain, gated = (
        layer(whole_cut(model), layer_kinds(model)[3]) for model in (LINEAR, replace(LINEAR, attention_gate=True))
    )
    weights = [next(module.weights for module in modules if module.name == "qkv") for modules in (plain, gated)]
    assert weights[1] - weights[0] == 256 * 8 * 32
    assert any(module.name == "attention gate" for module in gated)


def test_an_indexer_scores_all_tokens_and_attention_meets_the_chosen_ones() -> None:
    dense = run("deepseek-v3-no-mtp", seq_length=8192).model
    sparse = replace(dense, index_heads=64, index_head_dim=128, index_topk=2048)
    modules = {module.name: module for module in layer(whole_cut(sparse), layer_kinds(sparse)[-1])}
    assert {"index q", "index k", "index weights", "index scores"} <= set(modules)
    assert modules["index q"].weights == 1536 * 64 * 128
