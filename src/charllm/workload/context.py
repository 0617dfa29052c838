"""What context-parallel ranks exchange around attention."""

from math import lcm
from typing import NamedTuple

from charllm.workload.cut import Cut
from charllm.workload.op import Op, collective


class ContextExchange(NamedTuple):
    """What cp ranks exchange around attention."""

    before_forward: tuple[Op, ...] = ()
    after_forward: tuple[Op, ...] = ()
    before_backward: tuple[Op, ...] = ()
    after_backward: tuple[Op, ...] = ()


def exchange_context(cut: Cut, query: float, key_value: float, output: float) -> ContextExchange:
    """Describe what cp ranks send each other: keys and values round a ring, or heads for sequence in an all-to-all."""
    size = cut.element_bytes
    if cut.cp_kind == "ring" and cut.framework.ring_exchange == "all-gather":
        # Llama 3 report, section 3.3.2; torch's context_parallel does so by default.
        whole = cut.cp * key_value * size
        return ContextExchange(
            before_forward=collective("all_gather", "cp", whole, cut.cp),
            after_backward=collective("reduce_scatter", "cp", whole, cut.cp),
        )
    if cut.cp_kind == "ring":
        return ContextExchange(
            before_forward=collective("ring_exchange", "cp", key_value * size, cut.cp),
            before_backward=collective("ring_exchange", "cp", 2 * key_value * size, cut.cp),
        )
    if cut.framework.every_message:
        return _separate_exchanges(cut, query, key_value, output)
    everything = collective("all_to_all", "cp", (query + key_value + output) * size, cut.cp)
    return ContextExchange(before_forward=everything, before_backward=everything)


def _separate_exchanges(cut: Cut, query: float, key_value: float, output: float) -> ContextExchange:
    """Exchange queries, keys, values and outputs in a call each, as DeepSpeed's and Transformer Engine's do.

    Key-value heads are repeated where cp ranks could not share them evenly.
    """
    size, model = cut.element_bytes, cut.model
    heads = cut.heads if model.attention == "mla" else cut.kv_heads
    keys = key_value * model.query_head_dim / (model.query_head_dim + model.value_head_dim)
    repeats = lcm(heads, cut.cp) / heads
    inputs = tuple(
        op
        for elements in (query, keys * repeats, (key_value - keys) * repeats)
        for op in collective("all_to_all", "cp", elements * size, cut.cp)
    )
    outputs = collective("all_to_all", "cp", output * size, cut.cp)
    return ContextExchange(inputs, outputs, outputs, inputs[::-1])
