"""Training programs that others wrote, on one real GPU, with their usual settings and charllm's callback.

    python -m benchmarks.device.trainers PREDICTED.csv --predict           (then commit that file)
    PYTHONPATH=src:. python3 benchmarks/device/trainers.py OUT [--cpu] [--only hf-]

A Llama of eight layers (2.0 billion parameters), random weights and tokens, under Hugging Face's Trainer and Lightning.
What is not named is what the program does by itself. Each case is measured by its callback (`out=`); `OUT/trainers.csv`
has the step time of the program's own clock beside the marked one, and watts, clock and memory.
"""

import argparse
import csv
import json
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

SIZES = {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 8, "num_attention_heads": 32,
         "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 4096}  # fmt: skip
TOY = {**SIZES, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
       "num_key_value_heads": 2, "vocab_size": 256}  # fmt: skip
KEPT = ("step_time_s", "power_mean_w", "power_peak_sensor_w", "clock_mean_hz", "temperature_mean_c",
        "memory_allocated_bytes", "memory_peak_bytes")  # fmt: skip
SEQ, MICRO_BATCH, STEPS, SKIPPED = 2048, 4, 24, 6

CASES: dict[str, dict[str, Any]] = {
    "hf-bf16-autocast": {"program": "hf", "arguments": {"bf16": True}},
    "hf-bf16-autocast-checkpointing": {"program": "hf", "arguments": {"bf16": True, "gradient_checkpointing": True}},
    "hf-bf16-weights": {"program": "hf", "dtype": "bfloat16", "arguments": {"bf16": True}},
    "hf-bf16-accumulate4": {"program": "hf", "batch": 1,
                            "arguments": {"bf16": True, "gradient_accumulation_steps": 4}},
    "hf-tf32": {"program": "hf", "arguments": {"tf32": True}},
    "lightning-bf16-mixed": {"program": "lightning", "precision": "bf16-mixed"},
    "lightning-bf16-true": {"program": "lightning", "precision": "bf16-true"},
}  # fmt: skip


AUTOCAST = {"weight_precision": "fp32", "gradient_precision": "fp32", "moment_precision": "fp32"}
"""Weights in fp32, which autocast turns into bf16 where they are used."""


def request(case: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a case as charllm is asked for it: plain modules, eager; Trainer alone clips gradients."""
    settings = case.get("arguments", {})
    whole = case.get("dtype") == "bfloat16" or case.get("precision") == "bf16-true"
    batch = case.get("batch", MICRO_BATCH)
    formats = {} if whole else {**AUTOCAST, **({"tf32": True} if settings.get("tf32") else {})}
    model = {"base": "llama3-8b", "layers": 8, "hidden": 4096, "ffn": 14336, "heads": 32, "kv_heads": 8, "vocab": 32000}
    return {
        "model": model, "cluster": "h200x1",
        "framework": {"base": "pytorch-eager", "square_loss": False, **formats},
        "training": {
            "seq_length": SEQ, "micro_batch_size": batch, "clip_gradients": case["program"] == "hf",
            "global_batch_size": batch * settings.get("gradient_accumulation_steps", 1),
            "precision": "fp32" if settings.get("tf32") else "bf16",
            "recompute": "full" if settings.get("gradient_checkpointing") else "none",
        },
    }  # fmt: skip


def predict_cases() -> list[dict[str, Any]]:
    """Return what is predicted for every case."""
    from charllm.catalog.resolve import resolve_run
    from charllm.simulate.predict import predict

    rows = []
    for name, case in CASES.items():
        metrics = predict(resolve_run(request(case)), ignore_memory=True).result.metrics
        rows.append({"name": name, **{key: metrics[key] for key in KEPT}})
    return rows


class Tokens(torch.utils.data.Dataset):  # type: ignore[misc]
    """Random tokens, the same for every row."""

    def __init__(self, rows: int, seq: int, vocab: int) -> None:
        self.rows, self.tokens = rows, torch.randint(vocab, (seq,))

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {"input_ids": self.tokens, "labels": self.tokens}


def model_of(case: dict[str, Any], sizes: dict[str, int], device: str) -> Any:
    """Make the model as `from_config` does, on the device."""
    from transformers import AutoModelForCausalLM, LlamaConfig

    with torch.device(device):
        return AutoModelForCausalLM.from_config(
            LlamaConfig(**sizes), dtype=getattr(torch, case.get("dtype", "float32"))
        )


def train_hf(case: dict[str, Any], out: Path, device: str, sizes: dict[str, int], seq: int) -> list[float]:
    """Train with transformers' Trainer; returns the seconds of each step by its own callbacks."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from charllm.callbacks import HuggingFace

    moments: list[float] = []

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            if device == "cuda":
                torch.cuda.synchronize()
            moments.append(time.monotonic())

    batch = case.get("batch", MICRO_BATCH)
    arguments = {name: value for name, value in case["arguments"].items() if device == "cuda" or name != "tf32"}
    settings = TrainingArguments(
        str(out / "hf"), per_device_train_batch_size=batch, max_steps=STEPS, logging_steps=10, save_strategy="no",
        report_to=[], use_cpu=device == "cpu", **arguments,
    )  # fmt: skip
    callbacks = [HuggingFace(out=str(out / "run"), telemetry="nvml" if device == "cuda" else "none"), Clock()]
    rows = STEPS * batch * settings.gradient_accumulation_steps
    trainer = Trainer(model_of(case, sizes, device), settings, train_dataset=Tokens(rows, seq, sizes["vocab_size"]),
                      callbacks=callbacks)  # fmt: skip
    trainer.train()
    return moments


def train_lightning(case: dict[str, Any], out: Path, device: str, sizes: dict[str, int], seq: int) -> list[float]:
    """Train with Lightning; returns the moments at which steps ended."""
    try:
        import lightning
    except ImportError:
        import pytorch_lightning as lightning

    from charllm.callbacks import Lightning

    moments: list[float] = []

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model_of({"dtype": "float32"}, sizes, device)

        def training_step(self, batch: dict[str, Any], _: int) -> Any:
            return self.model(**batch).loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-5)

        def on_train_batch_end(self, *_: Any) -> None:
            if device == "cuda":
                torch.cuda.synchronize()
            moments.append(time.monotonic())

    loader = torch.utils.data.DataLoader(Tokens(STEPS * MICRO_BATCH, seq, sizes["vocab_size"]), MICRO_BATCH)
    trainer = lightning.Trainer(
        max_steps=STEPS, precision=case["precision"], logger=False, enable_checkpointing=False,
        accelerator="gpu" if device == "cuda" else "cpu",
        devices=1, default_root_dir=str(out),
        callbacks=[Lightning(out=str(out / "run"), telemetry="nvml" if device == "cuda" else "none")],
    )  # fmt: skip
    trainer.fit(Module(), loader)
    return moments


PROGRAMS = {"hf": train_hf, "lightning": train_lightning}


def read_case(name: str, moments: list[float], folder: Path) -> dict[str, Any]:
    """Return the program's own step time beside what charllm measured."""
    own_s = (moments[-1] - moments[SKIPPED - 1]) / (len(moments) - SKIPPED)
    metrics = json.loads((folder / "result.json").read_text(encoding="utf-8"))["metrics"]
    return {"name": name, "own_step_s": own_s, **{key: metrics.get(key) for key in KEPT}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--cpu", action="store_true", help="toy sizes, to test the script")
    parser.add_argument("--predict", action="store_true", help="write what is predicted to OUT")
    asked = parser.parse_args()
    if asked.predict:
        write_rows(asked.out, predict_cases())
        return
    device, sizes, seq = ("cpu", TOY, 32) if asked.cpu else ("cuda", SIZES, SEQ)
    rows: list[dict[str, Any]] = []
    for name, case in CASES.items():
        if asked.only not in name:
            continue
        folder = asked.out / name
        folder.mkdir(parents=True, exist_ok=True)
        begun_s = time.monotonic()
        try:
            if device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            moments = PROGRAMS[case["program"]](case, folder, device, sizes, seq)
            rows.append(read_case(name, moments, folder / "run"))
            if device == "cuda":
                rows[-1]["torch_allocated_bytes"] = torch.cuda.max_memory_allocated()
        except Exception:
            # One program must not cost the others.
            traceback.print_exc()
        else:
            print(rows[-1], round(time.monotonic() - begun_s, 1), flush=True)
        if device == "cuda":
            torch.cuda.empty_cache()
    write_rows(asked.out / "trainers.csv", rows)


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows as CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[-1]) if rows else ["name"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
