"""Modules of a layer and of both ends of a model, counted by hand: ops, kept tensors, weights and scratch memory."""

from dataclasses import replace
from typing import Any

import pytest

from charllm.spec.model import Model
from charllm.spec.parallelism import Parallelism
from charllm.spec.training import Training
from charllm.workload.attention import attention, attention_pairs
from charllm.workload.cut import PLAIN, Cut, cut_model
from charllm.workload.feedforward import feedforward
from charllm.workload.linear import COLUMN_READS, linear
from charllm.workload.moe import expert_tokens, moe
from charllm.workload.norm import norm, residual
from charllm.workload.op import Kept, Module, Op
from charllm.workload.recurrence import recurrence
from charllm.workload.vocabulary import embedding, head, mtp_entry

MODEL = Model(name="m", layers=3, hidden=8, ffn=12, heads=4, kv_heads=2, head_dim=2, vocab=10)
TOKENS, SHARD = 12, 6
"""Two sequences of six tokens; outside the products a rank of two has half of them."""


def cut(
    model: dict[str, Any] | None = None, framework: dict[str, Any] | None = None, degrees: dict[str, Any] | None = None,
    **training: Any,
) -> Cut:  # fmt: skip
    return cut_model(
        replace(MODEL, **(model or {})),
        Training(**{"seq_length": 6, "micro_batch_size": 2, "global_batch_size": 2, **training}),
        replace(PLAIN, **(framework or {})),
        Parallelism(**(degrees if degrees is not None else {"tp": 2, "sp": True})),
    )


def op_tuple(op: Op) -> tuple[Any, ...]:
    if op.message_bytes:
        return op.kind, op.group, op.message_bytes, op.sent_bytes
    return op.kind, op.direction, op.flop, op.read_bytes, op.written_bytes, op.shape


def ops(found: tuple[Op, ...]) -> list[tuple[Any, ...]]:
    return [op_tuple(op) for op in found]


def kept(module: Module) -> list[float]:
    return [tensor.size_bytes for tensor in module.kept]


def memory(module: Module) -> tuple[float, float, float]:
    return module.forward_scratch_bytes, module.backward_scratch_bytes, module.hole_bytes


def elements(module: Module) -> tuple[float, float, float]:
    return module.weights, module.frozen_weights, module.partial_weights


def test_an_embedding_looks_its_rows_up_and_adds_them_over_ranks() -> None:
    (one,) = embedding(cut())
    # 12 tokens x 8 x 2 bytes; five of ten rows on each rank.
    assert ops(one.forward) == [
        ("embedding", "forward", 0, 192, 192, (12, 8)),
        ("reduce_scatter", "tp", 192, 96),
    ]
    assert ops(one.backward) == [("all_gather", "tp", 192, 96), ("embedding", "backward", 0, 192, 384, (12, 8))]
    assert elements(one) == (40, 0, 0)
    assert one.tensors == ((5, 8),)
    assert kept(one) == []
    assert memory(one) == (192, 192 + 80, 0)


def test_an_embedding_without_shared_sequence_reduces_once() -> None:
    (one,) = embedding(cut(degrees={"tp": 2, "sp": False}))
    assert ops(one.forward)[1:] == [("all_reduce", "tp", 192, 192)]
    assert [op.kind for op in one.backward] == ["embedding"]


def test_learned_positions_are_rows_of_their_own_that_every_rank_has() -> None:
    (one,) = embedding(cut({"position": "learned", "seq_length": 16, "dropout_fraction": 0.1}))
    assert elements(one) == (40 + 128, 0, 128)
    assert one.tensors == ((5, 8), (16, 8))
    assert kept(one) == [SHARD * 8]
    (longer,) = embedding(cut({"position": "learned", "seq_length": 2}))
    assert longer.tensors == ((5, 8), (6, 8))


def test_a_frozen_embedding_has_no_gradient() -> None:
    (one,) = embedding(cut(lora_rank=2))
    assert elements(one) == (0, 40, 0)
    assert [op.kind for op in one.backward] == ["all_gather"]
    assert memory(one) == (192, 192, 0)
    assert embedding(cut({"vocab": 0})) == ()


@pytest.mark.parametrize(
    ("kind", "tp", "logit_bytes", "moved", "kept_bytes", "extra"),
    [
        # 16-bit logits that their gradient overwrites; a scaled copy.
        ("fused", 2, 2, (3, 2), 0, (0, 2, 0)),
        ("vocab-parallel", 2, 0, (19, 7), 4, (2, 2, 0)),
        ("fp32", 1, 0, (7, 11), 4, (6, 8, 2)),
        # Shifted logits and their exponentials, four bytes each.
        ("fp32", 2, 0, (7, 11), 4, (14, 8, 2)),
        ("compiled", 2, 2, (2, 6), 0, (0, 6, 0)),
    ],
)
def test_a_loss_holds_and_moves_so_many_bytes_a_logit(
    kind: str, tp: int, logit_bytes: float, moved: tuple[float, float], kept_bytes: float, extra: tuple[float, ...]
) -> None:
    share = cut(framework={"cross_entropy": kind}, degrees={"tp": tp, "sp": tp > 1})
    _norm, lm_head, loss = head(share, owns_weight=True)
    logits = TOKENS * 10 // tp
    assert lm_head.kept[-1] == Kept("logits", logits * logit_bytes)
    assert kept(loss) == [logits * kept_bytes]
    assert memory(loss) == tuple(logits * one for one in extra)
    rows = (TOKENS, 10 // tp)
    # Three numbers of four bytes a token.
    reduced = [("all_reduce", "tp", 144, 144)] if tp > 1 else []
    assert ops(loss.forward) == [("loss", "forward", 0, logits * moved[0], logits * moved[0], rows), *reduced]
    assert ops(loss.backward) == [("loss", "backward", 0, logits * moved[1], logits * moved[1], rows)]


def test_a_loss_is_reduced_in_three_messages_where_all_are_told() -> None:
    loss = head(cut(framework={"every_message": True}), owns_weight=True)[-1]
    assert ops(loss.forward)[1:] == [("all_reduce", "tp", 48, 48)] * 3


def test_a_head_multiplies_by_its_own_or_a_lent_weight() -> None:
    own, lent = (head(cut(), owns_weight=owns)[1] for owns in (True, False))
    assert (elements(own), own.tensors) == ((40, 0, 0), ((5, 8),))
    assert (elements(lent), lent.tensors) == ((0, 0, 0), ())
    assert kept(own) == [SHARD * 8 * 2, 12 * 5 * 2]
    returned = head(cut(framework={"returns_outputs": True}), owns_weight=True)[1]
    assert returned.kept[-1] == Kept("logits", 12 * 5 * 4, returned=True)


def test_heads_of_narrow_runs_stay_in_16_bits() -> None:
    lm_head = head(cut(precision="fp8"), owns_weight=True)[1]
    assert {op.precision for op in lm_head.forward} == {"bf16"}
    assert "cast" not in {op.kind for op in lm_head.forward}


def test_a_model_without_vocabulary_may_end_in_the_mean_square() -> None:
    last = head(cut({"vocab": 0}, {"square_loss": True}), owns_weight=True)[-1]
    # 6 x 8 outputs: cast 2 + 4, square 4 + 4, mean 4; copy 4 + 4, two products 6 + 6 and 8 + 4, cast back 4 + 2 bytes.
    assert ops(last.forward) == [("square loss", "forward", 0, 480, 384, (6, 8))]
    assert ops(last.backward) == [("square loss", "backward", 0, 960, 672, (6, 8))]
    assert kept(last) == [192]
    assert [one.name for one in head(cut({"vocab": 0}), owns_weight=True)] == ["final norm"]


def test_a_prediction_layer_joins_two_inputs() -> None:
    both, proj = mtp_entry(cut())
    assert elements(both) == (16, 0, 16)
    assert ops(both.forward) == [("norm", "forward", 0, 192, 192, (12, 8))]
    assert kept(proj) == [2 * 6 * 8 * 2]
    # Of its own tokens: 6 x 16 times 16 x 8.
    assert ops(proj.forward) == [("gemm", "forward", 1536, 2 * (96 + 128), 96, (1, 6, 8, 16))]


def test_a_column_gathers_its_input_and_scatters_the_gradient() -> None:
    one = linear(cut(), "c", 8, 20, split="column", bias=True, input_kept=(Kept("x", 96.0),))
    # Rank: 12 x 8 times 8 x 10; its gradients are written in four bytes.
    assert ops(one.forward) == [
        ("all_gather", "tp", 192, 96),
        ("gemm", "forward", 1920, 352, 240, (1, 12, 10, 8)),
    ]
    assert ops(one.backward) == [
        *([("all_gather", "tp", 192, 96)] if PLAIN.gathers_again else []),
        ("gemm", "dgrad", 1920, 2 * (120 + 80), 192, (1, 12, 8, 10)),
        ("reduce_scatter", "tp", 192, 96),
        ("gemm", "wgrad", 1920, 2 * (120 + 96), 320, (1, 10, 8, 12)),
    ]
    assert elements(one) == (90, 0, 0)
    assert one.tensors == ((10, 8), (10, 1))
    assert kept(one) == [96]
    assert memory(one) == (2 * (96 + 120), 2 * (96 + 120 + 96), 0)


def test_a_row_scatters_its_output_and_gathers_the_gradient() -> None:
    one = linear(cut(), "r", 20, 8, split="row", bias=True)
    assert ops(one.forward) == [
        ("gemm", "forward", 1920, 2 * (120 + 80), 192, (1, 12, 8, 10)),
        ("reduce_scatter", "tp", 192, 96),
    ]
    assert ops(one.backward)[0] == ("all_gather", "tp", 192, 96)
    assert elements(one) == (88, 0, 8)
    assert memory(one) == (192, 2 * (96 + 120), 0)


def test_a_whole_product_works_on_the_ranks_own_tokens() -> None:
    one = linear(cut(), "w", 8, 20, bias=True)
    assert ops(one.forward) == [("gemm", "forward", 1920, 2 * (48 + 160), 240, (1, 6, 20, 8))]
    assert elements(one) == (180, 0, 180)
    assert memory(one) == (240, 2 * (120 + 48), 0)


def test_products_that_are_not_packed_add_their_gradients() -> None:
    share = cut(framework={"packed_projections": False}, degrees={})
    one = linear(share, "c", 8, 20, split="column", parts=(12, 4, 4))
    assert [op.shape for op in one.forward] == [(1, 12, 12, 8), (1, 12, 4, 8), (1, 12, 4, 8)]
    adds = [op_tuple(op) for op in one.backward if op.kind == "add"]
    assert adds == [("add", "backward", 0, 384, 192, ())] * 2
    assert [op.shape for op in one.backward if op.direction == "wgrad"] == [
        (1, 12, 8, 12),
        (1, 4, 8, 12),
        (1, 4, 8, 12),
    ]
    assert one.tensors == ((12, 8), (4, 8), (4, 8))


def test_biases_of_plain_modules_are_summed_over_tokens() -> None:
    one = linear(cut(framework={"plain_modules": True}, degrees={}), "c", 8, 20, bias=True)
    assert op_tuple(one.backward[-1]) == ("bias gradient", "backward", 0, 480, 40, (12, 20))


@pytest.mark.parametrize(("precision", "reads", "operand"), [("fp8", 1, 1.0), ("nvfp4", 3, None)])
def test_a_narrow_operand_is_written_twice(precision: str, reads: int, operand: float | None) -> None:
    share = cut(degrees={}, precision=precision)
    one = linear(share, "c", 8, 20)
    each = operand or share.operand_bytes
    assert op_tuple(one.forward[0]) == ("cast", "forward", 0, reads * 192, 2 * 96 * each, ())
    assert op_tuple(one.backward[0]) == ("cast", "backward", 0, reads * 480, 2 * 240 * each, ())


def test_an_adapter_runs_beside_frozen_weights() -> None:
    share = cut(degrees={}, lora_rank=2, lora_targets=("fc1",), lora_dropout_fraction=0.1)
    one = linear(share, "c", 8, 20, target="fc1", input_kept=(Kept("x", 192.0),))
    product = ("gemm", "forward", 3840, 2 * (96 + 160), 480, (1, 12, 20, 8))
    assert ops(one.forward) == [
        product,
        ("dropout", "forward", 0, 192, 288, ()),
        ("gemm", "forward", 384, 2 * (96 + 16), 48, (1, 12, 2, 8)),
        ("gemm", "forward", 960, 2 * (24 + 40), 480, (1, 12, 20, 2)),
        ("elementwise", "forward", 0, 480, 480, ()),
        ("elementwise", "forward", 0, 960, 480, ()),
    ]
    assert ops(one.backward) == [
        ("gemm", "dgrad", 3840, 2 * (240 + 160), 192, (1, 12, 8, 20)),
        ("elementwise", "backward", 0, 480, 480, ()),
        ("gemm", "dgrad", 960, 2 * (240 + 40), 48, (1, 12, 2, 20)),
        ("gemm", "wgrad", 960, 2 * (240 + 24), 160, (1, 20, 2, 12)),
        ("gemm", "dgrad", 384, 2 * (24 + 16), 192, (1, 12, 8, 2)),
        ("gemm", "wgrad", 384, 2 * (24 + 96), 64, (1, 2, 8, 12)),
        ("dropout", "backward", 0, 288, 192, ()),
        ("elementwise", "backward", 0, 384, 192, ()),
    ]
    assert kept(one) == [288, 48]
    assert elements(one) == (56, 160, 0)


def test_a_norm_keeps_its_input_and_statistics() -> None:
    one = norm(cut(), "n", 48, 8)
    assert ops(one.forward) == [("norm", "forward", 0, 96, 96, (6, 8))]
    assert ops(one.backward) == [("norm", "backward", 0, 192, 96, (6, 8))]
    # Six rows with a number of four bytes each.
    assert kept(one) == [96 + 24]
    assert elements(one) == (8, 0, 8)
    assert memory(one) == (96, 192, 0)
    shifted = norm(cut({"norm": "layernorm"}), "n", 48, 8)
    assert kept(shifted) == [96 + 48]
    assert elements(shifted) == (16, 0, 16)
    assert shifted.tensors == ((8, 1), (8, 1))
    assert kept(norm(cut(framework={"norm": "chain"}), "n", 48, 8)) == [120, 48 * 6]


def test_weights_of_a_norm_are_partial_where_ranks_see_some_of_its_rows() -> None:
    apart = {"tp": 2, "sp": False}
    assert norm(cut(degrees=apart), "n", 48, 8).partial_weights == 0
    assert norm(cut(degrees=apart), "n", 48, 2, of_heads=True).partial_weights == 2
    assert norm(cut(degrees={}), "n", 48, 2, of_heads=True).partial_weights == 0


def test_a_residual_adds_two_streams_and_drops_some_of_one() -> None:
    plain, dropped = residual(cut(), "r"), residual(cut({"dropout_fraction": 0.1}), "r")
    assert ops(plain.forward) == [("residual", "forward", 0, 192, 96, ())]
    assert ops(plain.backward) == [("add", "backward", 0, 192, 96, ())]
    assert ops(dropped.forward) == [("residual", "forward", 0, 192, 144, ())]
    assert ops(dropped.backward)[1:] == [("dropout", "backward", 0, 144, 96, ())]
    assert (kept(plain), kept(dropped)) == ([], [48])
    assert memory(plain) == (96, 96, 0)


@pytest.mark.parametrize(("gated", "fused", "narrow"), [(True, True, False), (True, False, False), (False, True, True)])
def test_a_feed_forward_block_by_hand(gated: bool, fused: bool, narrow: bool) -> None:
    share = cut(
        {"activation": "swiglu" if gated else "gelu"}, {"fused_activation": fused}, narrow_activation_input=narrow
    )
    fc1, activation, fc2 = feedforward(share, 12)
    inner, inputs = 12 * 6, 12 * 6 * (2 if gated else 1)
    extra = 2 * inner if gated and not fused else 0
    assert fc1.forward[-1].shape == (1, 12, 12 if gated else 6, 8)
    assert op_tuple(activation.forward[0]) == ("activation", "forward", 0, 2 * inputs + extra, 2 * inner + extra, ())
    moved = (2 * (inputs + inner) + extra, 2 * inputs + extra)
    assert op_tuple(activation.backward[0]) == ("activation", "backward", 0, *moved, ())
    assert kept(activation) == [inputs * (1 if narrow else 2), *([2 * inner] if extra else [])]
    assert memory(activation) == (2 * inner, 2 * (inputs + inner), 0)
    assert (kept(fc1), kept(fc2)) == ([96], [144])
    assert fc2.forward[0].shape == (1, 12, 8, 6)


def test_a_sparse_block_by_hand() -> None:
    sparse = {"experts": 4, "topk": 2, "expert_ffn": 6}
    share = cut(sparse, {"grouped_gemm": True}, {"ep": 2, "dp": 2}, capacity_factor=1.0)
    router, dispatch, fc1, act, fc2, combine = moe(share)
    # 12 tokens by 4 experts, in four bytes.
    assert ops(router.forward) == [
        ("gemm", "forward", 768, 2 * (96 + 32), 192, (1, 12, 4, 8)),
        ("router", "forward", 0, 192, 192, (12, 4)),
    ]
    assert ops(router.backward) == [
        ("router", "backward", 0, 192, 192, (12, 4)),
        ("gemm", "dgrad", 768, 2 * (48 + 32), 384, (1, 12, 8, 4)),
        ("gemm", "wgrad", 768, 2 * (48 + 96), 128, (1, 4, 8, 12)),
    ]
    assert kept(router) == [192, 384]
    assert elements(router) == (32, 0, 0)
    # 24 copies of 16 bytes; half of them leave the rank; what arrives is sorted once more.
    assert [op[:4] for op in ops(dispatch.forward) if op[0] == "all_to_all"] == [("all_to_all", "ep", 384, 192)]
    sort = next(op for op in dispatch.forward if op.kind == "permute")
    assert op_tuple(sort) == ("permute", "forward", 0, 192 + 384, 384 + 384, (42, 8))
    assert memory(dispatch) == memory(combine) == (768, 768, 0)
    back = next(op for op in combine.forward if op.kind == "unpermute")
    assert (back.read_bytes, back.written_bytes) == (768, 576)
    # Two experts of twelve rows each, gate and up in one product of width 12.
    assert ops(fc1.forward) == [("grouped_gemm", "forward", 4608, 2 * 2 * (96 + 96), 2 * 2 * 144, (2, 12, 12, 8))]
    assert ops(fc1.backward) == [
        ("grouped_gemm", "dgrad", 4608, 2 * 2 * (144 + 96), 2 * 2 * 96, (2, 12, 8, 12)),
        ("grouped_gemm", "wgrad", 4608, 2 * 2 * (144 + 96), 2 * 4 * 96, (2, 12, 8, 12)),
    ]
    assert (elements(fc1), elements(fc2)) == ((192, 0, 0), (96, 0, 0))
    assert (kept(fc1), kept(act), kept(fc2)) == ([384], [576], [288])
    assert memory(fc1) == (2 * 288, 2 * (192 + 288), 0)


SPARSE: dict[str, Any] = {"experts": 4, "topk": 2, "expert_ffn": 6}


def test_ranks_that_share_an_expert_gather_its_tokens() -> None:
    share = cut(SPARSE, None, {"tp": 2, "sp": True, "ep": 2, "etp": 2}, capacity_factor=1.5)
    # 6 tokens x 2 experts x 2 ranks x 1.5 = 36.
    assert expert_tokens(share) == 36
    dispatch = next(one for one in moe(share) if one.name == "dispatch")
    gathers = [op_tuple(op) for op in dispatch.forward if op.group == "etp"]
    assert gathers == [("all_gather", "etp", 36 * 16, 36 * 8)]
    fc1 = next(one for one in moe(share) if one.name == "expert fc1")
    assert fc1.weights == 2 * 8 * 6


def test_an_experts_bias_is_added_in_fp32() -> None:
    plain = {"ep": 2, "dp": 2}
    fc2 = next(
        one for one in moe(cut({**SPARSE, "bias": "mlp"}, None, plain, capacity_factor=1.0)) if one.name == "expert fc2"
    )
    elements_moved = 24 * 8
    assert op_tuple(fc2.forward[-1]) == ("expert bias", "forward", 0, 14 * elements_moved, 14 * elements_moved, (24, 8))
    assert op_tuple(fc2.backward[0]) == (
        "expert bias",
        "backward",
        0,
        26 * elements_moved,
        18 * elements_moved,
        (24, 8),
    )
    assert fc2.weights == 2 * (6 * 8 + 8)


def test_a_rank_with_one_expert_sorts_tokens_once() -> None:
    share = cut({**SPARSE, "experts": 2}, None, {"ep": 2, "dp": 2}, capacity_factor=1.0)
    sort = next(op for one in moe(share) for op in one.forward if op.kind == "permute")
    # Each of 12 tokens is read once, and written for both experts.
    assert (sort.read_bytes, sort.written_bytes, sort.shape) == (192, 384, (18, 8))


def test_counts_of_tokens_are_exchanged_and_gathered_where_all_messages_are_told() -> None:
    share = cut(SPARSE, {"every_message": True}, {"tp": 2, "sp": True, "ep": 2, "etp": 2})
    dispatch = next(one for one in moe(share) if one.name == "dispatch")
    # Four integers of eight bytes, twice as many gathered.
    assert [op_tuple(op) for op in dispatch.forward[1:3]] == [
        ("all_to_all", "ep", 32, 16),
        ("all_gather", "etp", 64, 32),
    ]


@pytest.mark.parametrize(
    ("queries", "causal", "window", "expected"),
    [(6, False, 0, 36), (6, True, 0, 18), (6, True, 2, 10), (6, False, 2, 10), (6, True, 6, 18), (6, True, 8, 18)],
)
def test_pairs_of_queries_and_keys_are_those_of_the_mask(
    queries: int, causal: bool, window: int, expected: float
) -> None:
    assert attention_pairs(queries, causal, window) == expected


def named(modules: tuple[Module, ...], name: str) -> Module:
    return next(one for one in modules if one.name == name)


def test_flash_attention_by_hand() -> None:
    core = named(attention(cut(), 0), "core attention")
    # A rank has two query heads and one key-value head of width 2 for 12 tokens; 18 pairs in each of two sequences.
    pairs, query, key_value, log_sum = 2 * 2 * 18, 48, 48, 96
    shape = (2, 2, 1, 6, 6, 2, 2)
    assert ops(core.forward) == [("attention", "forward", 2 * pairs * 4, 192, 96 + log_sum, shape)]
    assert ops(core.backward) == [("attention", "backward", 2 * pairs * 10, 2 * (96 + 96) + log_sum, 192, shape)]
    assert kept(core) == [2 * query, 2 * key_value, 96, log_sum]
    assert memory(core) == (0, 2 * 144, 0)
    assert elements(core) == (0, 0, 0)
    assert named(attention(cut({"attention_sinks": True}), 0), "core attention").weights == 2


def test_packed_documents_and_windows_have_fewer_pairs() -> None:
    packed = named(attention(cut(document_tokens=3), 0), "core attention").forward[0]
    # Two documents of three tokens in each sequence: 4.5 pairs each.
    assert packed.flop == 2 * 2 * 2 * 9 * 4
    assert packed.shape == (4, 2, 1, 3, 3, 2, 2)
    windowed = named(attention(cut(), 2), "core attention").forward[0]
    assert windowed.flop == 2 * 2 * 2 * 10 * 4
    chunked = named(attention(cut({"window_kind": "chunked"}), 2), "core attention").forward[0]
    # Three pieces of two tokens with two pairs each.
    assert chunked.flop == 2 * 2 * 2 * 6 * 4


def test_the_projections_of_grouped_queries_by_hand() -> None:
    modules = attention(cut({"qk_norm": True, "attention_gate": True, "bias": "qkv"}), 0)
    assert [one.name for one in modules] == ["qkv", "qk norm", "rope", "core attention", "attention gate", "proj"]
    qkv, qk_norm, rope, _core, gate, proj = modules
    # Queries and their gates are 16 wide, keys and values 4 each: 12 on a rank.
    assert qkv.forward[-1].shape == (1, 12, 12, 8)
    assert qkv.weights == 12 * 8 + 12
    assert qk_norm.weights == 4
    moved = 12 * (2 + 1) * 2 * 2
    assert ops(qk_norm.forward) == [("norm", "forward", 0, moved, moved, (36, 2))]
    assert ops(rope.forward) == [("rope", "forward", 0, moved, moved, ())]
    assert kept(rope) == ([moved] if PLAIN.packed_qkv else [])
    assert ops(gate.forward) == [("activation", "forward", 0, 192, 96, ())]
    assert ops(gate.backward) == [("activation", "backward", 0, 288, 192, ())]
    assert (kept(gate), memory(gate)) == ([192], (96, 192, 0))
    assert proj.forward[0].shape == (1, 12, 8, 4)
    assert proj.weights == 32


def test_unfused_attention_writes_its_scores() -> None:
    core = named(attention(cut({"dropout_fraction": 0.1}, {"attention": "unfused"}), 0), "core attention")
    scores = 2 * 2 * 6 * 6
    products = [op_tuple(op) for op in core.forward if op.kind == "gemm"]
    # Two sequences of two heads; 48 query elements, 24 of keys and of values.
    assert products == [
        ("gemm", "forward", 2 * 4 * 72, 2 * (48 + 24), 2 * scores, (4, 6, 6, 2)),
        ("gemm", "forward", 2 * 4 * 72, 2 * (scores + 24), 96, (4, 6, 2, 6)),
    ]
    assert [(op.shape, op.read_bytes, op.written_bytes) for op in core.backward if op.kind == "gemm"] == [
        ((4, 6, 6, 2), 2 * (48 + 24), 2 * scores),
        ((4, 6, 2, 6), 2 * (scores + 48), 48),
        ((4, 6, 2, 6), 2 * (scores + 24), 96),
        ((4, 6, 2, 6), 2 * (scores + 48), 48),
    ]
    dropout = ("dropout", "forward", 0, 2 * scores, 3 * scores, ())
    assert dropout in ops(core.forward)
    assert kept(core)[:6] == [96, 96, 2 * scores, 96, 2 * scores, scores]


def test_context_ranks_exchange_keys_and_values() -> None:
    ring, gathered, heads = (
        named(attention(cut({}, {"ring_exchange": how}, {"cp": 2, "cp_kind": kind}), 0), "core attention")
        for how, kind in (("sends", "ring"), ("all-gather", "ring"), ("sends", "all-to-all"))
    )
    # Six tokens a rank of four query heads and two key-value heads: 48 elements of each.
    assert [op_tuple(op) for op in ring.forward if op.group] == [("ring_exchange", "cp", 96, 96)]
    assert [op_tuple(op) for op in ring.backward if op.group] == [("ring_exchange", "cp", 192, 192)]
    merges = [op_tuple(op) for op in (*ring.forward, *ring.backward) if op.kind == "merge"]
    assert merges == [("merge", "forward", 0, 48 * 6, 48 * 4, (1,)), ("merge", "backward", 0, 96 * 6, 96 * 4, (1,))]
    assert [op_tuple(op) for op in gathered.forward if op.group] == [("all_gather", "cp", 192, 96)]
    assert [op_tuple(op) for op in gathered.backward if op.group] == [("reduce_scatter", "cp", 192, 96)]
    assert [op_tuple(op) for op in heads.forward if op.group] == [("all_to_all", "cp", 288, 144)]


def test_operands_that_are_gathered_may_be_kept_whole() -> None:
    one = linear(cut(framework={"keeps_gathered": True}), "c", 8, 20, split="column", input_kept=(Kept("x", 96.0),))
    assert kept(one) == [192]
    assert elements(one) == (80, 0, 0)
    assert elements(linear(cut(), "r", 20, 8, split="row")) == (80, 0, 0)


def test_a_chain_of_softmax_kernels_goes_through_fp32() -> None:
    # Six queries are no multiple of four: 144 scores in a chain.
    core = named(attention(cut({}, {"attention": "unfused"}), 0), "core attention")
    moved = [(2, 4), (4, 4), (4, 4), (4, 4), (4, 2)]
    chain = [(op.read_bytes, op.written_bytes) for op in core.forward if "softmax" in op.name]
    assert chain == [(144 * read, 144 * written) for read, written in moved]
    back = [(op.read_bytes, op.written_bytes) for op in core.backward if "softmax" in op.name]
    assert back == [(144 * read, 144 * written) for read, written in [(2, 4), (8, 4), (4, 4), (4, 4), (4, 2)]]
    assert memory(core) == (288, 576, 0)


@pytest.mark.parametrize(
    ("batch", "seq", "fused"), [(2, 8, True), (2, 6, False), (1, 8, False), (2, 4096, True), (2, 4100, False)]
)
def test_softmax_is_fused_where_sizes_go_in_fours_and_rows_are_short(batch: int, seq: int, fused: bool) -> None:
    share = cut({}, {"attention": "unfused"}, seq_length=seq, micro_batch_size=batch, global_batch_size=batch)
    core = named(attention(share, 0), "core attention")
    assert sum("softmax" in op.name for op in core.forward) == (1 if fused else 5)
    softmax = next(op for op in core.forward if op.kind == "softmax")
    assert softmax.shape == (batch * 2 * seq, seq)
    if fused:
        back = next(op for op in core.backward if op.kind == "softmax")
        assert back.read_bytes == 2 * back.written_bytes == 2 * softmax.read_bytes


LATENT: dict[str, Any] = {
    "attention": "mla", "kv_heads": 4, "q_lora_rank": 6, "kv_lora_rank": 4, "rope_head_dim": 2, "v_head_dim": 2,
}  # fmt: skip


def test_latent_attention_passes_through_narrow_layers() -> None:
    modules = attention(cut(LATENT), 0)
    shapes = {one.name: one.forward[-1].shape for one in modules if one.forward[-1].kind == "gemm"}
    # Queries and keys are four wide, two of it for position.
    assert shapes == {"q_down": (1, 6, 6, 8), "q_up": (1, 12, 8, 6), "kv_down": (1, 6, 6, 8), "kv_up": (1, 12, 8, 4)}
    assert named(modules, "q norm").forward[0].shape == (6, 6)
    assert named(modules, "kv norm").forward[0].shape == (6, 4)
    assert (kept(named(modules, "q_up")), kept(named(modules, "kv_up"))) == ([72], [48])
    # Two heads of 12 tokens: six passes over two numbers of query and key each, then four copied.
    assert named(modules, "rope").forward[0].read_bytes == 2 * (6 * 12 * 2 * 2 * 2 + 12 * 2 * 2 * 4)
    fused = attention(cut(LATENT, {"fused_latent_rope": True}), 0)
    assert named(fused, "rope").forward[0].read_bytes == 2 * 12 * 2 * 2 * 2
    core = named(modules, "core attention")
    assert kept(core) == [2 * 12 * 2 * 4, 2 * 12 * 2 * 6, 2 * 12 * 2 * 2, 96]
    assert core.forward[0].flop == 2 * 2 * 2 * 18 * 6


def test_an_indexer_scores_all_earlier_tokens() -> None:
    modules = attention(cut({**LATENT, "index_heads": 3, "index_head_dim": 2, "index_topk": 2}), 0)
    scoring = named(modules, "index scores")
    # 18 pairs of each of two sequences; three heads and a key of width two for 12 tokens.
    pairs, operands = 36, 12 * 4 * 2 * 2
    shape = (2, 18, 3, 2)
    assert ops(scoring.forward) == [
        ("gemm", "forward", 2 * pairs * 6, operands, 4 * pairs, shape),
        ("elementwise", "forward", 0, 4 * pairs, 96, ()),
    ]
    back = ("gemm", "dgrad", 2 * pairs * 6, 4 * pairs + operands, operands, shape)
    assert ops(scoring.backward) == [back, back]
    assert (kept(scoring), memory(scoring)) == ([96], (144, 144, 0))
    assert named(modules, "index q").forward[-1].shape == (1, 6, 6, 6)
    assert named(modules, "index k").forward[-1].shape == (1, 6, 2, 8)
    assert named(modules, "index weights").forward[-1].shape == (1, 6, 3, 8)
    # Each query attends to two keys.
    assert named(modules, "core attention").forward[0].flop == 2 * 2 * 2 * 10 * 6


HYBRID: dict[str, Any] = {"pattern": "M-*", "ssm_heads": 4, "ssm_head_dim": 4, "ssm_state": 2, "ssm_groups": 2}


def test_a_scan_by_hand() -> None:
    projected_in, convolution, scan, normed, out = recurrence(cut(HYBRID), "M")
    # 16 channels, eight on a rank with a group of two states: x, z, B, C and a step for each of two heads.
    assert projected_in.forward[-1].shape == (1, 12, 22, 8)
    assert ops(convolution.forward) == [("convolution", "forward", 0, 288, 288, ())]
    assert ops(convolution.backward)[1] == ("convolution", "backward", 0, 576, 288, ())
    assert kept(convolution) == [12 * 22 * 2]
    assert (elements(convolution)[0], memory(convolution)) == (12 * 5, (288, 576, 0))
    stream, states, scores, factors = 192, 12 / 128 * 16, 12 * 128 * 4, 48
    shape = (12, 2, 1, 4, 2)
    with_state, inside, products = 2 * 12 * 16, 12 * 128 * 8, 2 * 12 * 128 * 2
    assert ops(scan.forward) == [(
        "scan", "forward", 2 * with_state + inside + products, 2 * stream + 6 * states + scores + 4 * factors,
        stream + 6 * states + scores, shape,
    )]  # fmt: skip
    assert ops(scan.backward) == [(
        "scan", "backward", 5 * with_state + 3 * inside + 3 * products,
        10 * stream + 14 * states + 5 * scores + 8 * factors, stream + 12 * states + 2 * scores + 4 * factors, shape,
    )]  # fmt: skip
    assert memory(scan) == (6 * states + scores, 2 * stream + 8 * states + 2 * scores, 0)
    assert (kept(scan), elements(scan)) == ([192], (6, 0, 0))
    assert ops(normed.forward) == [("norm", "forward", 0, 384, 192, (12, 8))]
    assert ops(normed.backward) == [("norm", "backward", 0, 576, 384, (12, 8))]
    assert (kept(normed), elements(normed), memory(normed)) == ([48], (8, 0, 0), (192, 384, 0))
    assert out.forward[0].shape == (1, 12, 8, 8)


def test_a_delta_rule_by_hand() -> None:
    rule, normed = recurrence(cut(HYBRID), "D")[2:4]
    values, keys, states, triangles = 192, 96, 12 / 64 * 16 * 2, 12 * 64 * 2 * 2
    (forward,), (backward,) = rule.forward, rule.backward
    assert forward.read_bytes == 6 * keys + 4 * values + states + triangles
    assert forward.written_bytes == 3 * keys + 3 * values + states + triangles
    assert backward.read_bytes == 13 * keys + 9 * values + 3 * states + 2 * triangles
    assert backward.written_bytes == 5 * keys + 5 * values + 2 * states + triangles
    assert memory(rule) == (
        2 * keys + 2 * values + states + triangles, 4 * keys + 4 * values + 2 * states + 2 * triangles, 0
    )  # fmt: skip
    assert (elements(rule)[0], elements(normed)[0], kept(normed)) == (4, 4, [96])


@pytest.mark.parametrize(("precision", "wide"), [("fp8", [48]), ("bf16", [])])
def test_experts_in_a_latent_keep_what_they_project(precision: str, wide: list[int]) -> None:
    share = cut({**SPARSE, "expert_latent": 4}, None, {"tp": 2, "sp": True}, precision=precision)
    modules = moe(share)
    down, up = named(modules, "latent down"), named(modules, "latent up")
    # Six tokens of eight; without a cast copy the router keeps them already.
    assert kept(down) == wide
    assert kept(up) == [6 * 4 * (1 if precision == "fp8" else 2)]
    assert (down.forward[-1].shape, up.forward[-1].shape) == ((1, 6, 4, 8), (1, 6, 8, 4))


def test_scales_of_rows_cast_columns_apart() -> None:
    def read_bytes(scaling: str, precision: str) -> float:
        made = cut(framework={"fp8_scaling": scaling}, precision=precision)
        return sum(op.read_bytes for op in linear(made, "fc", 8, 12).forward if op.kind == "cast")

    assert read_bytes("row", "fp8") == (1 + COLUMN_READS) * read_bytes("tensor", "fp8") > 0
    assert read_bytes("row", "mxfp8") == read_bytes("tensor", "mxfp8")
