"""A callback for Lightning 2."""

from typing import Any

from charllm.callbacks.modules import BACKWARD, DATA, FORWARD, OPTIMIZER
from charllm.callbacks.observer import Observer

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    from pytorch_lightning.callbacks import Callback


class Lightning(Callback):
    """Marks steps and phases of a Lightning Trainer; step time, energy and power go to its loggers every `every` steps.

    `every` is the trainer's log_every_n_steps unless given.
    """

    def __init__(
        self,
        out: str | None = None,
        *,
        profile: str | int | None = None,
        telemetry: str = "auto",
        every: int | None = None,
    ) -> None:
        self._observer = Observer(out, profile, telemetry)
        self._every = every
        self._seen = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin."""
        self._seen = trainer.global_step
        self._observer.begin()
        self._observer.enter(DATA)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Begin a forward pass."""
        self._observer.enter(FORWARD)

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        """Begin a backward pass."""
        self._observer.enter(BACKWARD)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Begin the optimizer's phase."""
        self._observer.enter(OPTIMIZER)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """End a step, where the batch ended one."""
        if trainer.global_step > self._seen:
            self._seen = trainer.global_step
            self._observer.end_step(self._seen)
            every = self._every or trainer.log_every_n_steps or 1
            if self._seen % every == 0:
                figures = dict(self._observer.figures())
                for logger in trainer.loggers if figures else ():
                    logger.log_metrics(figures, step=self._seen)
        self._observer.enter(DATA)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """End."""
        self._observer.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End, whatever happened."""
        self._observer.end()
