"""Sizes of a job that programs print when they start."""

import re
from collections.abc import Iterable
from itertools import islice

from charllm.measure.logs.lines import Line
from charllm.measure.logs.mlperf import PREFIX, SIZES, read_sizes

DOTTED = re.compile(r"(?:^|:print\])\s*(?P<name>\w+) \.{3,} ?(?P<value>\d+)\s*$")
"""Megatron-LM: ``  seq_length ........................ 4096``; DeepSpeed, behind ``[config.py:1001:print]``."""
DOTTED_ALONE = {"train_batch_size": "global_batch_size"}
"""A batch over all GPUs in DeepSpeed's settings, that of a GPU in others'."""
ASSIGNED = re.compile(r"['\"]?\b(?P<name>[a-z_]+)['\"]?\s*[:=]\s*['\"]?(?P<value>\d+)\b(?![.\d])")
NAMES = {
    "seq_length": "seq_length", "encoder_seq_length": "seq_length", "max_seq_len": "seq_length",
    "seq_len": "seq_length",
    "world_size": "world_size", "global_batch_size": "global_batch_size", "micro_batch_size": "micro_batch_size",
    "tensor_model_parallel_size": "tp", "pipeline_model_parallel_size": "pp", "context_parallel_size": "cp",
    "expert_model_parallel_size": "ep", "data_parallel_size": "dp", "num_layers": "layers", "hidden_size": "hidden",
    **{name: name for name in SIZES.values()},
}  # fmt: skip
MOST_LINES = 20_000


def read_settings(lines: Iterable[Line]) -> dict[str, int]:
    """Return the sizes that the first lines state; the first statement of each counts."""
    found: dict[str, int] = {}
    for line in islice(lines, MOST_LINES):
        text = line.text
        if " ..." in text:
            dotted = DOTTED.search(text)
            pairs = [(DOTTED_ALONE.get(dotted["name"], dotted["name"]), dotted["value"])] if dotted else []
        elif PREFIX in text:
            pairs = read_sizes(text)
        elif any(name in text for name in ("seq_len", "world_size", "batch_size", "parallel_size")):
            pairs = [(match["name"], match["value"]) for match in ASSIGNED.finditer(text)]
        else:
            continue
        for name, value in pairs:
            if name in NAMES and len(value) < 16:
                found.setdefault(NAMES[name], int(value))
    return {name: value for name, value in found.items() if value > 0}
