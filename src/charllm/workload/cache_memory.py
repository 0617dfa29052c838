"""Memory of the key-value cache on the ranks of a stage.

Equation: sequences of a replica x tokens of each x bytes of a token, over the stage's layers with attention; those that
look back over a window keep no more than that.
Source: workload/cache.py for the bytes of a token.
Ignores: blocks that an engine reserves beyond what a batch needs (vLLM fills its GPU whatever runs).
"""

from charllm.spec.run import RunSpec
from charllm.workload.cache import token_width
from charllm.workload.cut import cut_run
from charllm.workload.layer import LayerKind, layer_kinds, of_kind


def stage_cache_bytes(run: RunSpec, stage: int) -> float:
    """Return the cache of a rank of a stage when every sequence of a generation has all of its tokens."""
    if run.generation is None:
        return 0.0
    sequences = run.training.global_batch_size / run.parallelism.dp / run.generation.tokens_in_row
    tokens = run.generation.prompt_tokens + run.generation.new_tokens
    cut = cut_run(run)
    held = sum(
        (min(tokens, kind.window) if kind.window else tokens) * token_width(of_kind(cut, kind))
        for kind in _attending(run, stage)
    )
    return sequences * held * cut.cache_element_bytes


def _attending(run: RunSpec, stage: int) -> list[LayerKind]:
    """Return the layers with keys and values of their own on a stage."""
    kinds, first, attending = layer_kinds(run.model), 0, []
    for chunk, count in enumerate(run.parallelism.layers_per_stage):
        if chunk % run.parallelism.pp == stage:
            owned = kinds[first : first + count]
            attending += [
                kind for kind in owned if kind.mixer in ("", "H") and kind.part in ("", "*") and not kind.borrows
            ]
        first += count
    return attending
