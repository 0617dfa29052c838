"""Bare eager training loops on one GPU: seconds, watts and clock of a step.

    python3 -m benchmarks.device.loops OUT.csv [--only TEXT] [--warm 1.8] [--length 4.5] [--cpu]

A step is forward, backward, clipping and fused AdamW where asked for, `zero_grad(set_to_none=True)` and a wait for the
GPU. Each loop of loop_cases.py leaves its row as it ends. Another process reads the board, so that the loop's own
thread is left alone. Needs Python, torch and pynvml, and nothing of charllm. `--cpu`: toy sizes, to test the script.
"""

import argparse
import bisect
import csv
import gc
import itertools
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from charllm.evaluate.h200.loop_cases import LOOPS, Loop

LEAST_STEPS = 3
GROUP_ROWS = 8
"""Rows of an expert are padded to a multiple of 16 bytes, which grouped products ask for."""
COLUMNS = ("name", "step_s", "step_min_s", "step_max_s", "j_per_step", "mean_w", "sm_mhz", "instant_max_w", "temp_c",
           "steps", "window_s", "peak_mem_gib", "parameters", "busiest_expert", "error")  # fmt: skip


# ----------------------------------------------------------------------------------------------------------- the model


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


class Attention(nn.Module):  # type: ignore[misc]
    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self.head_dim, self.grouped = loop.head_dim, loop.heads != loop.kv_heads
        self.q = linear(loop.hidden, loop.heads * loop.head_dim)
        self.k = linear(loop.hidden, loop.kv_heads * loop.head_dim)
        self.v = linear(loop.hidden, loop.kv_heads * loop.head_dim)
        self.out = linear(loop.heads * loop.head_dim, loop.hidden)

    def forward(self, x: Tensor) -> Tensor:
        batch, seq, _ = x.shape
        query, key, value = (
            part.view(batch, seq, -1, self.head_dim).transpose(1, 2) for part in (self.q(x), self.k(x), self.v(x))
        )
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=self.grouped)
        return self.out(attended.transpose(1, 2).reshape(batch, seq, -1))


class FeedForward(nn.Module):  # type: ignore[misc]
    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self.up = linear(loop.hidden, loop.ffn)
        self.gate = linear(loop.hidden, loop.ffn) if loop.gated else None
        self.down = linear(loop.ffn, loop.hidden)

    def forward(self, x: Tensor) -> Tensor:
        if self.gate is None:
            return self.down(functional.gelu(self.up(x), approximate="tanh"))
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Sparse(nn.Module):  # type: ignore[misc]
    """Router in front of experts: fp32 softmax, top-k, weights that add up to one."""

    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self.loop = loop
        self.router = linear(loop.hidden, loop.experts)
        self.chosen = torch.zeros(1, dtype=torch.long)

    def route(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        weights, chosen = self.router(tokens).float().softmax(-1).topk(self.loop.topk, -1)
        self.chosen = chosen.detach()
        return (weights / weights.sum(-1, keepdim=True)).to(tokens.dtype).flatten(), chosen.flatten()


class LoopedExperts(Sparse):
    """Experts one after the other: rows picked by index_select, brought home by index_add."""

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop)
        self.experts = nn.ModuleList(FeedForward(loop) for _ in range(loop.experts))

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, x.shape[-1])
        weights, chosen = self.route(tokens)
        order = chosen.argsort()
        counts = torch.bincount(chosen, minlength=len(self.experts)).tolist()
        out = torch.zeros_like(tokens)
        for expert, mine in zip(self.experts, order.split(counts), strict=True):
            rows = mine // self.loop.topk
            found = expert(tokens.index_select(0, rows))
            out.index_add_(0, rows, found * weights.index_select(0, mine)[:, None])
        return out.view_as(x)


class ExplicitGrouped(torch.autograd.Function):  # type: ignore[misc]
    """A grouped product with its gradients spelled out, for a torch that cannot differentiate it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight, ends)
        return torch._grouped_mm(x, weight.transpose(-2, -1), offs=ends)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight, ends = ctx.saved_tensors
        gradient = gradient.contiguous()
        return (
            torch._grouped_mm(gradient, weight, offs=ends),
            torch._grouped_mm(gradient.t(), x, offs=ends),
            None,
        )


class GroupedExperts(Sparse):
    """All experts in one grouped product, gate and up together, and no wait of the host."""

    explicit = False

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop)
        self.fc1 = nn.Parameter(torch.empty(loop.experts, 2 * loop.ffn, loop.hidden))
        self.fc2 = nn.Parameter(torch.empty(loop.experts, loop.hidden, loop.ffn))

    def product(self, x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
        if self.explicit:
            return ExplicitGrouped.apply(x, weight, ends)
        return torch._grouped_mm(x, weight.transpose(-2, -1), offs=ends)

    def forward(self, x: Tensor) -> Tensor:
        loop, tokens = self.loop, x.reshape(-1, x.shape[-1])
        weights, chosen = self.route(tokens)
        order = chosen.argsort()
        owners = order // loop.topk
        counts = (chosen[:, None] == torch.arange(loop.experts, device=x.device)).sum(0)
        padded = (counts + GROUP_ROWS - 1) // GROUP_ROWS * GROUP_ROWS
        ends = padded.cumsum(0)
        shift = ends - padded - (counts.cumsum(0) - counts)
        places = torch.arange(len(chosen), device=x.device) + shift[chosen[order]]
        rows = len(chosen) + GROUP_ROWS * loop.experts
        sorted_rows = torch.zeros(rows, x.shape[-1], dtype=x.dtype, device=x.device).index_copy(
            0, places, tokens.index_select(0, owners)
        )
        last = ends.to(torch.int32)
        gate, up = self.product(sorted_rows, self.fc1, last).chunk(2, -1)
        found = self.product(functional.silu(gate) * up, self.fc2, last).index_select(0, places)
        out = torch.zeros_like(tokens).index_add(0, owners, found * weights[order, None])
        return out.view_as(x)


class Layer(nn.Module):  # type: ignore[misc]
    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(loop.hidden, eps=1e-5), nn.RMSNorm(loop.hidden, eps=1e-5)
        self.attention = Attention(loop)
        kind = FeedForward if not loop.experts else GroupedExperts if loop.grouped else LoopedExperts
        self.feedforward = kind(loop)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.feedforward(self.norm2(x))


class Decoder(nn.Module):  # type: ignore[misc]
    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self.loop = loop
        self.layers = nn.ModuleList(Layer(loop) for _ in range(loop.layers))
        self.norm = nn.RMSNorm(loop.hidden, eps=1e-5)
        if loop.vocab:
            self.embedding = nn.Embedding(loop.vocab, loop.hidden)
            self.head = linear(loop.hidden, loop.vocab)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        x = self.embedding(inputs) if self.loop.vocab else inputs
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.loop.recompute else layer(x)
        x = self.norm(x)
        if not self.loop.vocab:
            return x.square().mean()
        return functional.cross_entropy(self.head(x).float().flatten(0, 1), targets.flatten())


class Job:
    """A model, its optimizer and one batch."""

    def __init__(self, loop: Loop, device: str) -> None:
        self.loop, self.device = loop, device
        # Made in bf16 at once: 8 billion parameters in fp32 first would take twice the memory.
        torch.set_default_dtype(torch.bfloat16)
        try:
            with torch.device(device):
                self.model = Decoder(loop)
        finally:
            torch.set_default_dtype(torch.float32)
        self.parameters = list(self.model.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-5, fused=True)
        shape = (loop.mbs, loop.seq)
        if loop.vocab:
            self.inputs = torch.randint(loop.vocab, shape, device=device)
        else:
            self.inputs = torch.randn(*shape, loop.hidden, device=device, dtype=torch.bfloat16, requires_grad=True)
        self.targets = torch.randint(max(loop.vocab, 1), shape, device=device)

    def step(self) -> None:
        loop = self.loop
        for _ in range(loop.accumulate):
            loss = self.model(self.inputs, self.targets)
            (loss / loop.accumulate if loop.accumulate > 1 else loss).backward()
        if loop.clip:
            nn.utils.clip_grad_norm_(self.parameters, 1.0)
        if loop.optimizer:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.inputs.grad = None
        if self.device != "cpu":
            torch.cuda.synchronize()

    def busiest(self) -> float:
        """Load of the busiest expert over the mean, mean over layers, in the last step."""
        loads = [
            torch.bincount(module.chosen.flatten(), minlength=module.loop.experts).float()
            for module in self.model.modules()
            if isinstance(module, Sparse)
        ]
        return statistics.fmean(float(load.max() / load.mean()) for load in loads) if loads else 0.0


def make_job(loop: Loop, device: str) -> Job:
    """Build a job that has made a step; where torch cannot differentiate a grouped product, its gradients are given."""
    job = Job(loop, device)
    try:
        job.step()
    except RuntimeError as failure:
        if not loop.grouped or GroupedExperts.explicit or isinstance(failure, torch.OutOfMemoryError):
            raise
        print("grouped: explicit gradients, because", str(failure).splitlines()[0], flush=True)
        GroupedExperts.explicit = True
        job.step()
    return job


# ----------------------------------------------------------------------------------------------------------- the board


def sample(path: Path, period_s: float = 0.02) -> None:
    """Write time, watts, megahertz, degrees and millijoules until our input is closed: the reading process."""
    import select

    import pynvml

    pynvml.nvmlInit()
    board = pynvml.nvmlDeviceGetHandleByIndex(0)
    with path.open("w", buffering=1) as file:
        while not select.select([sys.stdin], [], [], period_s)[0]:
            watts = pynvml.nvmlDeviceGetFieldValues(board, [pynvml.NVML_FI_DEV_POWER_INSTANT])[0].value.uiVal / 1e3
            clock = pynvml.nvmlDeviceGetClockInfo(board, pynvml.NVML_CLOCK_SM)
            degrees = pynvml.nvmlDeviceGetTemperature(board, pynvml.NVML_TEMPERATURE_GPU)
            millijoules = pynvml.nvmlDeviceGetTotalEnergyConsumption(board)
            file.write(f"{time.monotonic():.4f} {watts:.1f} {clock} {degrees} {millijoules}\n")


class Board:
    """The process that reads the board, and what it has read."""

    def __init__(self, device: str) -> None:
        self.path = Path(tempfile.mkdtemp()) / "samples.txt"
        self.process: subprocess.Popen[bytes] | None = None
        if device != "cpu":
            command = [sys.executable, "-m", "benchmarks.device.loops", str(self.path), "--sample"]
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE)
            while not self.path.exists() or not self.path.stat().st_size:
                if self.process.poll() is not None:
                    raise RuntimeError("the process that reads the board has ended")
                time.sleep(0.05)

    def close(self) -> None:
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
            self.process.wait(10)

    def rows(self) -> list[tuple[float, ...]]:
        if not self.path.exists():
            return []
        lines = self.path.read_text().splitlines()
        return [tuple(map(float, line.split())) for line in lines if line.count(" ") == 4]

    def window(self, start_s: float, end_s: float) -> dict[str, float]:
        """Joules between two moments, by the counter; mean clock, largest watts and mean degrees between them."""
        if self.process is not None:
            # The counter is seen to change past the end.
            time.sleep(0.25)
        return summarise(self.rows(), start_s, end_s)


def summarise(rows: Sequence[tuple[float, ...]], start_s: float, end_s: float) -> dict[str, float]:
    inside = [row for row in rows if start_s <= row[0] <= end_s]
    if not inside:
        return {}
    joules = counter(rows, end_s) - counter(rows, start_s)
    return {
        "joules": joules,
        "mean_w": joules / (end_s - start_s),
        "sm_mhz": statistics.fmean(row[2] for row in inside),
        "instant_max_w": max(row[1] for row in inside),
        "temp_c": statistics.fmean(row[3] for row in inside),
    }


def counter(rows: Sequence[tuple[float, ...]], moment_s: float) -> float:
    """The energy counter in joules, interpolated between the moments at which it was seen to change."""
    changes = [row for before, row in itertools.pairwise(rows) if row[4] != before[4]]
    place = min(max(bisect.bisect_left([row[0] for row in changes], moment_s), 1), len(changes) - 1)
    before, after = changes[place - 1], changes[place]
    rate = (after[4] - before[4]) / (after[0] - before[0])
    return (before[4] + rate * (moment_s - before[0])) / 1e3


# ------------------------------------------------------------------------------------------------------------ the loop


def read(loop: Loop, board: Board, device: str, warm_s: float, length_s: float) -> dict[str, Any]:
    """Train for a while, then for the window that counts."""
    job = make_job(loop, device)
    began_s, steps = time.monotonic(), 0
    while steps < LEAST_STEPS or time.monotonic() - began_s < warm_s:
        job.step()
        steps += 1
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
    gc.collect()
    gc.disable()
    moments = [time.monotonic()]
    while len(moments) <= LEAST_STEPS or moments[-1] - moments[0] < length_s:
        job.step()
        moments.append(time.monotonic())
    gc.enable()
    seconds = [after - before for before, after in itertools.pairwise(moments)]
    seen = board.window(moments[0], moments[-1])
    told: dict[str, Any] = {
        "step_s": statistics.median(seconds),
        "step_min_s": min(seconds),
        "step_max_s": max(seconds),
        "j_per_step": seen.get("joules", float("nan")) / len(seconds),
        **{name: seen.get(name, float("nan")) for name in ("mean_w", "sm_mhz", "instant_max_w", "temp_c")},
        "steps": len(seconds),
        "window_s": moments[-1] - moments[0],
        "peak_mem_gib": 0.0 if device == "cpu" else torch.cuda.max_memory_allocated() / 2**30,
        "parameters": sum(parameter.numel() for parameter in job.parameters),
        "busiest_expert": job.busiest(),
    }
    return {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in told.items()}


def toy(loop: Loop) -> Loop:
    """The same loop so small that a CPU can do it."""
    small = replace(loop, layers=2, hidden=64, heads=4, kv_heads=4 if loop.heads == loop.kv_heads else 2, head_dim=16)
    sizes = {"ffn": 32, "vocab": 128 if loop.vocab else 0, "seq": 32, "mbs": min(loop.mbs, 2)}
    return replace(small, **sizes, experts=min(loop.experts, 8), topk=min(loop.topk, 4))  # type: ignore[arg-type]


def append(path: Path, row: dict[str, Any]) -> None:
    new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="", help="loops whose names contain one of these, apart by |")
    parser.add_argument("--warm", type=float, default=1.8, help="seconds before the window")
    parser.add_argument("--length", type=float, default=4.5, help="seconds of the window")
    parser.add_argument("--cpu", action="store_true", help="toy sizes, to test the script")
    parser.add_argument("--sample", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.sample:
        sample(arguments.out)
        return
    device = "cpu" if arguments.cpu else "cuda"
    if arguments.cpu:
        # Tensors this small only wait for each other on more threads.
        torch.set_num_threads(1)
    torch.manual_seed(0)
    began_s = time.monotonic()
    board = Board(device)
    try:
        for name, asked in LOOPS.items():
            if not any(text in name for text in arguments.only.split("|")):
                continue
            loop, error, told = toy(asked) if arguments.cpu else asked, "", {}
            start_s = time.monotonic()
            try:
                told = read(loop, board, device, arguments.warm, arguments.length)
            except Exception as failure:
                error = f"{type(failure).__name__}: {(str(failure).splitlines() or [''])[0]}"[:200]
            gc.enable()
            append(arguments.out, {"name": name, **told, "error": error})
            print(name, round(time.monotonic() - start_s, 1), "s", told or (error, asdict(loop)), flush=True)
            gc.collect()
            if device != "cpu":
                torch.cuda.empty_cache()
    finally:
        board.close()
    print("loops took", round(time.monotonic() - began_s, 1), "s", flush=True)


if __name__ == "__main__":
    main()
