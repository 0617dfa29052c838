"""One strategy at a time: its memory, and its price on the fast path, both as the simulator has them."""

from typing import Any

from charllm.simulate.fast import fast_metrics
from charllm.simulate.predict import memory_metrics
from charllm.workload.memory import stage_memories
from charllm.workload.step import Step


def memory_of(step: Step) -> dict[str, Any]:
    """Return the metrics of a step's memory."""
    memories = stage_memories(step)
    return memory_metrics(step.run, memories, max(memories, key=lambda memory: memory.total_bytes))


def price_step(step: Step, memory: dict[str, Any]) -> dict[str, Any]:
    """Return the metrics of a step that the fast path knows."""
    return {"microbatches": step.run.microbatches, **memory, **fast_metrics(step)}
