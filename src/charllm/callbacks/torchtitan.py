"""A hook for torchtitan's Trainer, of any release whose trainer has `train_step`."""

from collections.abc import Callable
from typing import Any

from charllm.callbacks.modules import CHECKPOINT, DATA
from charllm.callbacks.observer import Observer
from charllm.errors import SpecError

COMPUTE = "forward and backward"


def torchtitan(
    trainer: Any, *, out: str | None = None, profile: str | int | None = None, telemetry: str = "auto"
) -> Observer:
    """Mark steps and phases of a trainer whose `train()` is called next; its metrics get energy and power.

    Raises SpecError for an object that has no `train` and `train_step`.
    """
    for name in ("train", "train_step"):
        if not callable(getattr(trainer, name, None)):
            raise SpecError("trainer", type(trainer).__name__, "torchtitan's Trainer, with train and train_step")
    observer = Observer(out, profile, telemetry)
    train, train_step = trainer.train, trainer.train_step

    def whole(*args: Any, **kwargs: Any) -> Any:
        observer.begin()
        try:
            return train(*args, **kwargs)
        finally:
            observer.end()

    def one_step(*args: Any, **kwargs: Any) -> Any:
        observer.enter(COMPUTE)
        found = train_step(*args, **kwargs)
        observer.end_step()
        observer.enter(DATA)
        return found

    trainer.train, trainer.train_step = whole, one_step
    _watch(getattr(trainer, "checkpointer", None), "save", observer)
    _add_metrics(getattr(trainer, "metrics_processor", None), observer)
    return observer


def _watch(owner: Any, name: str, observer: Observer) -> None:
    """Mark the calls of a checkpointer."""
    save: Callable[..., Any] | None = getattr(owner, name, None)
    if save is None:
        return

    def marked(*args: Any, **kwargs: Any) -> Any:
        observer.enter(CHECKPOINT)
        found = save(*args, **kwargs)
        observer.enter(DATA)
        return found

    setattr(owner, name, marked)


def _add_metrics(processor: Any, observer: Observer) -> None:
    """Give every line of torchtitan's metrics the figures of the steps before it."""
    log = getattr(processor, "log", None)
    if log is None:
        return

    def marked(*args: Any, **kwargs: Any) -> Any:
        more = {**(kwargs.pop("extra_metrics", None) or {}), **observer.figures()}
        return log(*args, **kwargs, extra_metrics=more)

    processor.log = marked
