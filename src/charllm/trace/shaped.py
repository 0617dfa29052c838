"""Operators whose operands are kept from a trace: their FLOPs or bytes follow from the sizes."""

PRODUCTS = {
    "aten::mm": (0, 1), "aten::bmm": (0, 1), "aten::_scaled_mm": (0, 1), "aten::_int_mm": (0, 1),
    "aten::addmm": (1, 2), "aten::baddbmm": (1, 2), "aten::addmm_": (1, 2), "aten::baddbmm_": (1, 2),
}  # fmt: skip
"""Operator: which of its operands are the factors."""
COPIES = ("aten::copy_",)
MOVES = (
    "aten::add", "aten::add_", "aten::sub", "aten::sub_", "aten::mul", "aten::mul_", "aten::div", "aten::div_",
    "aten::silu", "aten::gelu", "aten::relu", "aten::silu_backward", "aten::gelu_backward", "aten::threshold_backward",
)  # fmt: skip
OPERATORS = frozenset((*PRODUCTS, *COPIES, *MOVES))
