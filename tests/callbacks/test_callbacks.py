"""Callbacks in real trainers on the CPU, each in a process of its own, with readings of a stored H200 for its GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import charllm.callbacks
from charllm.callbacks.observer import ENERGY, POWER, STEP
from charllm.errors import SpecError
from charllm.measure.marks import find_phases, find_steps, read_marks
from charllm.result.store import load_run
from tests.measure.replays import make_replay

STEPS = 24
MODEL = """
import json, sys, time
import torch
import charllm
out, telemetry = sys.argv[1], sys.argv[2]
times = []

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
    def forward(self, x=None, labels=None):
        time.sleep(0.03)
        return {"loss": self.linear(x).square().mean(), "logits": x}

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4096
    def __getitem__(self, place):
        return {"x": torch.ones(8), "labels": torch.ones(8)}
"""
HUGGING_FACE = """
from transformers import Trainer, TrainerCallback, TrainingArguments
class Clock(TrainerCallback):
    def on_step_end(self, *args, **kwargs):
        times.append(time.monotonic())
arguments = TrainingArguments(output_dir=out + "-hf", max_steps=24, logging_steps=6, disable_tqdm=True, report_to=[],
                              save_strategy="steps", save_steps=12, use_cpu=True, per_device_train_batch_size=4,
                              gradient_accumulation_steps=2)
mine = charllm.callbacks.HuggingFace(out, telemetry=telemetry)
trainer = Trainer(model=Net(), args=arguments, train_dataset=Data(), callbacks=[mine, Clock()])
trainer.train()
told = [line for line in trainer.state.log_history if "loss" in line]
"""
LIGHTNING = """
import lightning
told = []
class Log(lightning.pytorch.loggers.logger.Logger):
    name, version = "log", 0
    def log_metrics(self, metrics, step=None):
        told.append({**metrics, "step": step})
    def log_hyperparams(self, *args, **kwargs):
        pass
class Clock(lightning.Callback):
    def on_train_batch_end(self, *args):
        times.append(time.monotonic())
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()
    def training_step(self, batch, place):
        return self.net(**batch)["loss"]
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
mine = charllm.callbacks.Lightning(out, telemetry=telemetry)
trainer = lightning.Trainer(max_steps=24, logger=Log(), log_every_n_steps=6, enable_checkpointing=False,
                            enable_progress_bar=False, accelerator="cpu", callbacks=[mine, Clock()])
trainer.fit(Module(), torch.utils.data.DataLoader(Data(), batch_size=4))
"""
LOOP = """
net, told = Net(), []
optimizer = torch.optim.AdamW(net.parameters())
with charllm.callbacks.steps(optimizer, net, out=out, telemetry=telemetry) as job:
    for place in range(24):
        net(x=torch.ones(4, 8))["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.monotonic())
        if place % 6 == 5:
            told.append(dict(job.figures()))
"""
END = """
told = [{name: value for name, value in line.items() if "charllm" in name} for line in told]
print("TOLD", json.dumps({"step_s": (times[-1] - times[0]) / (len(times) - 1), "told": told}))
"""


def trained(script: str, folder: Path, telemetry: str = "none") -> dict[str, Any]:
    """Run a training and return what it told of itself."""
    (folder / "train.py").write_text(MODEL + script + END)
    command = [sys.executable, str(folder / "train.py"), str(folder / "run"), telemetry]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False,
                          env={**os.environ, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "0"})  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.rpartition("TOLD ")[2])
    return found


@pytest.mark.parametrize(
    ("script", "phases"),
    [
        (HUGGING_FACE, {"forward", "backward", "optimizer", "data", "checkpoint"}),
        (LIGHTNING, {"forward", "backward", "optimizer", "data"}),
        (LOOP, {"forward", "backward", "optimizer", "data"}),
    ],
    ids=["hugging face", "lightning", "loop"],
)
def test_one_line_marks_a_real_training_and_tells_its_energy(script: str, phases: set[str], tmp_path: Path) -> None:
    telemetry = make_replay(tmp_path / "readings")
    told = trained(script, tmp_path, telemetry)
    run = tmp_path / "run"
    (marks,) = read_marks(run).values()
    steps = find_steps(marks)
    assert len(steps) == STEPS - 1
    step_s = (steps[-1].end_s - steps[0].start_s) / len(steps)
    assert step_s == pytest.approx(told["step_s"], rel=0.01)
    assert set(find_phases(marks)) == phases
    result = load_run(run)
    assert result.metrics["power_mean_w"] is not None
    energy = result.table("energy")
    assert energy is not None
    assert "phase forward" in energy["part"]
    assert len(told["told"]) == 4
    assert all(line[STEP] > 0.03 for line in told["told"])
    # The counter of the board may not move within the few steps of a line.
    counted = [line for line in told["told"] if ENERGY in line]
    assert counted
    for line in counted:
        assert line[ENERGY] == pytest.approx(line[POWER] * line[STEP])


class Stand:
    """What a callback uses of torchtitan's Trainer, which needs a GPU."""

    def __init__(self) -> None:
        self.checkpointer = self
        self.metrics_processor = self
        self.lines: list[dict[str, float]] = []
        self.step = 0

    def train(self) -> None:
        for self.step in range(1, 7):
            self.train_step(iter(()))
            self.save(self.step, last_step=self.step == 6)

    def train_step(self, _data: Any) -> None:
        self.log(self.step, 2.5, extra_metrics={"lr": 0.1})

    def save(self, _step: int, *, last_step: bool) -> bool:
        return last_step

    def log(self, _step: int, _loss: float, extra_metrics: dict[str, float] | None = None) -> None:
        self.lines.append(extra_metrics or {})


def test_a_trainer_of_torchtitan_is_marked_around_its_own_methods(tmp_path: Path) -> None:
    trainer = Stand()
    charllm.callbacks.torchtitan(trainer, out=str(tmp_path / "run"), telemetry="none")
    trainer.train()
    (marks,) = read_marks(tmp_path / "run").values()
    assert len(find_steps(marks)) == 5
    phases = find_phases(marks)
    assert {name: len(spans) for name, spans in phases.items() if name != "data"} == {
        "forward and backward": 6, "checkpoint": 6,
    }  # fmt: skip
    assert trainer.lines[-1]["lr"] == 0.1
    assert trainer.lines[-1][STEP] > 0
    with pytest.raises(SpecError, match=r"trainer: got .*object.*; expected torchtitan's Trainer"):
        charllm.callbacks.torchtitan(object())


def test_a_loop_that_fails_leaves_its_optimizer_as_it_was() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def fail() -> None:
        with charllm.callbacks.steps(optimizer, telemetry="none"):
            raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        fail()
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks
