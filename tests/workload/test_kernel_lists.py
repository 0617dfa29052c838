"""The kernels of each kind of op, written down by hand for a few sizes."""

from dataclasses import replace
from typing import Any

import pytest

from charllm.catalog.resolve import resolve_cluster, resolve_run
from charllm.gpu.memory_bound import STREAMS
from charllm.spec.generation import Generation
from charllm.spec.run import RunSpec
from charllm.workload.kernel_calls import LOOPED_S, SMALL_S, Launched, moving, sized
from charllm.workload.launches import launched
from charllm.workload.op import Op

MOVED = 4096.0
"""Bytes that an op reads, and as many that it writes."""


def run(model: dict[str, Any] | None = None, degrees: dict[str, Any] | None = None, **framework: Any) -> RunSpec:
    """Return a run of four microbatches whose framework is described in full."""
    found = resolve_run({
        "model": "mixtral-8x7b", "cluster": "h200x8", "training": {"global_batch_size": 32},
        "parallelism": {"ep": 2, **(degrees or {})},
    })  # fmt: skip
    plain = replace(found.framework, undescribed_fraction=0.0, plain_modules=False, **framework)
    return replace(found, framework=plain, model=replace(found.model, **(model or {})))


def op(kind: str, direction: str = "forward", shape: tuple[int, ...] = (), **more: Any) -> Op:
    return Op(kind, kind, **{"read_bytes": MOVED, "written_bytes": MOVED, **more}, shape=shape, direction=direction)


def bytes_of(found: tuple[Launched, ...]) -> list[tuple[str, float, int]]:
    """Return kind, bytes of one kernel that streams, and how many of it."""
    return [(one.shape.kind, one.shape.dims[0] * STREAMS[one.shape.kind].element_bytes, one.times) for one in found]


def test_host_time_is_that_of_calls_loops_and_small_ops() -> None:
    one = Launched(sized("copy", (8,)).shape, 3, calls=2.0, looped=4.0, small=0.5)
    assert one.host_s(1e-5) == pytest.approx(2e-5 + 4 * LOOPED_S + 0.5 * SMALL_S)


def test_a_product_is_one_call_of_the_best_kernel() -> None:
    (product,) = launched(op("gemm", shape=(1, 64, 32, 16)), run())
    assert (product.shape.dims, product.shape.variant, product.times, product.calls) == (
        (1, 64, 32, 16),
        "best",
        1,
        1.7,
    )


def test_a_weights_gradient_is_added_to_what_earlier_microbatches_left() -> None:
    wgrad = op("gemm", "wgrad", (1, 64, 32, 16), written_bytes=2.0 * 64 * 32)
    (fused,) = launched(wgrad, run(fused_gradients=True))
    assert fused.shape.variant == "accumulated"
    product, added = launched(wgrad, run(fused_gradients=False))
    assert product.shape.variant == "wgrad"
    # Three of four microbatches read both gradients and write one, two bytes each.
    assert added == moving(0.75 * 6 * 64 * 32, "add")._replace(events=0.75)


def test_products_of_experts_are_grouped_or_a_loop() -> None:
    grouped = op("grouped_gemm", shape=(4, 64, 32, 16), expert=True)
    (looped,) = launched(grouped, run(grouped_launch=False))
    (once,) = launched(grouped, run(grouped_launch=True))
    assert (looped.shape.kind, looped.calls, looped.looped, looped.events) == ("grouped_gemm", 2.0, 4, 4)
    assert (once.looped, once.events) == (0, 2)
    (alone,) = launched(op("gemm", shape=(4, 64, 32, 16), expert=True), run())
    assert (alone.shape.dims, alone.times) == ((1, 64, 32, 16), 4)
    (weight, *_added) = launched(grouped._replace(direction="wgrad"), run())
    assert weight.shape.kind == "grouped_wgrad"


def test_engines_run_experts_in_few_kernels_as_low_as_their_rows() -> None:
    product = op("grouped_gemm", shape=(4, 2, 32, 16), expert=True, precision="fp8")
    cast, route = op("cast", shape=(8, 16), expert=True), op("router", shape=(8, 8))
    for kernels, variant in (("fused", "best"), ("triton", "tiled")):
        engine = run(expert_kernels=kernels)
        (one,) = launched(product, engine)
        assert (one.shape.kind, one.shape.dims, one.shape.variant, one.looped) == ("gemm", (4, 2, 32, 16), variant, 0)
        assert [found.times for found in (*launched(cast, engine), *launched(route, engine))] == [1, 2]
    (wide,) = launched(product._replace(precision="bf16"), run(expert_kernels="triton"))
    assert (wide.shape.variant, wide.shape.rate) == ("best", 1.0)
    by_row = run(expert_kernels="triton", fp8_scaling="row")
    assert launched(product, by_row)[0].shape.variant == "best"
    blackwell = replace(run(expert_kernels="triton"), cluster=resolve_cluster("b200x8"))
    assert launched(product, blackwell)[0].shape.variant == "best"


@pytest.mark.parametrize(("batch", "rate"), [(4, 1.0), (6, 0.85), (8, 0.7), (64, 0.7)])
def test_a_part_of_the_experts_decodes_more_tokens_than_it_has_experts_at_a_lower_rate(batch: int, rate: float) -> None:
    product = op("grouped_gemm", shape=(4, 2, 32, 16), expert=True)
    engine = run(expert_kernels="triton")
    decoding = replace(
        engine,
        training=replace(engine.training, micro_batch_size=batch, seq_length=1),
        generation=Generation(prompt_tokens=8, new_tokens=8, context_tokens=8),
    )
    (one,) = launched(product, decoding)
    assert one.shape.rate == pytest.approx(rate)
    whole = replace(decoding, parallelism=replace(engine.parallelism, ep=1))
    assert launched(product, whole)[0].shape.rate == 1.0


@pytest.mark.parametrize(("direction", "products", "calls"), [("forward", 2, 2.0), ("backward", 5, 5.0)])
def test_attention_has_the_length_of_its_pairs(direction: str, products: int, calls: float) -> None:
    # Half of 512 x 512 pairs of two sequences of four heads.
    flop = 2.0 * 2 * 4 * (512 * 512 / 2) * products * 64
    (kernel,) = launched(op("attention", direction, (2, 4, 2, 512, 512, 64, 64), flop=flop), run())
    assert kernel.shape.dims == (2, 4, 2, 512, 64)
    assert kernel.calls == calls
    # Heads of 72 and 40: 56 forward, (3 x 72 + 2 x 40) / 5 = 59.2 backward, in steps of eight.
    narrow = (216 + 80 if direction == "backward" else 112) / products
    mixed = op("attention", direction, (2, 4, 2, 512, 512, 72, 40), flop=flop / 64 * narrow)
    (kernel,) = launched(mixed, run())
    assert kernel.shape.dims == (2, 4, 2, 512, 64 if direction == "backward" else 56)
    wide = op("attention", direction, (2, 4, 2, 512, 512, 576, 512), flop=flop)
    assert launched(wide, run())[0].shape.dims[-1] == 256


def test_attention_with_sinks_computes_what_lies_outside_a_window() -> None:
    flop = 2.0 * 2 * 4 * (512 * 128 - 128 * 128 / 2) * 2 * 64
    windowed = op("attention", shape=(2, 4, 2, 512, 512, 64, 64), flop=flop)
    assert launched(windowed, run({"attention_sinks": True}))[0].shape.dims[3] == 512
    # The root of twice 57,344 pairs.
    assert launched(windowed, run())[0].shape.dims[3] == 339


def test_a_norm_is_one_kernel_or_a_chain() -> None:
    forward, backward = (op("norm", way, (16, 128)) for way in ("forward", "backward"))
    one = run(norm="fused")
    assert [(found.shape.kind, found.shape.dims) for found in launched(forward, one)] == [("rmsnorm", (16, 128))]
    (found,) = launched(backward, one)
    assert (found.shape.kind, found.calls, found.events) == ("rmsnorm_backward", 2.0, 2)
    shifted = launched(forward, run({"norm": "layernorm"}, norm="fused"))
    assert shifted[0].shape.kind == "norm"
    chain = run(norm="chain")
    for each, element_bytes in ((forward, (6, 8, 8, 6)), (backward, (6, 8, 8, 6, 8, 8))):
        # In whole elements of six bytes.
        assert [size for _, size, _ in bytes_of(launched(each, chain))] == pytest.approx(
            [2048 * size for size in element_bytes], abs=3
        )


def test_a_rotation_is_one_kernel_or_two_chains() -> None:
    turned = op("rope")
    assert launched(turned, run(fused_rope=True)) == (moving(2 * MOVED),)
    chain = launched(turned, run(fused_rope=False))
    # 2,048 elements: four fifths are queries.
    shares = (1.0, 0.5, 1.0, 1.0, 1.0)
    assert [one.shape.dims[0] for one in chain] == [round(half * 2048 * each) for half in (0.8, 0.2) for each in shares]
    latent = op("latent rope")
    assert launched(latent, run(fused_latent_rope=True)) == (moving(2 * MOVED),)
    counts = [
        launched(latent._replace(direction=way), run(fused_latent_rope=False))[0] for way in ("forward", "backward")
    ]
    assert [one.times for one in counts] == [30, 45]
    assert counts[0].shape == moving(2 * MOVED / 30).shape


def test_an_activation_works_on_its_own_elements() -> None:
    # Gated and fused: 1,024 outputs of two bytes forward, gradients of two inputs backward.
    forward, backward = (
        op("activation", way, written_bytes=written) for way, written in (("forward", 2048.0), ("backward", 4096.0))
    )
    fused = run(fused_activation=True)
    assert launched(forward, fused) == (moving(6.0 * 1024, "gelu"),)
    assert launched(backward, fused) == (moving(10.0 * 1024, "gelu"),)
    # In a chain, what lies between two kernels is written, too.
    apart = run(fused_activation=False, packed_projections=False)
    found = [(one.shape.kind, one.shape.dims[0]) for one in launched(forward._replace(written_bytes=4096.0), apart)]
    assert found == [("silu", 1024), ("add", 1024)]
    found = [(one.shape.kind, one.shape.dims[0]) for one in launched(backward._replace(written_bytes=6144.0), apart)]
    assert found == [("add", 1024), ("add", 1024), ("silu_backward", 1024)]
    ungated = run({"activation": "gelu"})
    assert launched(forward, ungated)[0].shape == sized("gelu", (1024,)).shape
    assert launched(forward._replace(direction="backward"), ungated)[0].shape == sized("gelu_backward", (1024,)).shape


def test_experts_that_weigh_their_outputs_have_a_gradient_of_the_weight() -> None:
    backward = op("activation", "backward", written_bytes=4096.0, expert=True)
    weighing = run(weighs_in_experts=True, fused_activation=True, grouped_gemm=True)
    kernel, gradient = launched(backward, weighing)
    assert gradient == moving(6.0 * 1024)._replace(calls=0.0, small=1.0)
    assert kernel.times == 1
    looped = replace(weighing, framework=replace(weighing.framework, grouped_gemm=False))
    # Four of eight experts on a rank.
    kernel, _gradient = launched(backward, looped)
    assert (kernel.times, kernel.shape) == (4, moving(2560.0, "gelu").shape)


@pytest.mark.parametrize(
    ("kind", "stream", "small"),
    [("residual", "add", 0.0), ("add", "add", 0.0), ("dropout", "dropout", 0.0), ("elementwise", "copy", 1.0)],
)
def test_a_stream_is_one_kernel(kind: str, stream: str, small: float) -> None:
    (one,) = launched(op(kind), run())
    assert (one.shape, one.small, one.calls) == (moving(2 * MOVED, stream).shape, small, 1.0 - small)


def test_what_a_framework_does_beside_is_a_share_of_the_stream() -> None:
    found = run()
    found = replace(found, framework=replace(found.framework, undescribed_fraction=0.25))
    _one, extra = launched(op("residual"), found)
    assert extra == moving(0.25 * 2 * MOVED)._replace(calls=0.0, small=1.0)
    assert len(launched(op("dropout"), found)) == 1


def test_blocks_of_a_ring_are_merged_one_after_the_other() -> None:
    for way, streams, small in (("forward", 3, 5 + 11 * 2), ("backward", 6, 2 + 6 * 2)):
        moved, others = launched(op("merge", way, (2,)), run())
        assert (moved.shape, moved.times) == (moving(2 * MOVED / (2 * streams), "add").shape, 2 * streams)
        assert others.times == small


def test_operands_are_cast_at_once_or_expert_by_expert() -> None:
    assert launched(op("cast"), run()) == (moving(2 * MOVED, "cast"),)
    (each,) = launched(op("cast", expert=True), run())
    assert (each.times, each.calls, each.looped) == (12, 0.0, 1.0)
    assert each.small == pytest.approx(1 / 3)
    assert each.shape == moving(2 * MOVED / 12, "cast").shape


def test_a_router_is_small_kernels_streams_and_a_choice() -> None:
    fused, apart = run(fused_router=True), run(fused_router=False)
    forward, backward = (op("router", way, (64, 8)) for way in ("forward", "backward"))
    assert [(one.shape.kind, one.times) for one in launched(forward, apart)] == [("tiny", 22), ("copy", 4), ("topk", 1)]
    assert [(one.shape.kind, one.times) for one in launched(forward, fused)] == [("tiny", 22), ("copy", 4)]
    small, streams = launched(backward, apart)
    assert (small.times, small.small, small.calls) == (50, 1.0, 0.0)
    assert streams.shape == moving(MOVED).shape
    fixed = replace(apart, training=replace(apart.training, capacity_factor=1.0))
    assert launched(backward, fixed)[0].times == 30


def test_rows_are_sorted_by_one_kernel_or_by_several() -> None:
    fused, grouped, looped = (
        run(fused_permute=fused, grouped_gemm=grouped)
        for fused, grouped in ((True, True), (False, True), (False, False))
    )
    tokens = fused.training.micro_batch_size * fused.training.seq_length

    def names(kind: str, way: str, found: RunSpec) -> list[tuple[str, int, int]]:
        return [(one.shape.kind, one.shape.dims[0], one.times) for one in launched(op(kind, way, (80, 16)), found)]

    assert names("permute", "forward", fused) == names("unpermute", "backward", fused) == [("permute", 80, 1)]
    assert names("permute", "forward", grouped) == [
        ("permute", 80, 1),
        ("fill", 80, 1),
        ("copy", 80, 1),
        ("strided", 80, 1),
    ]
    assert names("permute", "forward", looped) == [("permute", 20, 4)]
    assert names("permute", "backward", grouped) == [("permute", 80, 1), ("fill", tokens, 1), ("index_add", 80, 1)]
    assert names("permute", "backward", looped) == [("fill", tokens, 4), ("index_add", 20, 4), ("add", tokens, 4)]
    assert names("unpermute", "forward", looped) == [("strided_add", 20, 4), ("index_add", 20, 4)]
    back = [("permute", 80, 1), ("strided_add", 80, 1), ("add", 80, 1), ("fill", 80, 1), ("index_add", 80, 1)]
    assert names("unpermute", "backward", grouped) == back
    assert names("unpermute", "backward", looped) == [("permute", 20, 4), ("strided_add", 20, 4), ("add", 20, 4)]


def test_an_experts_bias_is_a_chain_through_fp32() -> None:
    forward = bytes_of(launched(op("expert bias", shape=(64, 16)), run()))
    # 1,024 elements; four experts on a rank.
    assert forward == [("outer_product", 1024, 4), ("accumulate", 2560, 4), ("cat", 8192, 1), ("to_16bit", 6144, 1)]
    backward = bytes_of(launched(op("expert bias", "backward", (64, 16)), run()))
    assert [one[::2] for one in backward] == [
        ("to_fp32", 1), ("to_16bit", 4), ("cat", 1), ("scaled_rows", 8), ("column_sum", 8), ("tiny", 12)
    ]  # fmt: skip
    assert [one[1] for one in backward[:5]] == [6144, 1536, 4096, 2048, 1024]


def test_the_ends_of_a_step_by_hand() -> None:
    found = run(cross_entropy="fp32")
    for way, kind, events in (("forward", "loss", 4), ("backward", "loss_backward", 6)):
        (loss,) = launched(op("loss", way, (64, 100)), found)
        assert (loss.shape.kind, loss.shape.dims, loss.events) == (kind, (64, 100), events)
    assert launched(op("loss", shape=(64, 100)), run(cross_entropy="fused")) == (moving(2 * MOVED),)
    table = found.model.vocab * found.model.hidden
    (rows,) = launched(op("embedding", shape=(64, 16)), found)
    assert rows == sized("embedding", (64, 16))
    cleared, added = launched(op("embedding", "backward", (64, 16)), found)
    assert (cleared, added) == (moving(2.0 * table, "fill"), moving(6.0 * 1024, "embedding_backward"))
    norm, scaled = launched(op("clip", "step", written_bytes=2048.0), found)
    assert (norm, scaled) == (moving(2048.0, "norm_of_tensor"), moving(4096.0, "scale"))
    narrow = run(moment_precision="16bit", master_weights=False)
    kinds = [launched(op("optimizer", "step"), one)[0] for one in (found, narrow)]
    assert kinds == [moving(2 * MOVED, "optimizer"), moving(2 * MOVED, "optimizer_16bit")]
    forward, backward = (launched(op("square loss", way, (64, 16)), found) for way in ("forward", "backward"))
    assert forward == (sized("to_fp32", (64, 16)), moving(8192.0), moving(4096.0))
    assert backward == (moving(8192.0), Launched(moving(10240.0).shape, 2), sized("to_16bit", (64, 16)))


@pytest.mark.parametrize(
    ("kind", "direction", "stream", "count"),
    [("convolution", "forward", "convolution", 1), ("convolution", "backward", "convolution_backward", 1),
     ("scan", "forward", "scan", 5), ("scan", "backward", "scan_backward", 45), ("delta", "forward", "scan", 6),
     ("delta", "backward", "scan", 10)],
)  # fmt: skip
def test_a_recurrence_is_so_many_equal_kernels(kind: str, direction: str, stream: str, count: int) -> None:
    (one,) = launched(op(kind, direction), run())
    assert (one.shape, one.times) == (moving(2 * MOVED / count, stream).shape, count)
