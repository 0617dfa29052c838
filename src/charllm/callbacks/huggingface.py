"""A callback for Hugging Face's Trainer, and for those made of it (TRL, LLaMA-Factory, Axolotl, ms-swift)."""

import sys
from typing import Any

from transformers import TrainerCallback

from charllm.callbacks.modules import CHECKPOINT, DATA, OPTIMIZER, watch_model
from charllm.callbacks.observer import Observer


class HuggingFace(TrainerCallback):
    """Marks steps and phases of a Trainer; each log line gets step time, energy and power of this process's GPU.

    The figures stand in the trainer's own log and history, and go to Weights & Biases, MLflow and TensorBoard where the
    trainer reports to them.
    """

    def __init__(self, out: str | None = None, *, profile: str | int | None = None, telemetry: str = "auto") -> None:
        self._observer = Observer(out, profile, telemetry)
        self._handles: list[Any] = []
        self._board: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_more: Any) -> None:
        """Begin."""
        self._observer.begin()
        if model is not None:
            self._handles = watch_model(model, self._observer)
        if state.is_world_process_zero and "tensorboard" in args.report_to:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(log_dir=getattr(args, "logging_dir", None) or f"{args.output_dir}/runs")
        self._observer.enter(DATA)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_more: Any) -> None:
        """Leave what waits for data; the model's own hooks say what follows."""
        self._observer.enter(None)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_more: Any) -> None:
        """Begin the optimizer's phase."""
        self._observer.enter(OPTIMIZER)

    def on_step_end(self, args: Any, state: Any, control: Any, **_more: Any) -> None:
        """End a step."""
        self._observer.end_step(state.global_step)
        self._observer.enter(CHECKPOINT if control.should_save and not control.should_evaluate else DATA)

    def on_evaluate(self, args: Any, state: Any, control: Any, **_more: Any) -> None:
        """Leave the evaluation."""
        self._observer.enter(CHECKPOINT if control.should_save else DATA)

    def on_save(self, args: Any, state: Any, control: Any, **_more: Any) -> None:
        """Leave the checkpoint."""
        self._observer.enter(DATA)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_more: Any) -> None:
        """Add step time, energy and power to a line of the log."""
        if not state.is_world_process_zero or logs is None or "loss" not in logs:
            return
        self._observer.tell_loss(logs["loss"])
        figures = dict(self._observer.figures())
        logs.update(figures)
        if state.log_history:
            state.log_history[-1].update(figures)
        self._report(figures, state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **_more: Any) -> None:
        """End."""
        for handle in self._handles:
            handle.remove()
        if self._board is not None:
            self._board.close()
        self._observer.end()

    def _report(self, figures: dict[str, float], step: int) -> None:
        """Send figures where the trainer reports to: its own reporters were told before callbacks of the user."""
        wandb, mlflow = sys.modules.get("wandb"), sys.modules.get("mlflow")
        if wandb is not None and getattr(wandb, "run", None) is not None:
            wandb.log({**figures, "train/global_step": step})
        if mlflow is not None and mlflow.active_run() is not None:
            mlflow.log_metrics(figures, step=step)
        for name, value in figures.items() if self._board is not None else ():
            self._board.add_scalar(name, value, step)
