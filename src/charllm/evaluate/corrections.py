"""Published times that a table derived by a wrong convention, corrected with the reason stated; and doubtful rows."""

from collections.abc import Callable, Mapping
from typing import Any

from charllm.evaluate.spellings import spellings
from charllm.spec.run import RunSpec
from charllm.workload.model_flop import model_flop


def source_of(row_id: str) -> str:
    """Return the source a row's id begins with."""
    return row_id.split("-")[0]


def corrected_s(row_id: str, listed_s: float, run: RunSpec) -> float:
    """Return the measured step time of a row: as listed, or corrected where its source's convention is known wrong."""
    correction = corrections().get(source_of(row_id))
    return listed_s * RULES[correction["rule"]](run) if correction else listed_s


def corrections() -> Mapping[str, Any]:
    """Return the corrections by source: rule and reason."""
    found: Mapping[str, Any] = spellings()["corrections"]
    return found


def doubtful_reason(row_id: str) -> str | None:
    """Return why a row is doubtful, None where it is not."""
    reason: str | None = spellings()["doubtful"].get(row_id)
    return reason


def causal_over_full(run: RunSpec) -> float:
    """Return FLOPs with causal-half attention over FLOPs with full attention.

    A time derived as FLOPs / (MFU x peak) with full attention is too long by the inverse. Causal attention counted in
    full adds the half that it leaves out: forward and backward are 3 x 2 x s^2 x heads x (query + value width) / 2.
    """
    model, training = run.model, run.training
    widths = model.heads * (model.query_head_dim + model.value_head_dim)
    left_out = 3 * training.seq_length**2 * widths * (model.layers + model.mtp_layers) * training.global_batch_size
    causal = model_flop(run)
    return causal / (causal + left_out) if model.causal else 1.0


RULES: dict[str, Callable[[RunSpec], float]] = {"causal attention": causal_over_full}
"""Rule of a correction: the factor on the listed time."""
