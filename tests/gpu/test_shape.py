"""What a kernel is, and the work it is credited with."""

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from charllm.errors import SpecError
from charllm.gpu.memory_bound import STREAMS
from charllm.gpu.shape import DIMENSIONS, PRECISIONS, KernelShape, check_shape, work
from charllm.measure.kernels.operands import DTYPES
from charllm.measure.kernels.torch_kernels import KERNELS, make_kernel
from tests.workload.test_flop_against_torch import CPU_FLASH

MATRIX_KINDS = {"gemm", "grouped_gemm", "grouped_wgrad", "attention", "attention_backward"}


def torch_flop(shape: KernelShape) -> float:
    launch = make_kernel(shape, "cpu")
    with FlopCounterMode(display=False, custom_mapping=CPU_FLASH) as counter:
        launch()
    return float(counter.get_total_flops())


@pytest.mark.parametrize("kind", ["gemm", "grouped_gemm"])
@pytest.mark.parametrize("dims", [(1, 32, 48, 16), (3, 8, 24, 40)], ids=["single", "batched"])
def test_products_have_the_flop_that_torch_counts(kind: str, dims: tuple[int, ...]) -> None:
    shape = KernelShape(kind, dims)
    assert work(shape)[0] == torch_flop(shape)


@pytest.mark.parametrize("kind", ["attention", "attention_backward"])
@pytest.mark.parametrize("dims", [(2, 4, 4, 64, 16), (1, 6, 2, 32, 8)], ids=["all heads", "grouped"])
def test_causal_attention_has_half_of_what_torch_counts_for_the_full_square(kind: str, dims: tuple[int, ...]) -> None:
    shape = KernelShape(kind, dims)
    assert 2 * work(shape)[0] == torch_flop(shape)


def test_every_kernel_that_is_no_product_has_its_bytes_and_nothing_else_has() -> None:
    assert set(STREAMS) == set(KERNELS) - MATRIX_KINDS - {"cached_attention"}
    # Attention through autograd is timed as one op by some benches, and played as two.
    assert set(DIMENSIONS) == set(KERNELS) | {"attention_both"}
    assert set(PRECISIONS) == set(DTYPES)


def operand_bytes(*shapes: tuple[tuple[int, ...], int]) -> float:
    return float(sum(torch.Size(dims).numel() * size for dims, size in shapes))


@pytest.mark.parametrize(
    ("shape", "size_bytes"),
    [
        (KernelShape("gemm", (1, 4, 8, 16)), operand_bytes(((4, 16), 2), ((16, 8), 2), ((4, 8), 2))),
        (KernelShape("gemm", (1, 4, 8, 16), "fp8"), operand_bytes(((4, 16), 1), ((16, 8), 1), ((4, 8), 2))),
        (KernelShape("gemm", (1, 4, 8, 16), "fp32"), operand_bytes(((4, 16), 4), ((16, 8), 4), ((4, 8), 4))),
        (KernelShape("gemm", (3, 4, 8, 16)), 3 * operand_bytes(((4, 16), 2), ((16, 8), 2), ((4, 8), 2))),
        (
            KernelShape("attention", (2, 4, 2, 8, 16)),
            operand_bytes(*[((2, 4, 8, 16), 2)] * 2, *[((2, 2, 8, 16), 2)] * 2),
        ),
        (KernelShape("copy", (100,)), 400.0),
        (KernelShape("add", (10, 10)), 600.0),
        (KernelShape("rmsnorm", (4, 8)), 128.0),
        (KernelShape("optimizer", (10,), "fp32"), 280.0),
    ],
    ids=lambda value: value.label if isinstance(value, KernelShape) else "",
)
def test_bytes_are_each_input_once_and_each_output_once(shape: KernelShape, size_bytes: float) -> None:
    assert work(shape)[1] == size_bytes


def test_a_label_names_kind_dimensions_precision_and_unusual_values() -> None:
    assert KernelShape("gemm", (1, 2, 3, 4)).label == "gemm 1x2x3x4 bf16"
    assert KernelShape("gemm", (1, 2, 3, 4), "fp8", "zeros").label == "gemm 1x2x3x4 fp8 zeros"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (("gem", (1, 2, 3, 4)), "did you mean gemm"),
        (("gemm", (1, 2, 3)), "4 dimensions of at least 1"),
        (("gemm", (1, 2, 3, 0)), "4 dimensions of at least 1"),
        (("gemm", (1, 2, 3, 1.5)), "4 dimensions of at least 1"),
        (("gemm", (1, 2, 3, True)), "4 dimensions of at least 1"),
        (("copy", ()), "1 or 2 dimensions"),
        (("copy", 7), "1 or 2 dimensions"),
        (("copy", (7,), "bf61"), "did you mean bf16"),
    ],
)
def test_what_is_no_kernel_is_refused(fields: tuple[Any, ...], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        check_shape(KernelShape(*fields), "--timeline")


def test_what_is_a_kernel_is_taken() -> None:
    for kind, counts in DIMENSIONS.items():
        for count in counts:
            check_shape(KernelShape(kind, (8,) * count), "--timeline")
