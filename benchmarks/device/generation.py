"""Prefill and decode loops on one GPU, eagerly and in CUDA graphs, beside what is predicted for them.

    python -m benchmarks.device.generation PREDICTED.csv --predict         (then commit that file)
    PYTHONPATH=src:. python3 -m benchmarks.device.generation OUT.csv [--seconds 4] [--cpu]

Each loop is run for some seconds: a dense and a sparse model of
plain modules (norm, attention over a key-value cache, gated feed-forward block, experts one by one). Power and clock
are read between steps. Needs Python, torch, pynvml and charllm.
`--cpu`: toy sizes, to test the script.
"""

import argparse
import csv
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

COLUMNS = ("name", "phase", "graph", "step_s", "mean_w", "sm_mhz", "steps")


@dataclass(frozen=True)
class Case:
    """One model and batch."""

    name: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    batch: int
    prompt: int
    experts: int = 0
    topk: int = 2


CASES = (
    Case("dense", 8, 4096, 14336, 32, 8, 32, 1024),
    Case("dense small batch", 8, 4096, 14336, 32, 8, 1, 1024),
    Case("sparse", 4, 4096, 14336, 32, 8, 32, 1024, experts=8),
)
TOY = (Case("toy", 1, 64, 128, 4, 2, 2, 16), Case("toy sparse", 1, 64, 128, 4, 2, 2, 16, experts=4))


class Layers:
    """Layers of equal shape with their cache; weights are random."""

    def __init__(self, case: Case, device: str) -> None:
        self.case, self.width = case, case.hidden // case.heads
        kind = {"device": device, "dtype": torch.bfloat16}
        experts = max(1, case.experts)
        qkv = (case.heads + 2 * case.kv_heads) * self.width
        shapes = {"qkv": (qkv, case.hidden), "proj": (case.hidden, case.hidden)}
        wide = {"up": (experts, case.hidden, 2 * case.ffn), "down": (experts, case.ffn, case.hidden)}
        self.weights = [
            {name: torch.randn(shape, **kind) / 64 for name, shape in {**shapes, **wide}.items()}
            for _ in range(case.layers)
        ]
        room = (2, case.batch, case.kv_heads, case.prompt + 1, self.width)
        self.caches = [torch.randn(room, **kind) for _ in range(case.layers)]
        self.scale = torch.ones(case.hidden, **kind)

    def forward(self, x: Tensor, begin: int) -> Tensor:
        """Add tokens from a place in the cache on."""
        for weights, cache in zip(self.weights, self.caches, strict=True):
            x = x + self.attend(functional.rms_norm(x, x.shape[-1:], self.scale), weights, cache, begin)
            x = x + self.feed(functional.rms_norm(x, x.shape[-1:], self.scale), weights)
        return x

    def attend(self, x: Tensor, weights: dict[str, Tensor], cache: Tensor, begin: int) -> Tensor:
        """Write keys and values, and attend to all that the cache holds."""
        case, (batch, tokens, _) = self.case, x.shape
        sizes = [heads * self.width for heads in (case.heads, case.kv_heads, case.kv_heads)]
        parts = functional.linear(x, weights["qkv"]).split(sizes, dim=-1)
        query, key, value = (part.view(batch, tokens, -1, self.width).transpose(1, 2) for part in parts)
        cache[0, :, :, begin : begin + tokens], cache[1, :, :, begin : begin + tokens] = key, value
        key, value = cache[:, :, :, : begin + tokens]
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=tokens > 1, enable_gqa=True)
        return functional.linear(attended.transpose(1, 2).reshape(batch, tokens, -1), weights["proj"])

    def feed(self, x: Tensor, weights: dict[str, Tensor]) -> Tensor:
        """Feed forward; each token's experts in turn, an equal share to each."""
        case, rows = self.case, x.reshape(-1, x.shape[-1])
        if not case.experts:
            return self.block(rows, weights["up"][0], weights["down"][0]).view_as(x)
        copies = rows.repeat(case.topk, 1)
        parts = copies.tensor_split(case.experts)
        outputs = [self.block(part, *both) for part, *both in zip(parts, weights["up"], weights["down"], strict=True)]
        return torch.cat(outputs).view(case.topk, *rows.shape).sum(0).view_as(x)

    def block(self, rows: Tensor, up: Tensor, down: Tensor) -> Tensor:
        """Run a gated feed-forward block."""
        gate, value = (rows @ up).chunk(2, dim=-1)
        return functional.silu(gate) * value @ down


def launches(case: Case, device: str, *, graphs: bool) -> dict[str, Callable[[], Any]]:
    """Return what runs prefill and decode once."""
    layers = Layers(case, device)
    prompts, token = (torch.randn(case.batch, count, case.hidden, device=device, dtype=torch.bfloat16)
                      for count in (case.prompt, 1))  # fmt: skip
    steps: dict[str, Callable[[], Any]] = {
        "prefill": lambda: layers.forward(prompts, 0), "decode": lambda: layers.forward(token, case.prompt),
    }  # fmt: skip
    return {name: _captured(step) if graphs else step for name, step in steps.items()}


def _captured(step: Callable[[], Any]) -> Callable[[], Any]:
    for _ in range(3):
        step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    # The graph knows addresses alone; the step keeps the operands behind them.

    def replay(_kept: Any = step) -> None:
        graph.replay()

    return replay


def predict_case(case: Case, *, graphs: bool) -> list[dict[str, Any]]:
    """Return what is predicted for both phases on an H200: functions, without modules and autograd around them."""
    from dataclasses import replace

    from charllm.catalog.resolve import resolve_run
    from charllm.simulate.predict import predict
    from charllm.spec.generation import decode_run, prefill_run
    from charllm.units import MICRO
    from charllm.workload.kernel_calls import SMALL_S

    model: dict[str, Any] = {
        "base": "mixtral-8x7b" if case.experts else "llama3-8b", "layers": case.layers, "hidden": case.hidden,
        "ffn": case.ffn, "heads": case.heads, "kv_heads": case.kv_heads, "vocab": 0, "position": "none",
    }  # fmt: skip
    if case.experts:
        model |= {"experts": case.experts, "topk": case.topk, "expert_ffn": case.ffn}
    framework = {"base": "pytorch-eager", "graphs": "full" if graphs else "none", "prefill_tokens": 2**20,
                 "launch_us": SMALL_S / MICRO}  # fmt: skip
    run = resolve_run({
        "model": model, "cluster": "h200x1", "framework": framework, "parallelism": {"schedule": "forward-only"},
        "training": {"global_batch_size": case.batch, "micro_batch_size": 1, "seq_length": case.prompt},
        "generation": {"prompt_tokens": case.prompt, "new_tokens": 1},
    })  # fmt: skip
    found = []
    for phase, one in (("prefill", prefill_run(run)), ("decode", decode_run(run, case.prompt))):
        metrics = predict(replace(one), ignore_memory=True).result.metrics
        found.append({"name": case.name, "phase": phase, "graph": graphs, "step_s": metrics["step_time_s"],
                      "mean_w": metrics["power_mean_w"], "sm_mhz": metrics["clock_mean_hz"] / 1e6})  # fmt: skip
    return found


def run_step(step: Callable[[], Any], seconds_s: float, device: str) -> dict[str, float]:
    """Run a phase for some seconds; power and clock are means over them."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    watts, clocks, count = [], [], 0
    step()
    wait()
    begun_s = time.monotonic()
    while time.monotonic() - begun_s < seconds_s:
        step()
        count += 1
        if count % 8 == 0:
            wait()
            if device == "cuda":
                watts.append(torch.cuda.power_draw() / 1e3)
                clocks.append(torch.cuda.clock_rate())
    wait()
    means = {name: sum(read) / len(read) for name, read in (("mean_w", watts), ("sm_mhz", clocks)) if read}
    return {"step_s": (time.monotonic() - begun_s) / count, "steps": count, **means}


def main() -> int:
    """Predict, then run, every case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--predict", action="store_true", help="write what is predicted to OUT")
    parser.add_argument("--cpu", action="store_true")
    asked = parser.parse_args()
    device, cases = ("cpu", TOY) if asked.cpu else ("cuda", CASES)
    modes = (False,) if asked.cpu else (False, True)
    if asked.predict:
        write_rows(asked.out, [row for case in cases for graphs in modes for row in predict_case(case, graphs=graphs)])
        return 0
    rows = []
    with torch.inference_mode():
        for case in cases:
            for graphs in modes:
                for phase, step in launches(case, device, graphs=graphs).items():
                    found = run_step(step, asked.seconds, device)
                    rows.append({"name": case.name, "phase": phase, "graph": graphs, **found})
                    write_rows(asked.out, rows)
    return 0


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write what is known so far."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    sys.exit(main())
