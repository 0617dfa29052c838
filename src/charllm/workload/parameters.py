"""The parameter table of a model: how many weights sit where, and how many a token meets."""

from typing import NamedTuple

from charllm.spec.model import Model
from charllm.workload.cut import Cut, whole_cut
from charllm.workload.layer import layer, layer_kinds, mtp_kinds
from charllm.workload.op import Module
from charllm.workload.vocabulary import embedding, head, mtp_entry


class ParameterRow(NamedTuple):
    """One kind of weight."""

    name: str
    each: float
    copies: int
    """Layers (or ends of the model) that have it."""
    active_fraction: float = 1.0
    """Share of it that one token meets."""

    @property
    def total(self) -> float:
        """Weights of this kind in the whole model."""
        return self.each * self.copies

    @property
    def active(self) -> float:
        """Weights of this kind that one token meets."""
        return self.total * self.active_fraction


Rows = dict[tuple[str, float], ParameterRow]
"""Rows by name and size: parts of one name may differ from layer to layer."""


def parameter_table(model: Model) -> list[ParameterRow]:
    """List the weights of a model by kind, multi-token-prediction layers last."""
    cut = whole_cut(model)
    rows: Rows = {}
    for module in embedding(cut):
        _add(rows, cut, module, 1)
    kinds = layer_kinds(model)
    for kind in dict.fromkeys(kinds):
        for module in layer(cut, kind):
            _add(rows, cut, module, kinds.count(kind))
    for module in head(cut, owns_weight=not model.tied_embeddings):
        _add(rows, cut, module, 1)
    if model.mtp_layers:
        parts = (module for kind in mtp_kinds(model) for module in layer(cut, kind))
        modules = (*mtp_entry(cut), *parts, head(cut, owns_weight=False)[0])
        each = sum(module.weights for module in modules)
        rows["multi-token prediction", each] = ParameterRow("multi-token prediction", each, model.mtp_layers, 0.0)
    return [row for row in rows.values() if row.total]


def _add(rows: Rows, cut: Cut, module: Module, count: int) -> None:
    known = rows.get((module.name, module.weights))
    share = cut.model.topk / cut.model.experts if module.expert else 1.0
    rows[module.name, module.weights] = ParameterRow(
        module.name, module.weights, count + (known.copies if known else 0), share
    )


def count_parameters(model: Model, *, with_mtp: bool = False) -> float:
    """Count the weights of a model; multi-token-prediction layers count only when asked, as makers state sizes."""
    return sum(row.total for row in parameter_table(model) if with_mtp or row.active_fraction > 0)


def count_active_parameters(model: Model) -> float:
    """Count the weights that one token meets."""
    return sum(row.active for row in parameter_table(model))
