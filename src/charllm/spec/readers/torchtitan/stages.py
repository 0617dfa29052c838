"""How torchtitan spreads layers over pipeline stages: evenly, at split points, or by the names of their modules."""

import re
from itertools import pairwise
from typing import Any

from charllm.errors import SpecError
from charllm.spec.readers.values import MAX_TEXT, shown

_LAYER = re.compile(r"layers\.(\d{1,4})")


def spread_layers(layers: int, stages: int, first: int, last: int) -> list[int]:
    """Spread layers over stages as torchtitan does, with embedding and head counted as layers."""
    if not 1 <= stages <= layers + first + last:
        raise SpecError("parallelism.pipeline_parallel_degree", stages, f"at most {layers} stages")
    each, more = divmod(layers + first + last, stages)
    split = [each + (index < more) for index in range(stages)]
    split[0] -= first
    split[-1] -= last
    if min(split) < 0:
        raise SpecError("parallelism.pipeline_parallel_degree", stages, "stages that hold the embedding and the head")
    return split


def split_at(points: list[Any], layers: int) -> list[int]:
    """Read ``["layers.8", "layers.16"]``: the layers that begin a stage."""
    starts = [int(found[1]) for point in points if (found := _LAYER.fullmatch(str(point)))]
    edges = [0, *starts, layers]
    if len(starts) != len(points) or sorted(edges) != edges:
        raise SpecError("pipeline_parallel_split_points", shown(points), "layers in order, e.g. layers.8")
    return [end - start for start, end in pairwise(edges)]


def count_layers(parts: list[Any], layers: int) -> list[int]:
    """Read ``[["tok_embeddings", "layers.0"], ["layers.1", "norm", "output"]]``: the modules of each stage."""
    named = [part if isinstance(part, list) else [] for part in parts]
    found = [[int(match[1]) for name in part if (match := _LAYER.fullmatch(str(name)))] for part in named]
    if [layer for part in found for layer in part] != list(range(layers)):
        possible = f"the {layers} layers in order, and the embedding and the head at the ends"
        raise SpecError("parallelism.module_fqns_per_model_part", shown(parts)[:MAX_TEXT], possible)
    return [len(part) for part in found]
