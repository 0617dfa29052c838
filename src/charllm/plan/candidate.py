"""A candidate of a plan: one strategy with its predicted metrics."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from charllm.spec.request import Table
from charllm.spec.run import RunSpec


class Candidate(NamedTuple):
    """One strategy with its predicted metrics."""

    run: RunSpec
    request: Table
    """The request that describes the run, for flags and TOML files."""
    metrics: Mapping[str, Any]
    """Metrics of the coupled simulator (of the fast path where `coupled` is False), with derived ones of money and
    of the whole run."""
    coupled: bool

    def __repr__(self) -> str:
        from charllm.plan.strategy import name_strategy

        tokens = self.metrics.get("tokens_per_s")
        return f"Candidate({name_strategy(self.run)}{'' if tokens is None else f'; {tokens:,.0f} tokens/s'})"
