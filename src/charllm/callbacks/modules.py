"""Phases of a model: forward while it is called, backward from then until something else begins."""

from typing import Any

from charllm.callbacks.observer import Observer

FORWARD, BACKWARD, OPTIMIZER, DATA, CHECKPOINT = "forward", "backward", "optimizer", "data", "checkpoint"


def watch_model(model: Any, observer: Observer) -> list[Any]:
    """Mark the forward and backward passes of a torch module in training; returns handles that end it."""

    def begin(module: Any, _inputs: Any) -> None:
        if module.training:
            observer.enter(FORWARD)

    def end(module: Any, _inputs: Any, _output: Any) -> None:
        if module.training:
            observer.enter(BACKWARD)

    return [model.register_forward_pre_hook(begin), model.register_forward_hook(end)]
