"""The kernels themselves, on the CPU."""

import pytest
import torch

from charllm.errors import CharllmError
from charllm.gpu.shape import DIMENSIONS, KernelShape
from charllm.measure.kernels import device_code
from charllm.measure.kernels.torch_kernels import KERNELS, OUTLIER_SCALE, WEIGHT_SCALE, make_kernel

ATTENTION = (2, 4, 2, 16, 8)


def small(kind: str) -> KernelShape:
    dims = {2: (4, 16), 4: (2, 4, 8, 16), 5: ATTENTION}[DIMENSIONS[kind][-1]]
    return KernelShape(kind, dims, "fp32" if kind == "optimizer" else "bf16")


OUTPUTS = {
    "gemm": [(2, 4, 8)],
    "grouped_gemm": [(2, 4, 8)],
    "attention": [(2, 4, 16, 8)],
    "attention_backward": [(2, 4, 16, 8), (2, 2, 16, 8), (2, 2, 16, 8)],
    "norm_backward": [(4, 16), (16,), (16,)],
    "loss": [()],
    "optimizer": [],
}
"""Kind: shapes of what a launch returns; the others return as many elements as they were given."""


@pytest.mark.parametrize("kind", sorted(KERNELS))
def test_every_kernel_runs_again_and_again(kind: str) -> None:
    launch = make_kernel(small(kind), "cpu")
    for _ in range(3):
        out = launch()
    found = out if isinstance(out, tuple) else () if out is None else (out,)
    assert [tuple(one.shape) for one in found] == OUTPUTS.get(kind, [(4, 16)])
    assert all(bool(one.float().isfinite().all()) for one in found)


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
