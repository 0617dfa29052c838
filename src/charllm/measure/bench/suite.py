"""Which ops the bench runs, and how: enough to calibrate a GPU in ten minutes."""

from typing import NamedTuple

from charllm.gpu.shape import KernelShape
from charllm.units import MILLI

CAPPED_S, SHORT_S = 5.0, 2.0
"""Ops that meet the power cap run long enough for the counter's 100 ms steps to matter less than 1 %."""


class OpCase(NamedTuple):
    """One op and how it is run."""

    group: str
    name: str
    shape: KernelShape | None
    """None: nothing is computed."""
    seconds_s: float
    mode: str = "steady"
    """steady: back to back. burst: on for `on_s`, off until `period_s`. beside: with `beside` on a second stream."""
    on_s: float = 0.0
    period_s: float = 0.0
    beside: str = ""
    """spin or copy: a kernel on `blocks` blocks, beside the op or alone."""
    blocks: int = 0
    repeated: bool = False
    """Whether the short suite runs it too, to tell how well readings repeat."""


GPT3, LLAMA70, MIXTRAL = 12288, 8192, 4096


def full_suite() -> list[OpCase]:
    """List every case, in the order of the text; the bench shuffles them."""
    return [
        *_large_gemms(),
        *_small_gemms(),
        *_other_formats(),
        *_attention(),
        *_streams(),
        *_values(),
        *_bursts(),
        *_beside(),
    ]


def short_suite() -> list[OpCase]:
    """List the cases that are run a second time."""
    return [case for case in full_suite() if case.repeated]


def _gemm(
    group: str, name: str, m: int, n: int, k: int, *, repeated: bool = False, seconds_s: float = CAPPED_S
) -> OpCase:
    return OpCase(group, name, KernelShape("gemm", (1, m, n, k)), seconds_s, repeated=repeated)


def _large_gemms() -> list[OpCase]:
    """Products of GPT-3 175B and Llama 70B as tensor parallelism cuts them, their weight gradients, and squares."""
    cases = []
    for tp in (1, 2, 4, 8):
        shapes = {
            "qkv": (3 * GPT3 // tp, GPT3),
            "proj": (GPT3, GPT3 // tp),
            "fc1": (4 * GPT3 // tp, GPT3),
            "fc2": (GPT3, 4 * GPT3 // tp),
        }
        cases += [_gemm("gemm", f"gpt3.{name}.tp{tp}", 2048, n, k, repeated=tp == 8) for name, (n, k) in shapes.items()]
    for tp in (2, 8):
        cases += [
            _gemm("gemm", f"llama70.gate-up.tp{tp}", 8192, 57344 // tp, LLAMA70, repeated=tp == 8),
            _gemm("gemm", f"llama70.down.tp{tp}", 8192, LLAMA70, 28672 // tp),
            _gemm("gemm", f"llama70.qkv.tp{tp}", 8192, 10240 // tp, LLAMA70),
        ]
    cases += [
        _gemm("gemm", "gpt3.fc1.wgrad.tp8", 4 * GPT3 // 8, GPT3, 2048),
        _gemm("gemm", "gpt3.fc2.wgrad.tp2", GPT3, 4 * GPT3 // 2, 2048),
        _gemm("gemm", "gpt3.proj.wgrad.tp4", GPT3, GPT3 // 4, 2048),
        _gemm("gemm", "gpt3.fc1.mbs8.tp8", 16384, 4 * GPT3 // 8, GPT3),
        _gemm("gemm", "gpt3.qkv.mbs4.tp2", 8192, 3 * GPT3 // 2, GPT3),
        _gemm("gemm", "llama8.gate-up", 8192, 28672, 4096),
        _gemm("gemm", "llama8.down", 8192, 4096, 14336),
        _gemm("gemm", "llama8.head", 4096, 128256, 4096),
    ]
    return cases + [
        _gemm("gemm", f"square.{size}", size, size, size, repeated=size == 8192) for size in (4096, 8192, 16384)
    ]


def _small_gemms() -> list[OpCase]:
    """Few rows, narrow or shallow products, and ones so small that the host sets their pace."""
    cases = []
    for rows in (64, 128, 256, 512, 1024):
        cases += [
            _gemm("small gemm", f"mixtral.gate-up.m{rows}", rows, 28672, MIXTRAL, repeated=rows == 256, seconds_s=2.5),
            _gemm("small gemm", f"mixtral.down.m{rows}", rows, MIXTRAL, 14336, repeated=rows == 256, seconds_s=2.5),
        ]
    cases += [
        _gemm("small gemm", "skinny.n128", 8192, 128, 8192, seconds_s=SHORT_S, repeated=True),
        _gemm("small gemm", "skinny.k128", 8192, 8192, 128, seconds_s=SHORT_S),
        _gemm("small gemm", "skinny.n1280", 2048, 1280, 8192, seconds_s=2.5),
        _gemm("small gemm", "narrow.1024", 16384, 1024, 1024, seconds_s=2.5),
        _gemm("small gemm", "moe.up.m256", 256, 1536, 4096, seconds_s=SHORT_S),
        _gemm("small gemm", "square.2048", 2048, 2048, 2048, seconds_s=2.5, repeated=True),
        _gemm("host-bound", "square.512", 512, 512, 512, seconds_s=SHORT_S, repeated=True),
        _gemm("host-bound", "square.1024", 1024, 1024, 1024, seconds_s=SHORT_S),
    ]
    return cases


def _other_formats() -> list[OpCase]:
    """fp8 products, and the grouped products of experts."""
    fp8 = [
        OpCase("fp8 gemm", name, KernelShape("gemm", (1, m, n, k), "fp8"), CAPPED_S, repeated=name == "fp8.8192")
        for name, m, n, k in (
            ("fp8.8192", 8192, 8192, 8192),
            ("fp8.gpt3.fc1.tp8", 2048, 4 * GPT3 // 8, GPT3),
            ("fp8.llama70.down.tp2", 8192, LLAMA70, 14336),
        )
    ]
    grouped = [
        OpCase("grouped gemm", f"grouped.{experts}x{rows}", KernelShape("grouped_gemm", (experts, rows, n, k)), 3.0)
        for experts, rows, n, k in (
            (8, 128, 28672, 4096),
            (8, 1024, 28672, 4096),
            (16, 256, 3072, 4096),
            (4, 4096, 28672, 4096),
        )
    ]
    return fp8 + grouped


def _attention() -> list[OpCase]:
    cases = []
    for batch, heads, kv_heads, seq in (
        (1, 96, 96, 2048),
        (1, 12, 12, 2048),
        (4, 12, 12, 2048),
        (1, 64, 8, 8192),
        (1, 8, 1, 8192),
        (2, 32, 8, 4096),
        (1, 16, 2, 32768),
    ):
        name = f"b{batch}h{heads}kv{kv_heads}s{seq}"
        dims = (batch, heads, kv_heads, seq, 128)
        repeated = seq == 4096
        cases += [
            OpCase("attention", f"{name}.forward", KernelShape("attention", dims), 3.0, repeated=repeated),
            OpCase("attention", f"{name}.backward", KernelShape("attention_backward", dims), 3.0, repeated=repeated),
        ]
    return cases


def _streams() -> list[OpCase]:
    """Kernels that only move memory."""
    mib = 1 << 19
    shapes = {
        "copy.64MiB": KernelShape("copy", (64 * mib,)),
        "copy.1GiB": KernelShape("copy", (1024 * mib,)),
        "copy.4GiB": KernelShape("copy", (4096 * mib,)),
        "copy.16MiB": KernelShape("copy", (16 * mib,)),
        "add.256MiB": KernelShape("add", (256 * mib,)),
        "add.4GiB": KernelShape("add", (4096 * mib,)),
        "layernorm.8192x12288": KernelShape("norm", (8192, GPT3)),
        "layernorm.1024x12288": KernelShape("norm", (1024, GPT3)),
        "layernorm.backward": KernelShape("norm_backward", (8192, GPT3)),
        "rmsnorm.8192x8192": KernelShape("rmsnorm", (8192, LLAMA70)),
        "rmsnorm.1024x8192": KernelShape("rmsnorm", (1024, LLAMA70)),
        "gelu.8192x12288": KernelShape("gelu", (8192, GPT3)),
        "gelu.backward": KernelShape("gelu_backward", (8192, GPT3)),
        "swiglu.8192x28672": KernelShape("swiglu", (8192, 28672)),
        "swiglu.8192x3584": KernelShape("swiglu", (8192, 3584)),
        "dropout-add.8192x12288": KernelShape("dropout_add", (8192, GPT3)),
        "softmax.24576x2048": KernelShape("softmax", (24576, 2048)),
        "cast.8192x8192": KernelShape("cast", (8192, LLAMA70)),
        "permute.16384x4096": KernelShape("permute", (16384, MIXTRAL)),
        "embedding.8192x8192": KernelShape("embedding", (8192, LLAMA70)),
        "loss.4096x32768": KernelShape("loss", (4096, 32768)),
        "adamw.2^28": KernelShape("optimizer", (1 << 28,), "fp32"),
        "adamw.2^24": KernelShape("optimizer", (1 << 24,), "fp32"),
    }
    repeated = ("copy.1GiB", "layernorm.8192x12288", "gelu.8192x12288", "adamw.2^28", "swiglu.8192x28672")
    return [OpCase("memory", name, shape, SHORT_S, repeated=name in repeated) for name, shape in shapes.items()]


def _values() -> list[OpCase]:
    """The same products on other numbers: power depends on how many bits toggle."""
    shapes = {"gpt3.fc1.tp8": (1, 2048, 6144, GPT3), "square.8192": (1, 8192, 8192, 8192)}
    return [
        OpCase(
            "values",
            f"{name}.{values}",
            KernelShape("gemm", dims, values=values),
            CAPPED_S,
            repeated=values == "trained",
        )
        for name, dims in shapes.items()
        for values in ("zeros", "trained")
    ]


def _bursts() -> list[OpCase]:
    """Duty cycles give power at full clock and the clock the cap allows; long bursts give the cap's filter."""
    shape = KernelShape("gemm", (1, 4096, GPT3, GPT3))
    duty = [
        OpCase("duty", f"duty.{percent}", shape, 3.5, "burst", on_s=0.005, period_s=0.5 / percent)
        for percent in (10, 20, 30, 40, 50, 60, 70, 80, 90)
    ]
    square = [
        OpCase(
            "square wave",
            f"burst.{on_s / MILLI:.0f}ms",
            shape,
            6.0 if on_s < 0.5 else 10.0,
            "burst",
            on_s=on_s,
            period_s=2 * on_s + 0.007,
        )
        for on_s in (0.02, 0.05, 0.1, 0.25, 1.0)
    ]
    soak = [
        OpCase("soak", "soak", shape, 35.0),
        OpCase("soak", "cool-down", None, 18.0),
        OpCase("soak", "idle", None, 4.0),
    ]
    return duty + square + soak


def _beside() -> list[OpCase]:
    """Waiting and moving on some multiprocessors, alone and beside a product or a stream."""
    gemm = KernelShape("gemm", (1, 4096, GPT3, GPT3))
    stream = KernelShape("copy", (512 << 20,))
    alone = [
        OpCase(
            "communication",
            f"{what}.{blocks}",
            None,
            SHORT_S,
            "beside",
            beside=what,
            blocks=blocks,
            repeated=blocks == 32,
        )
        for what, blocks in (
            ("spin", 1),
            ("spin", 16),
            ("spin", 32),
            ("spin", 132),
            ("copy", 4),
            ("copy", 16),
            ("copy", 32),
        )
    ]
    together = [
        OpCase("overlap", f"gemm+{what}.{blocks}", gemm, 3.0, "beside", beside=what, blocks=blocks)
        for what, blocks in (("spin", 16), ("spin", 32), ("copy", 8), ("copy", 16), ("copy", 32))
    ]
    return [*alone, *together, OpCase("overlap", "stream+copy.16", stream, 2.5, "beside", beside="copy", blocks=16)]
