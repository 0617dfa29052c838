"""The kernels themselves, on the CPU."""

import itertools
from math import prod

import pytest
import torch

from charllm.errors import CharllmError
from charllm.gpu.shape import DIMENSIONS, KernelShape
from charllm.measure.kernels import device_code
from charllm.measure.kernels.operands import OUTLIER_SCALE, WEIGHT_SCALE, Operands
from charllm.measure.kernels.torch_kernels import KERNELS, make_kernel

torch.set_num_threads(1)

ATTENTION = (2, 4, 2, 16, 8)
POOL_BYTES = 1 << 14


def small(kind: str) -> KernelShape:
    dims = {2: (4, 16), 4: (2, 8, 8, 16), 5: ATTENTION}[DIMENSIONS[kind][-1]]
    return KernelShape(kind, dims, "fp32" if kind == "optimizer" else "bf16")


OUTPUTS = {
    "gemm": [(2, 8, 8)],
    "grouped_gemm": [(2, 8, 8)],
    "grouped_wgrad": [(2, 8, 8)],
    "attention": [(2, 4, 16, 8)],
    "attention_backward": [(2, 4, 16, 8), (2, 2, 16, 8), (2, 2, 16, 8)],
    "norm_backward": [(4, 16), (16,), (16,)],
    "rmsnorm_backward": [(4, 16), (16,)],
    "dropout": [(4, 16), (4, 16)],
    "column_sum": [(16,)],
    "norm_of_tensor": [()],
    "topk": [(4, 2), (4, 2)],
    "index_add": [(1, 16)],
    "loss": [()],
    "optimizer": [],
    "optimizer_16bit": [],
}
"""Kind: shapes of what a launch returns; the others return as many elements as they were given."""


def tensors(out: object) -> list[torch.Tensor]:
    """List what a launch returned."""
    return [] if out is None else [out] if isinstance(out, torch.Tensor) else list(out)  # type: ignore[call-overload]


def test_every_kernel_but_those_that_only_benches_time_can_be_played() -> None:
    assert set(KERNELS) == set(DIMENSIONS) - {"attention_both"}


@pytest.mark.parametrize("kind", sorted(KERNELS))
@pytest.mark.parametrize("pool_bytes", [0, POOL_BYTES], ids=["alone", "shared"])
def test_every_kernel_runs_again_and_again(kind: str, pool_bytes: int) -> None:
    launch = make_kernel(small(kind), "cpu", Operands("cpu", pool_bytes))
    for _ in range(3):
        out = launch()
    found = tensors(out)
    if kind in OUTPUTS:
        assert [tuple(one.shape) for one in found] == OUTPUTS[kind]
    else:
        assert [one.numel() for one in found] == [64]
    assert all(bool(one.float().isfinite().all()) for one in found)


@pytest.mark.parametrize("kind", sorted(kind for kind in KERNELS if DIMENSIONS[kind][0] == 1))
@pytest.mark.parametrize("elements", [1, 100, 5000, 40_000])
def test_streams_take_any_number_of_elements(kind: str, elements: int) -> None:
    out = make_kernel(KernelShape(kind, (elements,)), "cpu", Operands("cpu", POOL_BYTES))()
    assert all(bool(one.float().isfinite().all()) for one in tensors(out))


def test_a_stream_larger_than_a_pool_is_several_launches_that_move_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []
    whole = torch.Tensor.copy_

    def count(target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        copied.append(source.numel())
        return whole(target, source)

    monkeypatch.setattr(torch.Tensor, "copy_", count)
    elements = 10 * POOL_BYTES
    make_kernel(KernelShape("copy", (elements // 16, 16)), "cpu", Operands("cpu", POOL_BYTES))()
    assert len(copied) >= 10
    assert elements <= sum(copied) < 1.05 * elements


def test_shared_operands_overlap_those_of_other_kernels_but_not_each_other() -> None:
    operands = Operands("cpu", POOL_BYTES)
    shape = KernelShape("add", (1,))

    def span(values: torch.Tensor) -> tuple[int, int]:
        return values.data_ptr(), values.data_ptr() + values.numel() * values.element_size()

    pools = set()
    for elements in (7, 100, 2048, 1500, 2048, 1, 2000, 2048):
        spans = sorted(span(operands.read(shape, elements)) for _ in range(3))
        assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))
        assert all(start % 16 == 0 for start, _end in spans)
        pools.add(spans[-1][1] // (2 * POOL_BYTES))
    assert len(pools) <= 3
    large = operands.read(shape, POOL_BYTES)
    assert operands.read(shape, POOL_BYTES).data_ptr() == large.data_ptr()
    assert prod(large.shape) == POOL_BYTES


@pytest.mark.parametrize("kind", ["gemm", "grouped_wgrad"])
def test_accumulated_products_add_to_what_is_there_in_fp32(kind: str) -> None:
    launch = make_kernel(KernelShape(kind, (2, 8, 16, 24), variant="accumulated"), "cpu")
    first = launch().clone()
    assert first.dtype == torch.float32
    assert torch.allclose(launch(), 2 * first)


@pytest.mark.parametrize("kind", ["grouped_gemm", "grouped_wgrad", "gemm"])
@pytest.mark.parametrize("precision", ["bf16", "mxfp8", "nvfp4"])
@pytest.mark.parametrize("variant", ["best", "accumulated"])
def test_products_of_any_number_of_rows_run_in_every_format(kind: str, precision: str, variant: str) -> None:
    out = make_kernel(KernelShape(kind, (2, 13, 16, 24), precision, variant=variant), "cpu")()
    assert all(bool(one.float().isfinite().all()) for one in tensors(out))


@pytest.mark.parametrize(("kind", "dims"), [("grouped_gemm", (4, 513, 99, 27)), ("grouped_wgrad", (4, 99, 27, 513))])
def test_grouped_products_have_the_strides_that_a_gpu_asks_for(kind: str, dims: tuple[int, ...]) -> None:
    # On the meta device torch checks what it checks on a GPU.
    tokens, weights = (torch.empty(4, 8, 27, dtype=torch.bfloat16, device="meta") for _ in range(2))
    ends = torch.empty(4, dtype=torch.int32, device="meta")
    with pytest.raises(RuntimeError, match="multiple of 16 bytes"):
        torch._grouped_mm(tokens.view(32, 27), weights.transpose(1, 2), offs=ends)
    padded = (520, 104) if kind == "grouped_gemm" else (104, 32)
    out = make_kernel(KernelShape(kind, dims), "meta")()
    assert tuple(out.shape) == ((4 * padded[0], padded[1]) if kind == "grouped_gemm" else (4, *padded))


@pytest.mark.parametrize("variant", ["best", "flash2", "flash1"])
def test_attention_runs_in_every_form(variant: str) -> None:
    assert make_kernel(KernelShape("attention", ATTENTION, variant=variant), "cpu")().shape == (2, 4, 16, 8)


@pytest.mark.parametrize("precision", ["fp16", "fp32", "fp8"])
def test_products_run_in_every_format(precision: str) -> None:
    out = make_kernel(KernelShape("gemm", (1, 16, 16, 32), precision), "cpu")()
    assert tuple(out.shape) == (16, 16)
    assert bool(out.float().isfinite().all())


def test_a_product_multiplies_left_by_right_transposed() -> None:
    ones = KernelShape("gemm", (1, 3, 5, 7), "fp32", "zeros")
    assert bool((make_kernel(ones, "cpu")() == 0).all())
    drawn = make_kernel(KernelShape("gemm", (1, 64, 64, 512), "fp32"), "cpu")()
    # Sums of 512 products of normal values have a variance of 512.
    assert float(drawn.var()) == pytest.approx(512, rel=0.1)


def test_trained_values_are_small_weights_and_rare_large_activations() -> None:
    torch.manual_seed(0)
    plain, trained = (
        float(make_kernel(KernelShape("gemm", (1, 256, 256, 2048), "fp32", values), "cpu")().var())
        for values in ("random", "trained")
    )
    expected = WEIGHT_SCALE**2 * (1 + 0.001 * (OUTLIER_SCALE**2 - 1))
    assert trained / plain == pytest.approx(expected, rel=0.1)


def test_attention_is_causal() -> None:
    torch.manual_seed(0)
    out = make_kernel(KernelShape("attention", (1, 1, 1, 8, 8), "fp32"), "cpu")
    torch.manual_seed(0)
    _query, _key, value = (torch.randn(1, 1, 8, 8) for _ in range(3))
    assert torch.allclose(out()[0, 0, 0], value[0, 0, 0])


def test_a_torch_that_cannot_compile_kernels_is_told_from_one_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.cuda, "_compile_kernel", raising=False)
    for make in (lambda: device_code.make_spin(1, 0.1), lambda: device_code._compile(device_code.COPY, "limited_copy")):
        with pytest.raises(CharllmError, match="needs a torch that can compile kernels"):
            make()


def test_compiled_kernels_are_launched_on_their_blocks_for_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    launched = []

    def compiler(_source: str, name: str) -> object:
        return lambda grid, block, args: launched.append((name, grid, block, args[-1]))

    monkeypatch.setattr(torch.cuda, "_compile_kernel", compiler, raising=False)
    monkeypatch.setattr(device_code, "_compiled", {})
    device_code.make_spin(16, 0.01)()
    assert launched == [("spin", (16, 1, 1), (512, 1, 1), 10_000_000)]
