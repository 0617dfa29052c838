"""What Megatron-Core makes of its settings, for the formats that hand settings to it."""

import re
from typing import Any

from charllm.errors import SpecError
from charllm.spec.readers.values import MAX_ENTRIES, MAX_TEXT, shown

SHARDINGS = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
CP_KINDS = {"p2p": "ring", "a2a": "all-to-all"}
RECOMPUTES = {"selective": "selective", "full": "full"}
DEFAULT_TOPK = 2

_REPEATS = (re.compile(r"\(([^()]+)\)\*(\d{1,4})"), re.compile(r"([^*])\*(\d{1,4})"))


def dense_layers(field: str, pattern: list[int], layers: int) -> int:
    """Return how many dense layers (0) come before the sparse ones (1) in a pattern of all layers."""
    dense = pattern.index(1) if 1 in pattern else len(pattern)
    if pattern != [0] * dense + [1] * (layers - dense):
        possible = f"{layers} entries, dense layers (0) before sparse ones (1)"
        raise SpecError(field, f"{len(pattern)} entries", possible)
    return dense


def sparse_letters(field: str, pattern: list[int], layers: int) -> str:
    """Return which layers have experts (E, else -), where these do not simply follow dense ones; else nothing."""
    dense = pattern.index(1) if 1 in pattern else len(pattern)
    if len(pattern) != layers or not set(pattern) <= {0, 1}:
        raise SpecError(field, f"{len(pattern)} entries", f"{layers} entries, 0 (dense) or 1 (sparse)")
    return "" if pattern == [0] * dense + [1] * (layers - dense) else "".join("-E"[entry] for entry in pattern)


def full_attention_every(field: str, pattern: list[int]) -> int:
    """Return the period of the layers that attend to all (0) in a pattern of windowed ones (1)."""
    every = pattern.index(0) + 1 if 0 in pattern else 1
    if pattern != [int(every == 1 or bool((index + 1) % every)) for index in range(len(pattern))]:
        raise SpecError(field, f"{len(pattern)} entries", "one full layer (0) at the end of each period")
    return every


def uneven_stages(field: str, layers: int, pp: int, vpp: int, ends: tuple[int | None, int | None]) -> list[int]:
    """Spread layers over stage chunks when the first or the last stage holds a number of its own."""
    _require_few(field, pp * vpp)
    middle = pp - sum(end is not None for end in ends)
    rest = layers - sum(end or 0 for end in ends)
    if rest < 0 or (rest % middle if middle > 0 else rest):
        raise SpecError(field, f"{rest} layers for the other stages", f"a multiple of {max(middle, 1)} stages")
    each = rest // middle if middle > 0 else 0
    first, last = (each if end is None else end for end in ends)
    stages = [first, *[each] * (pp - 2), last] if pp > 1 else [layers]
    if any(stage % vpp for stage in stages):
        raise SpecError(field, stages, f"multiples of {vpp} chunks")
    return [stage // vpp for stage in stages] * vpp


def counted_stages(field: str, layers: int, chunks: int, embedding: bool, loss: bool) -> list[int]:
    """Spread layers over stage chunks when the embedding or the loss counts as a layer."""
    _require_few(field, chunks)
    total = layers + embedding + loss
    if total % chunks or total < chunks:
        raise SpecError(field, f"{total} layers with embedding and loss", f"a multiple of {chunks} stage chunks")
    stages = [total // chunks] * chunks
    stages[0] -= embedding
    stages[-1] -= loss
    return stages


def _require_few(field: str, chunks: int) -> None:
    if chunks > MAX_ENTRIES:
        raise SpecError(field, f"{chunks} stage chunks", f"at most {MAX_ENTRIES}")


def read_layout(field: str, layout: Any, pp: int) -> list[int]:
    """Read the layers of each stage chunk from ``Ettt|(tt|)*29,m|L``, or from lists of the same."""
    stages = layout if isinstance(layout, list) else _layout_stages(field, layout)
    if len(stages) > MAX_ENTRIES or len(stages) % pp or not all(isinstance(stage, list) for stage in stages):
        raise SpecError(field, f"{len(stages)} stages", f"lists of layers, a multiple of {pp} pipeline stages")
    return [stage.count("decoder") for stage in stages]


def _layout_stages(field: str, layout: Any) -> list[list[str]]:
    text = layout.replace(",", "").replace("\\", "") if isinstance(layout, str) else ""
    for repeat in _REPEATS:
        if sum(len(body) * int(times) for body, times in repeat.findall(text)) > 4 * MAX_ENTRIES:
            text = ""
        text = repeat.sub(lambda match: match[1] * int(match[2]), text)
    if not re.fullmatch(r"[EtmL|]+", text):
        possible = "E, t, m and L with | between stages, e.g. Ettt|(tt|)*29,m|L"
        raise SpecError(field, shown(layout)[:MAX_TEXT], possible)
    return [["decoder"] * stage.count("t") for stage in text.split("|")]
