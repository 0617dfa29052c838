"""Any training loop in torch: a step is a step of its optimizer."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from charllm.callbacks.modules import DATA, OPTIMIZER, watch_model
from charllm.callbacks.observer import Observer


@contextmanager
def steps(
    optimizer: Any,
    model: Any = None,
    *,
    out: str | None = None,
    profile: str | int | None = None,
    telemetry: str = "auto",
) -> Iterator[Observer]:
    """Mark the steps of an optimizer, and the phases of a model, while the block inside runs.

    The block gets the observer: its `figures()` are step time, energy and power of this process's GPU since the last
    call, for a logger of one's own; its `tell_loss(loss)` keeps losses.
    """
    observer = Observer(out, profile, telemetry)

    def begin(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        observer.enter(OPTIMIZER)

    def end(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        observer.end_step()
        observer.enter(DATA)

    handles = [optimizer.register_step_pre_hook(begin), optimizer.register_step_post_hook(end)]
    handles += watch_model(model, observer) if model is not None else []
    observer.begin()
    try:
        yield observer
    finally:
        for handle in handles:
            handle.remove()
        observer.end()
