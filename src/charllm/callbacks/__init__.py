"""One line in a training program: its steps and phases are marked, and the energy of a step goes to its own logger.

    Trainer(..., callbacks=[charllm.callbacks.HuggingFace()])          # Hugging Face, TRL
    lightning.Trainer(callbacks=[charllm.callbacks.Lightning()])       # Lightning 2
    charllm.callbacks.torchtitan(trainer); trainer.train()             # torchtitan
    with charllm.callbacks.steps(optimizer, model): ...                # any loop in torch

Under ``charllm measure`` marks join the readings of that run. By itself, ``out="runs/mine"`` measures the whole
training, on the first rank of each node, and ``profile="3@20"`` records some steps with torch's profiler.
"""

from __future__ import annotations

from importlib import import_module

# As in `typing`, whose import would take longer than all of this file.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from charllm.callbacks.huggingface import HuggingFace
    from charllm.callbacks.lightning import Lightning
    from charllm.callbacks.loop import steps
    from charllm.callbacks.torchtitan import torchtitan

__all__ = ["HuggingFace", "Lightning", "steps", "torchtitan"]
_HOMES = {
    "HuggingFace": "charllm.callbacks.huggingface",
    "Lightning": "charllm.callbacks.lightning",
    "steps": "charllm.callbacks.loop",
    "torchtitan": "charllm.callbacks.torchtitan",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found
