"""What an eager training step launches, what a launch costs the host, and what single kernels cost the card.

    python3 benchmarks/device/kernel_lists.py OUT --part 1|2|3 [--until EPOCH_S] [--only TEXT] [--cpu]

Part 1 lists every kernel of one step of small plain decoders, with the op that launched it. Part 2 times the host on
tensors too small to keep the card busy. Part 3 runs single kernels back to back and reads watts and clock beside them.
Needs Python, torch and pynvml, and nothing of charllm. `--cpu` plays everything at toy sizes, to test the script.
"""

import argparse
import contextlib
import csv
import gc
import gzip
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.checkpoint import checkpoint

CPU = "--cpu" in sys.argv
DEVICE = "cpu" if CPU else "cuda"
BF16, FP32 = torch.bfloat16, torch.float32
MI = 1 << 20
COLD_BYTES = 300e6
GROUP_ROWS = 8


def sync() -> None:
    if not CPU:
        torch.cuda.synchronize()


def toy(size: int) -> int:
    """The size itself, or a small one where there is no card."""
    return max(16, size // 64 // 16 * 16) if CPU and size >= 16 else size


def append(path: Path, rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        if new:
            writer.writeheader()
        writer.writerows(rows)


# ---------------------------------------------------------------------------------------------------------- models


@dataclass(frozen=True)
class Spec:
    style: str = "llama"
    hidden: int = 4096
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    ffn: int = 14336
    layers: int = 3
    vocab: int = 0
    seq: int = 4096
    mbs: int = 1
    rope: str = "cached"
    fused_fc1: bool = False
    moe: str = ""
    experts: int = 8
    topk: int = 2
    clip: bool = False
    accumulate: int = 1
    recompute: bool = False


MID = Spec(hidden=2048, heads=16, kv_heads=16, ffn=5632, seq=2048, mbs=2)
GPT = Spec(style="gpt", hidden=2048, heads=16, kv_heads=16, ffn=8192, seq=2048, mbs=2, rope="")
SPARSE = Spec(hidden=2048, heads=16, kv_heads=4, ffn=1536, seq=4096)
VARIANTS: dict[str, Spec] = {
    "llama-chain": Spec(rope="chain"),
    "llama-cached-fc1": Spec(fused_fc1=True),
    "llama-mha": MID,
    "llama-head": Spec(vocab=128256),
    "llama-clip": replace(MID, clip=True),
    "llama-accumulate": replace(MID, accumulate=4),
    "llama-recompute": Spec(rope="chain", recompute=True),
    "gpt": GPT,
    "gpt-head": replace(GPT, vocab=50304),
    "moe-loop": replace(SPARSE, moe="loop"),
    "moe-grouped": replace(SPARSE, moe="grouped"),
}

ANNOTATE = False


def note(name: str) -> Any:
    return record_function(name) if ANNOTATE else contextlib.nullcontext()


def rotate_chain(x: Tensor) -> Tensor:
    """The trainer's chain: angles made anew at each call; x is [batch, heads, seq, dim]."""
    half = x.shape[-1] // 2
    positions = torch.arange(x.shape[-2], device=x.device, dtype=FP32)
    frequencies = 10_000.0 ** (-torch.arange(half, device=x.device, dtype=FP32) / half)
    angles = torch.outer(positions, frequencies)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x[..., :half], x[..., half : 2 * half]
    return torch.cat((first * cos - second * sin, first * sin + second * cos), -1)


def rotate_cached(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The Hugging Face form: cosines kept, the halves turned by a concatenation."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def angles_of(seq: int, dim: int) -> tuple[Tensor, Tensor]:
    half = torch.arange(dim // 2, device=DEVICE, dtype=FP32) / (dim // 2)
    angles = torch.outer(torch.arange(seq, device=DEVICE, dtype=FP32), 10_000.0**-half).repeat(1, 2)
    return angles.cos().to(BF16), angles.sin().to(BF16)


class Attention(nn.Module):  # type: ignore[misc]
    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec = spec
        query, key = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
        bias = spec.style == "gpt"
        if bias:
            self.qkv = nn.Linear(spec.hidden, query + 2 * key, bias=True)
        else:
            self.q = nn.Linear(spec.hidden, query, bias=False)
            self.k = nn.Linear(spec.hidden, key, bias=False)
            self.v = nn.Linear(spec.hidden, key, bias=False)
        self.proj = nn.Linear(query, spec.hidden, bias=bias)
        if spec.rope == "cached":
            self.cos, self.sin = angles_of(spec.seq, spec.head_dim)

    def forward(self, x: Tensor) -> Tensor:
        spec = self.spec
        batch, seq, _ = x.shape
        if spec.style == "gpt":
            width = spec.heads * spec.head_dim
            parts = self.qkv(x).split(width, -1)
        else:
            parts = self.q(x), self.k(x), self.v(x)
        query, key, value = (part.view(batch, seq, -1, spec.head_dim).transpose(1, 2) for part in parts)
        if spec.rope == "chain":
            query, key = rotate_chain(query), rotate_chain(key)
        elif spec.rope == "cached":
            query, key = rotate_cached(query, self.cos, self.sin), rotate_cached(key, self.cos, self.sin)
        out = functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=spec.heads != spec.kv_heads
        )
        return self.proj(out.transpose(1, 2).reshape(batch, seq, -1))


class FeedForward(nn.Module):  # type: ignore[misc]
    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec = spec
        bias = spec.style == "gpt"
        self.fc1 = nn.Linear(spec.hidden, spec.ffn * (2 if spec.fused_fc1 else 1), bias=bias)
        self.up = None if bias or spec.fused_fc1 else nn.Linear(spec.hidden, spec.ffn, bias=False)
        self.fc2 = nn.Linear(spec.ffn, spec.hidden, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        if self.spec.style == "gpt":
            inner = functional.gelu(self.fc1(x), approximate="tanh")
        elif self.up is None:
            gate, up = self.fc1(x).chunk(2, -1)
            inner = functional.silu(gate) * up
        else:
            inner = functional.silu(self.fc1(x)) * self.up(x)
        return self.fc2(inner)


class LoopMoe(nn.Module):  # type: ignore[misc]
    """Experts one after the other, as the trainer has them."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.topk = spec.topk
        self.router = nn.Linear(spec.hidden, spec.experts, bias=False)
        self.experts = nn.ModuleList(FeedForward(spec) for _ in range(spec.experts))

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, x.shape[-1])
        weights, chosen = self.router(tokens).float().softmax(-1).topk(self.topk, -1)
        weights = (weights / weights.sum(-1, keepdim=True)).to(tokens.dtype)
        order = chosen.flatten().argsort()
        counts = torch.bincount(chosen.flatten(), minlength=len(self.experts)).tolist()
        owners = order // self.topk
        parts = tokens[owners].split(counts)
        outputs = torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=True)])
        out = torch.zeros_like(tokens).index_add(0, owners, outputs * weights.flatten()[order, None])
        return out.view_as(x)


class ExplicitGrouped(torch.autograd.Function):  # type: ignore[misc]
    """A grouped product with its two gradients spelled out; weight is [experts, n, k]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight, offsets)
        return torch._grouped_mm(x, weight.transpose(-2, -1), offs=offsets)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight, offsets = ctx.saved_tensors
        grad = grad.contiguous()
        return (
            torch._grouped_mm(grad, weight, offs=offsets),
            torch._grouped_mm(grad.t(), x, offs=offsets),
            None,
        )


EXPLICIT = False


def grouped(x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
    if EXPLICIT:
        return ExplicitGrouped.apply(x, weight, offsets)
    return torch._grouped_mm(x, weight.transpose(-2, -1), offs=offsets)


class GroupedMoe(nn.Module):  # type: ignore[misc]
    """All experts in one grouped product, rows of each padded to a multiple of eight, and no synchronisation."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec = spec
        self.router = nn.Linear(spec.hidden, spec.experts, bias=False)
        self.fc1 = nn.Parameter(torch.randn(spec.experts, 2 * spec.ffn, spec.hidden) * 0.02)
        self.fc2 = nn.Parameter(torch.randn(spec.experts, spec.hidden, spec.ffn) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        spec = self.spec
        tokens = x.reshape(-1, x.shape[-1])
        weights, chosen = self.router(tokens).float().softmax(-1).topk(spec.topk, -1)
        weights = (weights / weights.sum(-1, keepdim=True)).to(tokens.dtype)
        flat = chosen.flatten()
        order = flat.argsort()
        owners = order // spec.topk
        counts = (flat[:, None] == torch.arange(spec.experts, device=x.device)).sum(0)
        padded = (counts + GROUP_ROWS - 1) // GROUP_ROWS * GROUP_ROWS
        ends = padded.cumsum(0)
        shift = ends - padded - (counts.cumsum(0) - counts)
        places = torch.arange(len(flat), device=x.device) + shift[flat[order]]
        rows = len(flat) + GROUP_ROWS * spec.experts
        gathered = torch.zeros(rows, x.shape[-1], dtype=x.dtype, device=x.device).index_copy(
            0, places, tokens.index_select(0, owners)
        )
        offsets = ends.to(torch.int32)
        gate, up = grouped(gathered, self.fc1, offsets).chunk(2, -1)
        outputs = grouped(functional.silu(gate) * up, self.fc2, offsets).index_select(0, places)
        out = torch.zeros_like(tokens).index_add(0, owners, outputs * weights.flatten()[order, None])
        return out.view_as(x)


class Layer(nn.Module):  # type: ignore[misc]
    def __init__(self, spec: Spec) -> None:
        super().__init__()
        make = nn.LayerNorm if spec.style == "gpt" else partial(nn.RMSNorm, eps=1e-5)
        self.norm1, self.norm2 = make(spec.hidden), make(spec.hidden)
        self.attention = Attention(spec)
        kinds: dict[str, Any] = {"": FeedForward, "loop": LoopMoe, "grouped": GroupedMoe}
        self.mlp = kinds[spec.moe](spec)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):  # type: ignore[misc]
    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec = spec
        self.layers = nn.ModuleList(Layer(spec) for _ in range(spec.layers))
        self.norm = nn.LayerNorm(spec.hidden) if spec.style == "gpt" else nn.RMSNorm(spec.hidden, eps=1e-5)
        if spec.vocab:
            self.embedding = nn.Embedding(spec.vocab, spec.hidden)
            self.head = nn.Linear(spec.hidden, spec.vocab, bias=False)
        if spec.style == "gpt":
            self.positions = nn.Embedding(spec.seq, spec.hidden)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        x = self.embedding(inputs) if self.spec.vocab else inputs
        if self.spec.style == "gpt":
            x = x + self.positions(torch.arange(x.shape[1], device=x.device))
        for index, layer in enumerate(self.layers):
            if self.spec.recompute:
                x = checkpoint(noted, layer, index, x, use_reentrant=False)
            else:
                x = noted(layer, index, x)
        x = self.norm(x)
        if not self.spec.vocab:
            return x.float().square().mean()
        return functional.cross_entropy(self.head(x).float().flatten(0, 1), targets.flatten())


def noted(layer: nn.Module, index: int, x: Tensor) -> Tensor:
    with note(f"layer:{index}"):
        return layer(x)


class Job:
    """A model, its optimizer and one batch; `phases` are what a bare loop does in a step."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        with torch.device(DEVICE):
            self.model = Decoder(spec).to(BF16)
        self.parameters = list(self.model.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-5, fused=True)
        shape = (spec.mbs, spec.seq)
        if spec.vocab:
            self.inputs = torch.randint(spec.vocab, shape, device=DEVICE)
        else:
            self.inputs = torch.randn(*shape, spec.hidden, device=DEVICE, dtype=BF16, requires_grad=True)
        self.targets = torch.randint(max(spec.vocab, 1), shape, device=DEVICE)
        self.loss: Tensor = torch.zeros(())

    def forward(self) -> None:
        self.loss = self.model(self.inputs, self.targets) / self.spec.accumulate

    def backward(self) -> None:
        self.loss.backward()

    def clip(self) -> None:
        if self.spec.clip:
            nn.utils.clip_grad_norm_(self.parameters, 1.0)

    def update(self) -> None:
        self.optimizer.step()

    def zero(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.inputs.grad = None

    def step(self) -> None:
        for _ in range(self.spec.accumulate):
            with note("phase:forward"):
                self.forward()
            with note("phase:backward"):
                self.backward()
        with note("phase:clip"):
            self.clip()
        with note("phase:optimizer"):
            self.update()
        with note("phase:zero"):
            self.zero()


def make_job(spec: Spec) -> Job:
    """A warm job; where the grouped product cannot be differentiated, its gradients are spelled out."""
    global EXPLICIT
    for _ in range(2):
        job = Job(spec)
        try:
            for _ in range(3):
                job.step()
            sync()
            return job
        except RuntimeError as failure:
            if EXPLICIT or spec.moe != "grouped":
                raise
            print("grouped: explicit gradients, because", str(failure).splitlines()[0], flush=True)
            EXPLICIT = True
    raise RuntimeError("unreachable")


def shrink(spec: Spec) -> Spec:
    """Tensors so small that the host binds; sparse ones still give every expert some rows."""
    kv = 4 if spec.kv_heads == spec.heads else 2
    small = replace(spec, hidden=256, heads=4, kv_heads=kv, head_dim=64, ffn=512, mbs=1, layers=2 if CPU else 20)
    return replace(small, seq=128 if spec.moe else 16, vocab=1024 if spec.vocab else 0)


# ---------------------------------------------------------------------------------------------------------- traces


def trace(work: Callable[[], Any]) -> list[dict[str, Any]]:
    """The profiler's events of `work`, as its chrome trace has them."""
    global ANNOTATE
    activities = [ProfilerActivity.CPU] if CPU else [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    sync()
    ANNOTATE = True
    try:
        with profile(activities=activities, record_shapes=True) as profiler:
            work()
            sync()
    finally:
        ANNOTATE = False
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        text = path.read_text()
    events: list[dict[str, Any]] = [event for event in json.loads(text)["traceEvents"] if event.get("ph") == "X"]
    return events + (_stand_ins(events) if CPU else [])


def _stand_ins(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Where there is no card, every aten op stands in for a kernel it launched, to test the linking."""
    out = []
    for number, event in enumerate([event for event in events if event.get("cat") == "cpu_op"]):
        moment = {
            "ts": event["ts"] + event["dur"] / 2,
            "dur": 0.0,
            "tid": event["tid"],
            "args": {"correlation": number},
        }
        out.append({**moment, "cat": "cuda_runtime", "name": "cudaLaunchKernel"})
        out.append({**moment, "cat": "kernel", "name": "stand-in"})
    return out


KERNELS = ("kernel", "gpu_memcpy", "gpu_memset")


def kernel_rows(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each kernel in order of execution, with the op, the layer and the phase that launched it."""
    stacks = _launch_stacks(events)
    layers = _forward_layers(events)
    kernels = sorted((event for event in events if event.get("cat") in KERNELS), key=lambda event: event["ts"])
    rows = []
    for index, kernel in enumerate(kernels):
        launch, stack = stacks.get(kernel["args"].get("correlation"), (None, []))
        names = [event["name"] for event in stack]
        node = next((event for event in reversed(stack) if event["name"].startswith("autograd::engine")), None)
        layer = next((name[6:] for name in reversed(names) if name.startswith("layer:")), "")
        phase = next((name[6:] for name in reversed(names) if name.startswith("phase:")), "")
        if node is not None:
            phase = "recompute" if layer else "backward"
        sequence = (node or {}).get("args", {}).get("Sequence number")
        origin = layers.get(sequence, ("", "")) if phase == "backward" else ("", "")
        atens = [event for event in stack if event.get("cat") == "cpu_op" and event["name"].startswith("aten::")]
        ops = atens or [event for event in stack if event.get("cat") == "cpu_op"]
        inner: dict[str, Any] = ops[-1] if ops else {"name": "", "args": {}}
        rows.append(
            {
                "index": index,
                "phase": phase,
                "layer": layer or origin[0],
                "kernel": kernel["name"][:80],
                "start_us": round(kernel["ts"] - kernels[0]["ts"], 2),
                "us": round(kernel["dur"], 3),
                "host_us": round(launch["ts"] - kernels[0]["ts"], 1) if launch else "",
                "op": inner["name"],
                "shapes": json.dumps(inner["args"].get("Input Dims", [])).replace(" ", ""),
                "types": ";".join(str(kind) for kind in inner["args"].get("Input type", [])[:3]),
                "outer_op": ops[0]["name"] if ops else "",
                "node": node["name"].rsplit(": ", 1)[-1] if node else "",
                "forward_op": origin[1],
            }
        )
    return rows


def _launch_stacks(events: list[dict[str, Any]]) -> dict[int, tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Per correlation id, the launch and what was open on its thread, outermost first."""
    threads: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event.get("cat") in ("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver"):
            threads[event["tid"]].append(event)
    found = {}
    for members in threads.values():
        members.sort(key=lambda event: (event["ts"], -event["dur"]))
        stack: list[dict[str, Any]] = []
        for event in members:
            while stack and stack[-1]["ts"] + stack[-1]["dur"] <= event["ts"]:
                stack.pop()
            if event["cat"] in ("cpu_op", "user_annotation"):
                stack.append(event)
            elif "correlation" in event["args"]:
                found[event["args"]["correlation"]] = (event, list(stack))
    return found


def _forward_layers(events: list[dict[str, Any]]) -> dict[int, tuple[str, str]]:
    """Per sequence number, the layer and the op of the forward pass that an autograd node belongs to."""
    marks = [event for event in events if event["name"] == "phase:forward" and event["cat"] == "user_annotation"]
    if not marks:
        return {}
    main = marks[0]["tid"]
    members = [event for event in events if event.get("tid") == main and event["cat"] in ("cpu_op", "user_annotation")]
    members.sort(key=lambda event: (event["ts"], -event["dur"]))
    found: dict[int, tuple[str, str]] = {}
    stack: list[dict[str, Any]] = []
    for event in members:
        while stack and stack[-1]["ts"] + stack[-1]["dur"] <= event["ts"]:
            stack.pop()
        stack.append(event)
        names = [other["name"] for other in stack]
        sequence = event["args"].get("Sequence number", -1)
        if "phase:forward" in names and sequence >= 0:
            layer = next((name[6:] for name in reversed(names) if name.startswith("layer:")), "")
            found.setdefault(sequence, (layer, event["name"]))
    return found


# ---------------------------------------------------------------------------------------------------------- part 1


def list_kernels(out: Path, only: str) -> None:
    for name, spec in VARIANTS.items():
        if only and only not in name:
            continue
        start = time.perf_counter()
        try:
            _list_one(out, name, shrink(spec) if CPU else spec)
        except Exception as failure:
            print("part 1", name, "FAILED", type(failure).__name__, str(failure).splitlines()[:1], flush=True)
        clean()
        print("part 1", name, round(time.perf_counter() - start, 1), "s", flush=True)


def _list_one(out: Path, name: str, spec: Spec) -> None:
    job = make_job(spec)
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        job.step()
        sync()
        seconds.append(time.perf_counter() - start)
    events = trace(job.step)
    kept = [event for event in events if event.get("cat") not in ("python_function", "ac2g", "fwdbwd")]
    with gzip.open(out / "traces.jsonl.gz", "at") as file:
        file.write(json.dumps({"variant": name, "events": kept}) + "\n")
    rows = kernel_rows(events)
    append(out / "kernels.csv", [{"variant": name, **row} for row in rows])
    totals: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for row in rows:
        totals[row["phase"], row["op"], row["node"]].append(row["us"])
    append(
        out / "ops.csv",
        [
            {"variant": name, "phase": key[0], "op": key[1], "node": key[2], "count": len(us), "us": round(sum(us), 1)}
            for key, us in totals.items()
        ],
    )
    told = {
        "variant": name,
        "step_s": statistics.median(seconds),
        "kernels": len(rows),
        "busy_s": sum(row["us"] for row in rows) / 1e6,
        "peak_bytes": 0 if CPU else torch.cuda.max_memory_allocated(),
        "explicit": EXPLICIT,
        "spec": json.dumps(spec.__dict__),
    }
    append(out / "steps.csv", [told])


def clean() -> None:
    gc.collect()
    if not CPU:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


# ---------------------------------------------------------------------------------------------------------- part 2


def time_host(out: Path, only: str) -> None:
    """Time everything before the profiler was ever on, in case it slows launches; then count, and time a few again."""
    names = [name for name in VARIANTS if only in name]
    times, counts = {}, {}
    for name in names:
        times[name] = guarded(name, partial(_time_variant, shrink(VARIANTS[name])))
    singles = guarded("ops", partial(time_singles, only)) or {}
    for name in names:
        counts[name] = guarded(name, partial(_count_variant, shrink(VARIANTS[name])))
    rows = [(name, 0, times[name], counts[name]) for name in names]
    rows += [(name, 1, guarded(name, partial(_time_variant, shrink(VARIANTS[name]))), counts[name]) for name in AGAIN]
    for name, profiled, timed, counted in rows:
        if timed and counted:
            append(out / "host.csv", [{"variant": name, "profiled": profiled, **timed, **counted}])
    append(out / "host_ops.csv", count_singles(singles))


AGAIN = ("llama-mha", "gpt", "llama-chain")


def guarded(name: str, work: Callable[[], Any]) -> Any:
    """What `work` returns, or None where it fails: one failure must not cost the rest of the lease."""
    start = time.perf_counter()
    out = None
    try:
        out = work()
    except Exception as failure:
        print("part 2", name, "FAILED", type(failure).__name__, str(failure).splitlines()[:1], flush=True)
    clean()
    print("part 2", name, round(time.perf_counter() - start, 1), "s", flush=True)
    return out


def _time_variant(spec: Spec) -> dict[str, Any]:
    job = make_job(spec)
    start = time.perf_counter()
    job.step()
    sync()
    repeats = 2 if CPU else min(max(int(1.0 / (time.perf_counter() - start)), 8), 20)
    steps = []
    for _ in range(repeats):
        start = time.perf_counter()
        job.step()
        sync()
        steps.append(time.perf_counter() - start)
    start = time.perf_counter()
    for _ in range(repeats):
        job.step()
    sync()
    streamed = (time.perf_counter() - start) / repeats
    spent: dict[str, list[float]] = defaultdict(list)
    for _ in range(repeats):
        totals: dict[str, float] = defaultdict(float)
        for phase in ["forward", "backward"] * spec.accumulate + ["clip", "update", "zero"]:
            sync()
            start = time.perf_counter()
            getattr(job, phase)()
            totals[phase] += time.perf_counter() - start
        for phase, seconds in totals.items():
            spent[phase].append(seconds)
    median = {f"{phase}_us": round(statistics.median(seconds) * 1e6, 1) for phase, seconds in spent.items()}
    told: dict[str, Any] = {"layers": spec.layers, "seq": spec.seq, "tensors": len(job.parameters), "repeats": repeats}
    told |= {"step_s": statistics.median(steps), "step_min_s": min(steps), "streamed_s": streamed}
    return told | median


def _count_variant(spec: Spec) -> dict[str, Any]:
    rows = kernel_rows(trace(make_job(spec).step))
    phases = ("forward", "backward", "recompute", "clip", "optimizer")
    told = {f"{phase}_kernels": sum(row["phase"] == phase for row in rows) for phase in phases}
    return {"kernels": len(rows), "busy_us": round(sum(row["us"] for row in rows), 1), **told}


def _tensors(count: int, size: int = 1024) -> list[Tensor]:
    parameters = [nn.Parameter(torch.randn(size, device=DEVICE, dtype=BF16)) for _ in range(count)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    return parameters


def time_singles(only: str) -> dict[str, tuple[Callable[[], Any], dict[str, Any]]]:
    """Microseconds of the host to launch one op, the card idle and its queue never full."""
    a = torch.randn(64, 64, device=DEVICE, dtype=BF16)
    b = torch.randn(64, 64, device=DEVICE, dtype=BF16)
    ag, bg = a.clone().requires_grad_(), b.clone().requires_grad_()
    weight = torch.ones(64, device=DEVICE, dtype=BF16)
    weightg = weight.clone().requires_grad_()
    q = torch.randn(1, 4, 16, 64, device=DEVICE, dtype=BF16)
    qg = q.clone().requires_grad_()
    index = torch.randint(64, (32,), device=DEVICE)
    counts = torch.randint(64, (8,), device=DEVICE)
    scores = torch.randn(16, 8, device=DEVICE)
    x, w = torch.randn(128, 64, device=DEVICE, dtype=BF16), torch.randn(8, 64, 64, device=DEVICE, dtype=BF16)
    offsets = torch.arange(16, 129, 16, device=DEVICE, dtype=torch.int32)
    attend = functional.scaled_dot_product_attention
    product, linear, normed = ag * bg, functional.linear(ag, bg), functional.rms_norm(ag, (64,), weightg)
    attended = attend(qg, qg, qg, is_causal=True)
    module = nn.Linear(64, 64, bias=False, device=DEVICE, dtype=BF16)
    grad = partial(torch.autograd.grad, retain_graph=True)
    cases: dict[str, tuple[Callable[[], Any], int]] = {
        "10000 turns of a python loop": (_count_python, 20),
        "empty": (lambda: torch.empty(64, 64, device=DEVICE, dtype=BF16), 400),
        "view": (lambda: a.view(4096), 400),
        "transpose": (lambda: a.transpose(0, 1), 400),
        "mm": (lambda: torch.mm(a, b), 400),
        "linear": (lambda: functional.linear(a, b), 400),
        "linear with grad": (lambda: functional.linear(ag, bg), 400),
        "linear module": (lambda: module(ag), 400),
        "add": (lambda: a + b, 400),
        "add with grad": (lambda: ag + bg, 400),
        "mul": (lambda: a * b, 400),
        "mul with grad": (lambda: ag * bg, 400),
        "silu": (lambda: functional.silu(a), 400),
        "cat": (lambda: torch.cat((a, b), -1), 400),
        "cast": (lambda: a.float(), 400),
        "zeros": (lambda: torch.zeros(64, 64, device=DEVICE, dtype=BF16), 400),
        "copy_": (lambda: a.copy_(b), 400),
        "contiguous": (lambda: a.t().contiguous(), 400),
        "index_select": (lambda: a.index_select(0, index), 400),
        "index": (lambda: a[index], 400),
        "index_add": (lambda: a.index_add(0, index, b[:32]), 200),
        "sdpa": (lambda: attend(q, q, q, is_causal=True), 400),
        "sdpa with grad": (lambda: attend(qg, qg, qg, is_causal=True), 400),
        "rms_norm": (lambda: functional.rms_norm(a, (64,), weight), 400),
        "rms_norm with grad": (lambda: functional.rms_norm(ag, (64,), weightg), 400),
        "layer_norm": (lambda: functional.layer_norm(a, (64,), weight, weight), 400),
        "softmax": (lambda: scores.softmax(-1), 400),
        "topk": (lambda: scores.topk(2, -1), 200),
        "argsort": (lambda: index.argsort(), 100),
        "bincount": (lambda: torch.bincount(counts, minlength=64), 50),
        "cumsum": (lambda: counts.cumsum(0), 200),
        "item": (lambda: weight[0].item(), 100),
        "tolist": (lambda: counts.tolist(), 100),
        "grouped_mm": (lambda: torch._grouped_mm(x, w, offs=offsets), 200),
        "backward of mul": (lambda: grad(product, (ag, bg), a), 100),
        "backward of linear": (lambda: grad(linear, (ag, bg), a), 100),
        "backward of rms_norm": (lambda: grad(normed, (ag, weightg), a), 100),
        "backward of sdpa": (lambda: grad(attended, (qg,), q), 100),
    }
    for count in (100, 1000):
        parameters = _tensors(count)
        optimizer = torch.optim.AdamW(parameters, lr=1e-5, fused=True)
        grads = [parameter.grad for parameter in parameters]
        cases[f"adamw of {count}"] = (optimizer.step, 10)
        cases[f"clip of {count}"] = (partial(nn.utils.clip_grad_norm_, parameters, 1.0), 10)
        cases[f"foreach norm of {count}"] = (partial(torch._foreach_norm, grads), 10)
    timed = {}
    for name, (call, repeats) in cases.items():
        if only in name:
            found = guarded(name, partial(_time_single, call, 5 if CPU else repeats))
            if found:
                timed[name] = (call, found)
    if not CPU and not only:
        timed["add in a graph"] = (lambda: a + b, _graph_gap(a, b))
    return timed


def _count_python() -> None:
    for _ in range(10_000):
        pass


def _time_single(call: Callable[[], Any], repeats: int) -> dict[str, Any]:
    for _ in range(5):
        call()
    launched, finished = [], []
    for _ in range(7):
        sync()
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        launched.append((time.perf_counter() - start) / repeats)
        sync()
        finished.append((time.perf_counter() - start) / repeats)
    return {
        "launch_us": round(statistics.median(launched) * 1e6, 3),
        "launch_min_us": round(min(launched) * 1e6, 3),
        "finish_us": round(statistics.median(finished) * 1e6, 3),
        "repeats": repeats,
    }


def count_singles(timed: dict[str, tuple[Callable[[], Any], dict[str, Any]]]) -> list[dict[str, Any]]:
    rows = []
    for name, (call, told) in timed.items():
        found = [event for event in trace(call) if event.get("cat") in KERNELS]
        busy = round(sum(event["dur"] for event in found), 2)
        rows.append({"op": name, **told, "kernels": len(found), "busy_us": busy})
    return rows


def _graph_gap(a: Tensor, b: Tensor) -> dict[str, Any]:
    """What one tiny kernel takes inside a replayed graph: the card's own cost of starting it."""
    graph = torch.cuda.CUDAGraph()
    out = torch.empty_like(a)
    with torch.cuda.graph(graph):
        for _ in range(1000):
            torch.add(a, b, out=out)
    graph.replay()
    sync()
    start = time.perf_counter()
    for _ in range(20):
        graph.replay()
    sync()
    each = (time.perf_counter() - start) / 20_000 * 1e6
    return {"launch_us": 0.0, "launch_min_us": 0.0, "finish_us": round(each, 3), "repeats": 1000}


# ---------------------------------------------------------------------------------------------------------- part 3


@dataclass
class Case:
    """One kernel: `make` builds operands and returns the call; bytes and FLOP are those of a call."""

    kind: str
    dims: dict[str, Any]
    precision: str
    make: Callable[[], Callable[[], Any]]
    moved: float
    flop: float = 0.0
    footprint: float = 0.0
    graph: bool = True
    short: bool = False
    order: int = field(default=0)

    @property
    def name(self) -> str:
        return f"{self.kind} {json.dumps(self.dims)} {self.precision}"


def normal(*shape: int, dtype: Any = BF16, grad: bool = False) -> Tensor:
    out = torch.randn(*shape, device=DEVICE, dtype=dtype)
    return out.requires_grad_() if grad else out


def backward_of(outputs: Tensor, inputs: list[Tensor]) -> Callable[[], Any]:
    grad = torch.randn_like(outputs)
    return lambda: torch.autograd.grad(outputs, inputs, grad, retain_graph=True)


def stream_cases() -> Iterator[Case]:
    aten = torch.ops.aten

    def one(call: Callable[[Tensor], Any], rows: int, dtype: Any = BF16) -> Callable[[], Any]:
        x = normal(rows, 4096, dtype=dtype)
        return lambda: call(x)

    def two(call: Callable[[Tensor, Tensor], Any], rows: int) -> Callable[[], Any]:
        x, y = normal(rows, 4096), normal(rows, 4096)
        return lambda: call(x, y)

    def halves(rows: int) -> Callable[[], Any]:
        x, y = normal(rows * 32, 64), normal(rows * 32, 64)
        return lambda: torch.cat((x, y), -1)

    def turned(rows: int) -> Callable[[], Any]:
        x = normal(max(rows // 4096, 1), min(rows, 4096), 32, 128)
        return lambda: x.transpose(1, 2).contiguous()

    def eighth(rows: int) -> Callable[[], Any]:
        x, scale = normal(rows, 4096), torch.full((), 2.0, device=DEVICE)
        return lambda: (x * scale).to(torch.float8_e4m3fn)

    def gathering(rows: int) -> Callable[[], Any]:
        total, grad = torch.zeros(rows, 4096, device=DEVICE), normal(rows, 4096)
        return lambda: total.add_(grad)

    def masked(rows: int) -> Callable[[], Any]:
        side = toy(2048)
        x = normal(max(rows * 4096 // side // side, 1), side, side, dtype=FP32)
        mask = torch.ones(side, side, dtype=torch.bool, device=DEVICE).triu(1)
        return lambda: x.masked_fill(mask, float("-inf")).softmax(-1)

    for elements in (128 * MI, 16 * MI):
        rows = toy(elements // 4096)
        n = rows * 4096
        dims = {"elements": n}
        table: list[tuple[str, Callable[[], Callable[[], Any]], float]] = [
            ("copy", partial(two, lambda x, y: y.copy_(x), rows), 4),
            ("add", partial(two, lambda x, y: x + y, rows), 6),
            ("mul", partial(two, lambda x, y: x * y, rows), 6),
            ("silu", partial(one, functional.silu, rows), 4),
            ("silu_backward", partial(two, aten.silu_backward, rows), 6),
            ("gelu", partial(one, partial(functional.gelu, approximate="tanh"), rows), 4),
            ("gelu_backward", partial(two, lambda x, y: aten.gelu_backward(x, y, approximate="tanh"), rows), 6),
            ("relu_squared", partial(one, lambda x: functional.relu(x).square(), rows), 8),
            ("neg", partial(one, torch.neg, rows), 4),
            ("cat_halves", partial(halves, rows), 4),
            ("transpose_copy", partial(turned, rows), 4),
            ("bf16_to_fp32", partial(one, lambda x: x.float(), rows), 6),
            ("fp32_to_bf16", partial(one, lambda x: x.bfloat16(), rows, FP32), 6),
            ("scale_to_fp8", partial(eighth, rows), 7),
            ("amax", partial(one, lambda x: x.abs().amax(), rows), 6),
            ("zero", partial(one, lambda x: x.zero_(), rows), 2),
            ("accumulate_fp32", partial(gathering, rows), 10),
            ("dropout", partial(one, lambda x: functional.dropout(x, 0.1, training=True), rows), 5),
        ]
        for kind, make, per_element in table:
            yield Case(kind, dims, "bf16", make, per_element * n, footprint=per_element * n)
        few = max(rows // 4, 1)
        yield Case("masked_softmax", {"elements": n // 4}, "fp32", partial(masked, few), 4.0 * n, footprint=4.0 * n)


def norm_cases() -> Iterator[Case]:
    def forward(kind: str, rows: int, width: int) -> Callable[[], Any]:
        x, w = normal(rows, width), torch.ones(width, device=DEVICE, dtype=BF16)
        if kind == "rms_norm":
            return lambda: functional.rms_norm(x, (width,), w, 1e-5)
        return lambda: functional.layer_norm(x, (width,), w, w, 1e-5)

    def backward(kind: str, rows: int, width: int) -> Callable[[], Any]:
        x, w = normal(rows, width, grad=True), torch.ones(width, device=DEVICE, dtype=BF16, requires_grad=True)
        if kind == "rms_norm":
            return backward_of(functional.rms_norm(x, (width,), w, 1e-5), [x, w])
        b = torch.zeros(width, device=DEVICE, dtype=BF16, requires_grad=True)
        return backward_of(functional.layer_norm(x, (width,), w, b, 1e-5), [x, w, b])

    for width in (1024, 2048, 4096, 8192, 12288):
        rows = toy(32 * MI // width)
        n = rows * width
        dims = {"rows": rows, "width": width}
        for kind in ("rms_norm", "layer_norm"):
            yield Case(kind, dims, "bf16", partial(forward, kind, rows, width), 4 * n, footprint=4 * n)
            yield Case(f"{kind}_backward", dims, "bf16", partial(backward, kind, rows, width), 10 * n, footprint=6 * n)


def rope_cases() -> Iterator[Case]:
    def make(form: str, heads: int, seq: int, *, back: bool) -> Callable[[], Any]:
        x = normal(1, seq, heads, 128, grad=back).transpose(1, 2)
        cos, sin = angles_of(seq, 128)
        turn = rotate_chain if form == "chain" else partial(rotate_cached, cos=cos, sin=sin)
        return backward_of(turn(x), [x]) if back else lambda: turn(x)

    for heads in (32, 8):
        seq = toy(4096)
        n = 2 * heads * seq * 128
        dims = {"heads": heads, "seq": seq, "dim": 128}
        for form, ahead, back in (("chain", 9, 15), ("cached", 10, 0)):
            yield Case(
                f"rope_{form}", dims, "bf16", partial(make, form, heads, seq, back=False), ahead * n, footprint=2 * n
            )
            yield Case(
                f"rope_{form}_backward",
                dims,
                "bf16",
                partial(make, form, heads, seq, back=True),
                back * n,
                footprint=2 * n,
            )


def loss_cases() -> Iterator[Case]:
    def loss(tokens: int, vocab: int, *, back: bool) -> Callable[[], Any]:
        logits = normal(tokens, vocab, grad=back)
        targets = torch.randint(vocab, (tokens,), device=DEVICE)
        if back:
            return backward_of(functional.cross_entropy(logits.float(), targets), [logits])
        return lambda: functional.cross_entropy(logits.float(), targets)

    def embedding(tokens: int, vocab: int, width: int, *, back: bool) -> Callable[[], Any]:
        table, ids = normal(vocab, width), torch.randint(vocab, (tokens,), device=DEVICE)
        if back:
            grad = normal(tokens, width)
            return lambda: torch.ops.aten.embedding_dense_backward(grad, ids, vocab, -1, False)
        return lambda: functional.embedding(ids, table)

    for tokens, vocab in ((4096, 128256), (8192, 50304)):
        t, v = toy(tokens), toy(vocab)
        dims = {"tokens": t, "vocab": v}
        yield Case("cross_entropy", dims, "bf16", partial(loss, t, v, back=False), 14.0 * t * v, footprint=14.0 * t * v)
        yield Case(
            "cross_entropy_backward", dims, "bf16", partial(loss, t, v, back=True), 22.0 * t * v, footprint=22.0 * t * v
        )
    for tokens, vocab, width in ((8192, 128256, 4096), (8192, 50304, 2048)):
        t, v, w = toy(tokens), toy(vocab), toy(width)
        dims = {"tokens": t, "vocab": v, "width": w}
        yield Case(
            "embedding", dims, "bf16", partial(embedding, t, v, w, back=False), 4.0 * t * w, footprint=4.0 * t * w
        )
        moved = 2.0 * v * w + 6.0 * t * w
        yield Case("embedding_backward", dims, "bf16", partial(embedding, t, v, w, back=True), moved, footprint=moved)


def gather_cases() -> Iterator[Case]:
    def make(kind: str, rows: int, source: int, width: int) -> Callable[[], Any]:
        index = torch.randint(source, (rows,), device=DEVICE)
        table = normal(source, width)
        if kind == "index_select":
            return lambda: table.index_select(0, index)
        if kind == "index":
            return lambda: table[index]
        values = normal(rows, width)
        if kind == "index_add":
            return lambda: table.index_add_(0, index, values)
        if kind == "index_put_accumulate":
            return lambda: table.index_put_((index,), values, accumulate=True)
        spread = index[:, None].expand(rows, width)
        return lambda: table.scatter_add_(0, spread, values)

    rows, source = toy(32768), toy(8192)
    for width in (2048, 4096, 7168):
        wide = toy(width)
        dims = {"rows": rows, "of": source, "width": wide}
        for kind, factor in (
            ("index_select", 2),
            ("index", 2),
            ("index_add", 3),
            ("scatter_add", 3),
            ("index_put_accumulate", 3),
        ):
            if kind in ("index", "index_put_accumulate") and width != 4096:
                continue
            moved = factor * 2.0 * rows * wide
            yield Case(kind, dims, "bf16", partial(make, kind, rows, source, wide), moved, footprint=moved, graph=False)


def routing_cases() -> Iterator[Case]:
    hidden = toy(4096)

    def router(tokens: int, experts: int, dtype: Any) -> Callable[[], Any]:
        x, w = normal(tokens, hidden, dtype=dtype), normal(experts, hidden, dtype=dtype)
        return lambda: functional.linear(x, w)

    def softmax(tokens: int, experts: int) -> Callable[[], Any]:
        x = normal(tokens, experts, dtype=FP32)
        return lambda: x.softmax(-1)

    def topk(tokens: int, experts: int, many: int) -> Callable[[], Any]:
        x = normal(tokens, experts, dtype=FP32).softmax(-1)
        return lambda: x.topk(many, -1)

    def ids(kind: str, rows: int, experts: int) -> Callable[[], Any]:
        chosen = torch.randint(experts, (rows,), device=DEVICE)
        return {
            "argsort": lambda: chosen.argsort(),
            "bincount": lambda: torch.bincount(chosen, minlength=experts),
            "one_hot_sum": lambda: functional.one_hot(chosen, experts).sum(0),
        }[kind]

    def cumsum(experts: int) -> Callable[[], Any]:
        counts = torch.randint(64, (experts,), device=DEVICE)
        return lambda: counts.cumsum(0)

    for tokens in (4096, 16384):
        t = toy(tokens)
        for experts in (8, 64, 128, 256):
            dims = {"tokens": t, "experts": experts, "hidden": hidden}
            for dtype, label, size in ((BF16, "bf16", 2), (FP32, "fp32", 4)):
                moved = size * (t * hidden + experts * hidden + t * experts)
                flop = 2.0 * t * hidden * experts
                make = partial(router, t, experts, dtype)
                yield Case("router", dims, label, make, moved, flop, footprint=moved, short=True)
            scores = 8 * t * experts
            dims = {"tokens": t, "experts": experts}
            yield Case(
                "router_softmax", dims, "fp32", partial(softmax, t, experts), scores, footprint=scores, short=True
            )
        for experts, many in ((8, 2), (64, 2), (64, 8), (128, 8), (256, 8)):
            rows = t * many
            dims = {"tokens": t, "experts": experts, "topk": many}
            read = 4.0 * t * experts + 12.0 * rows
            yield Case("topk", dims, "fp32", partial(topk, t, experts, many), read, footprint=read, short=True)
            for kind, bytes_each in (("argsort", 32.0), ("bincount", 8.0), ("one_hot_sum", 16.0 * experts)):
                if kind == "argsort" and experts not in (8, 64):
                    continue
                moving = bytes_each * rows
                graph = kind != "bincount"
                make = partial(ids, kind, rows, experts)
                yield Case(kind, dims, "int64", make, moving, footprint=moving, graph=graph, short=True)
    for experts in (8, 64, 128, 256):
        yield Case("cumsum", {"experts": experts}, "int64", partial(cumsum, experts), 16.0 * experts, short=True)


def optimizer_cases() -> Iterator[Case]:
    total = toy(200_000_000)

    def adamw(count: int, dtype: Any) -> Callable[[], Any]:
        parameters = [nn.Parameter(normal(total // count, dtype=dtype)) for _ in range(count)]
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        optimizer = torch.optim.AdamW(parameters, lr=1e-5, fused=True)
        return lambda: optimizer.step()

    def grads(kind: str) -> Callable[[], Any]:
        parts = [normal(total // 100) for _ in range(100)]
        if kind == "foreach_norm":
            return lambda: torch._foreach_norm(parts)
        if kind == "foreach_scale":
            # Of another precision it would be scaled tensor by tensor, not in a few kernels.
            one = torch.ones((), device=DEVICE, dtype=BF16)
            return lambda: torch._foreach_mul_(parts, one)
        parameters = [nn.Parameter(part) for part in parts]
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        return lambda: nn.utils.clip_grad_norm_(parameters, 1e9)

    for dtype, label, size in ((BF16, "bf16", 14), (FP32, "fp32", 28)):
        for count in (1, 100):
            dims = {"elements": total, "tensors": count}
            moved = float(size * total)
            yield Case("adamw", dims, label, partial(adamw, count, dtype), moved, footprint=moved, graph=False)
    dims = {"elements": total, "tensors": 100}
    for kind, size in (("foreach_norm", 2), ("foreach_scale", 4), ("clip_grad_norm", 6)):
        yield Case(kind, dims, "bf16", partial(grads, kind), size * total, footprint=size * total)


def gemm_cases() -> Iterator[Case]:
    def linear(m: int, n: int, k: int, dtype: Any) -> Callable[[], Any]:
        x, w = normal(m, k, dtype=dtype), normal(n, k, dtype=dtype)
        return lambda: functional.linear(x, w)

    def wgrad(m: int, n: int, k: int) -> Callable[[], Any]:
        dy, x = normal(k, m), normal(k, n)
        return lambda: torch.mm(dy.t(), x)

    def dgrad(m: int, n: int, k: int) -> Callable[[], Any]:
        dy, w = normal(m, k), normal(k, n)
        return lambda: torch.mm(dy, w)

    def bmm(b: int, m: int, n: int, k: int) -> Callable[[], Any]:
        x, y = normal(b, m, k), normal(b, n, k)
        return lambda: torch.bmm(x, y.transpose(1, 2))

    def case(kind: str, m: int, n: int, k: int, make: Callable[..., Any], label: str = "bf16", b: int = 0) -> Case:
        size = 4 if label == "fp32" else 2
        moved = float(size * max(b, 1) * (m * k + n * k + m * n))
        dims = {**({"b": b} if b else {}), "m": m, "n": n, "k": k}
        sizes = (b, m, n, k) if b else (m, n, k)
        return Case(kind, dims, label, partial(make, *sizes), moved, 2.0 * max(b, 1) * m * n * k, footprint=moved)

    pairs = (
        (1536, 4096),
        (4096, 1536),
        (768, 2048),
        (2048, 768),
        (1024, 1024),
        (2048, 2048),
        (3072, 1024),
        (16384, 2048),
    )
    for m in (128, 256, 512, 1024, 2048):
        for n, k in pairs if m in (128, 512, 2048) else pairs[::3]:
            yield case("gemm", toy(m), toy(n), toy(k), partial(linear, dtype=BF16))
    big = toy(4096)
    odd = 50257 if not CPU else 257
    yield case("gemm", big, odd, toy(1600), partial(linear, dtype=BF16))
    yield case("gemm", big, toy(1600), toy(1600) + 1, partial(linear, dtype=BF16))
    yield case("gemm_wgrad", odd, toy(1600), big, wgrad)
    yield case("gemm_dgrad", big, toy(1600), odd, dgrad)
    yield case("gemm", big, toy(128), big, partial(linear, dtype=FP32), "fp32")
    yield case("bmm", toy(2048), toy(2048), 128, bmm, b=64 if not CPU else 2)
    yield case("bmm", toy(1024), 128, toy(1024), bmm, b=128 if not CPU else 2)


def grouped_cases() -> Iterator[Case]:
    def counts_of(experts: int, rows: int, *, uneven: bool) -> Tensor:
        counts = torch.full((experts,), rows)
        if uneven:
            shares = torch.distributions.Dirichlet(torch.full((experts,), 4.0)).sample()
            counts = (shares * rows * experts / GROUP_ROWS).round().long() * GROUP_ROWS
            counts[-1] += rows * experts - counts.sum()
            counts = counts.clamp(min=0)
            while counts.sum() > rows * experts:
                counts[counts.argmax()] -= GROUP_ROWS
        return counts.cumsum(0).to(DEVICE, torch.int32)

    def make(form: str, experts: int, rows: int, n: int, k: int, *, uneven: bool) -> Callable[[], Any]:
        offsets = counts_of(experts, rows, uneven=uneven)
        x, dy = normal(experts * rows, k), normal(experts * rows, n)
        if form == "grouped_wgrad":
            return lambda: torch._grouped_mm(dy.t(), x, offs=offsets)
        w = normal(experts, n, k)
        if form == "grouped_dgrad":
            return lambda: torch._grouped_mm(dy, w, offs=offsets)
        return lambda: torch._grouped_mm(x, w.transpose(-2, -1), offs=offsets)

    shapes = (
        (8, 256, 1536, 4096),
        (8, 1024, 1536, 4096),
        (16, 512, 4096, 7168),
        (32, 192, 3072, 4096),
        (64, 128, 1536, 2048),
        (64, 96, 1536, 2048),
        (8, 2048, 14336, 4096),
        (128, 64, 1536, 2048),
    )
    for experts, rows, n, k in shapes:
        r, wide, deep = toy(rows), toy(n), toy(k)
        moved = 2.0 * (experts * r * (wide + deep) + experts * wide * deep)
        flop = 2.0 * experts * r * wide * deep
        for form in ("grouped", "grouped_wgrad", "grouped_dgrad"):
            for uneven in (False, True) if (experts, rows) in ((8, 1024), (64, 128)) else (False,):
                dims = {"experts": experts, "rows": r, "n": wide, "k": deep, **({"uneven": 1} if uneven else {})}
                call = partial(make, form, experts, r, wide, deep, uneven=uneven)
                yield Case(form, dims, "bf16", call, moved, flop, footprint=moved)


def fp8_cases() -> Iterator[Case]:
    def make(m: int, n: int, k: int, *, fast: bool) -> Callable[[], Any]:
        x, w = normal(m, k).to(torch.float8_e4m3fn), normal(n, k).to(torch.float8_e4m3fn)
        scale = torch.ones((), device=DEVICE)
        return lambda: torch._scaled_mm(
            x, w.t(), scale_a=scale, scale_b=scale, out_dtype=BF16, use_fast_accum=fast and not CPU
        )

    for m in (512, 2048, 8192):
        for n, k in ((4096, 4096), (8192, 8192), (28672, 8192), (1280, 8192)):
            for fast in (True, False) if m == 8192 and k == n == 8192 else (True,):
                sizes = toy(m), toy(n), toy(k)
                dims = {"m": sizes[0], "n": sizes[1], "k": sizes[2], "fast": int(fast)}
                moved = float(sizes[0] * sizes[2] + sizes[1] * sizes[2] + 2 * sizes[0] * sizes[1])
                flop = 2.0 * sizes[0] * sizes[1] * sizes[2]
                yield Case("scaled_mm", dims, "fp8", partial(make, *sizes, fast=fast), moved, flop, footprint=moved)


BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}


def attention_cases() -> Iterator[Case]:
    def make(
        backend: str, shape: tuple[int, ...], dims: tuple[int, int], *, causal: bool, back: bool
    ) -> Callable[[], Any]:
        batch, heads, kv, seq = shape
        # Memory is [batch, seq, heads, dim], as projections leave it.
        q, k, v = (
            normal(batch, seq, count, dim, grad=back).transpose(1, 2)
            for count, dim in ((heads, dims[0]), (kv, dims[0]), (kv, dims[1]))
        )

        def call() -> Tensor:
            choice = contextlib.nullcontext() if CPU or backend == "default" else sdpa_kernel(BACKENDS[backend])
            with choice:
                return functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=heads != kv)

        return backward_of(call(), [q, k, v]) if back else call

    table: list[tuple[str, tuple[int, ...], tuple[int, int], bool]] = [
        ("flash", (4, 32, 8, 4096), (64, 64), True),
        ("flash", (8, 25, 25, 1024), (64, 64), True),
        ("flash", (1, 32, 32, 2048), (64, 64), True),
        ("flash", (1, 32, 8, 4096), (128, 128), True),
        ("flash", (1, 16, 2, 8192), (128, 128), True),
        ("flash", (2, 16, 16, 2048), (96, 96), True),
        ("flash", (2, 16, 16, 2048), (80, 80), True),
        ("flash", (1, 32, 32, 2048), (128, 128), False),
        ("flash", (1, 16, 16, 4096), (192, 128), True),
        ("cudnn", (1, 16, 16, 4096), (192, 128), True),
        ("efficient", (1, 16, 16, 4096), (192, 128), True),
        ("flash", (1, 16, 16, 4096), (192, 192), True),
        ("cudnn", (1, 32, 8, 4096), (128, 128), True),
    ]
    # Which kernel torch takes of itself is the one a training run pays for.
    table += [("default", *row[1:]) for row in table[:9]]
    for backend, shape, dims, causal in table:
        batch, heads, kv, full = shape
        seq = toy(full)
        sizes = (batch, heads, kv, seq)
        q, kv_size = 2.0 * batch * heads * seq, 2.0 * batch * kv * seq
        moved = q * sum(dims) + kv_size * sum(dims)
        flop = 2.0 * batch * heads * seq * seq * sum(dims) * (0.5 if causal else 1.0)
        told = {"batch": batch, "heads": heads, "kv": kv, "seq": seq, "dim": dims[0], "value_dim": dims[1]}
        told |= {"causal": int(causal), "backend": backend}  # type: ignore[dict-item]
        for kind, back in (("attention", False), ("attention_backward", True)):
            call = partial(make, backend, sizes, dims, causal=causal, back=back)
            more, work = (2.0 * moved, 2.5 * flop) if back else (moved, flop)
            yield Case(kind, told, "bf16", call, more, work, footprint=more)


def all_cases() -> list[Case]:
    makers = (
        stream_cases,
        norm_cases,
        rope_cases,
        loss_cases,
        gather_cases,
        routing_cases,
        optimizer_cases,
        gemm_cases,
        grouped_cases,
        fp8_cases,
        attention_cases,
    )
    cases = [case for maker in makers for case in maker()]
    random.Random(7).shuffle(cases)
    for order, case in enumerate(cases):
        case.order = order
    return cases


class Sampler:
    """Watts, megahertz and degrees at about 50 Hz, in a thread."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, float, float, float]] = []
        self.stop = threading.Event()
        self.handle: Any = None
        if not CPU:
            import pynvml

            pynvml.nvmlInit()
            self.nvml = pynvml
            self.handle = pynvml.nvmlDeviceGetHandleByIndex(0)
            threading.Thread(target=self._sample, daemon=True).start()

    def _sample(self) -> None:
        nvml = self.nvml
        while not self.stop.is_set():
            value = nvml.nvmlDeviceGetFieldValues(self.handle, [nvml.NVML_FI_DEV_POWER_INSTANT])[0]
            clock = nvml.nvmlDeviceGetClockInfo(self.handle, nvml.NVML_CLOCK_SM)
            degrees = nvml.nvmlDeviceGetTemperature(self.handle, nvml.NVML_TEMPERATURE_GPU)
            self.rows.append((time.perf_counter(), value.value.uiVal / 1e3, clock, degrees))
            self.stop.wait(0.02)

    def joules(self) -> float:
        return 0.0 if CPU else self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle) / 1e3

    def means(self, start: float, end: float) -> tuple[float, float, float, int]:
        rows = [row for row in self.rows if start <= row[0] <= end]
        if not rows:
            return 0.0, 0.0, 0.0, 0
        watts, clock, degrees = (statistics.fmean(row[place] for row in rows) for place in (1, 2, 3))
        return watts, clock, degrees, len(rows)


def issue_for(issue: Callable[[], None], seconds: float) -> int:
    """Issue until the time is up, at most two issues ahead of the card; returns how many."""
    count = 0
    pending: list[Any] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        issue()
        count += 1
        if not CPU:
            event = torch.cuda.Event()
            event.record()
            pending.append(event)
            if len(pending) > 2:
                pending.pop(0).synchronize()
    return count


def measure(case: Case, sampler: Sampler, stream: Any) -> dict[str, Any]:
    sets = 1 if CPU else min(max(int(-(-COLD_BYTES // max(case.footprint, 1e6))), 1), 48)
    calls = [case.make() for _ in range(sets)]
    kept: list[Any] = [None] * sets
    for place in range(sets):
        kept[place] = calls[place]()
    sync()
    start = time.perf_counter()
    for number in range(4):
        kept[number % sets] = calls[number % sets]()
    sync()
    estimate = (time.perf_counter() - start) / 4
    mode, each = "eager", max(int(0.005 / max(estimate, 1e-6)), 1)
    graph = None
    if not CPU and case.graph and estimate < 1e-3:
        each = max(min(max(int(0.004 / estimate), 1), 200) // sets, 1) * sets
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                for number in range(each):
                    kept[number % sets] = calls[number % sets]()
            mode = "graph"
        except RuntimeError as failure:
            print("no graph for", case.name, str(failure).splitlines()[0], flush=True)
            graph = None
            sync()

    def eager() -> None:
        for number in range(each):
            kept[number % sets] = calls[number % sets]()

    issue = graph.replay if graph is not None else eager
    discard, length = (0.08, 0.25) if case.short else (0.15, 0.55)
    if CPU:
        discard, length = 0.0, 0.002
    issue_for(issue, discard)
    sync()
    start, joules = time.perf_counter(), sampler.joules()
    count = issue_for(issue, length)
    sync()
    end, spent = time.perf_counter(), sampler.joules() - joules
    watts, clock, degrees, samples = sampler.means(start, end)
    seconds = (end - start) / (count * each)
    return {
        "kind": case.kind,
        "dims": json.dumps(case.dims),
        "precision": case.precision,
        "s_per_call": f"{seconds:.4e}",
        "mean_w": round(watts, 1),
        "sm_mhz": round(clock, 1),
        "temp_c": round(degrees, 1),
        "bytes_moved": int(case.moved),
        "flop": int(case.flop),
        "window_s": round(end - start, 4),
        "energy_w": round(spent / (end - start), 1),
        "samples": samples,
        "mode": mode,
        "calls": count * each,
        "sets": sets,
        "order": case.order,
        "tb_per_s": round(case.moved / seconds / 1e12, 3),
        "tflop_per_s": round(case.flop / seconds / 1e12, 2),
    }


def single_kernels(out: Path, until: float, only: str) -> int:
    """All cases once; what a crashed process began is not tried again. Returns 3 where the card must be left."""
    started = Path(tempfile.gettempdir()) / "kernel_lists_started.txt"
    begun = set(started.read_text().splitlines()) if started.exists() and not CPU and not only else set()
    sampler = Sampler()
    stream = None if CPU else torch.cuda.Stream()
    path = out / "single_kernels.csv"
    time.sleep(0.0 if CPU else 0.5)
    context = contextlib.nullcontext() if CPU else torch.cuda.stream(stream)
    with context:
        for case in all_cases():
            if case.name in begun or not any(part in case.name for part in only.split("|")):
                continue
            if time.time() > until:
                print("part 3: time is up at", case.order, flush=True)
                break
            with started.open("a") as file:
                file.write(case.name + "\n")
            try:
                append(path, [measure(case, sampler, stream)])
            except Exception as failure:
                print("FAILED", case.name, type(failure).__name__, str(failure).splitlines()[:1], flush=True)
                try:
                    sync()
                    torch.ones(8, device=DEVICE).sum().item()
                except RuntimeError:
                    return 3
            gc.collect()
            if not CPU and torch.cuda.memory_reserved() > 50e9:
                torch.cuda.empty_cache()
    sampler.stop.set()
    trail = [[round(row[0], 3), row[1], row[2], row[3]] for row in sampler.rows]
    with gzip.open(out / "samples.json.gz", "wt") as file:
        json.dump(trail, file)
    return 0


# ---------------------------------------------------------------------------------------------------------- main


def describe() -> dict[str, Any]:
    told: dict[str, Any] = {"torch": torch.__version__, "python": sys.version, "cpus": os.cpu_count()}
    info = Path("/proc/cpuinfo").read_text().splitlines()
    told["cpu"] = next((line.split(": ", 1)[-1] for line in info if line.startswith("model name")), "")
    told["cpu_mhz"] = next((line.split(": ", 1)[-1] for line in info if line.startswith("cpu MHz")), "")
    if not CPU:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        value = pynvml.nvmlDeviceGetFieldValues(handle, [pynvml.NVML_FI_DEV_POWER_INSTANT])[0]
        told |= {
            "gpu": pynvml.nvmlDeviceGetName(handle),
            "driver": pynvml.nvmlSystemGetDriverVersion(),
            "power_limit_w": pynvml.nvmlDeviceGetPowerManagementLimit(handle) / 1e3,
            "idle_w": value.value.uiVal / 1e3,
            "idle_c": pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
        }
    return told


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--part", type=int, required=True)
    parser.add_argument("--until", type=float, default=float("inf"))
    parser.add_argument("--only", default="")
    parser.add_argument("--cpu", action="store_true")
    arguments = parser.parse_args()
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    start = time.time()
    with (out / "meta.jsonl").open("a") as file:
        file.write(json.dumps({"part": arguments.part, **describe()}) + "\n")
    torch.manual_seed(0)
    code = 0
    if arguments.part == 1:
        list_kernels(out, arguments.only)
    elif arguments.part == 2:
        time_host(out, arguments.only)
    else:
        code = single_kernels(out, arguments.until, arguments.only)
    print("part", arguments.part, "took", round(time.time() - start, 1), "s", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
