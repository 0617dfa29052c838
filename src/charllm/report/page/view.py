"""A run as its figures see it: the result, the spec behind it, and what was computed for its page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from charllm.errors import CharllmError
from charllm.report.figure import Figure
from charllm.result.answers import ONLY_MEMORY, name_some
from charllm.result.columns import Columns, Row, absent_column, rows_of
from charllm.result.description import CONDITION, DEFAULT, texts_of
from charllm.result.machine import cluster_of
from charllm.result.metrics import METRICS
from charllm.result.result import RunResult
from charllm.result.uncertainty import intervals
from charllm.spec.hardware import Cluster, Node

Interval = tuple[float, float]
NOT_MEASURED = "not measured in this run"
"""Reason of a metric that nobody has asked a measured run for."""


class Background(NamedTuple):
    """What is the same for all predictions of a version."""

    published: Columns
    """Published runs with their held-out predictions (evaluate/predictions.py)."""
    constants: Columns
    """Constants of the simulator (evaluate/constants.py)."""


@dataclass(frozen=True)
class RunView:
    """One run, with all that its figures may ask for; every function of `report/page` that draws a run takes one."""

    result: RunResult
    background: Background | None = None
    """What every prediction stands among and rests on; None: left out."""
    traced: Sequence[Mapping[str, Any]] = ()
    """What each traced rank of a measured run spent seconds, joules and clock on (analysis/attribution/table.py)."""
    prediction: RunResult | None = None
    """What was predicted of a measured or emulated run; None where its spec is no run that can be simulated."""
    broken: dict[str, str] = field(default_factory=dict, repr=False)
    """Table that cannot be read: why."""

    @cached_property
    def cluster(self) -> Cluster | None:
        """The machine; None where the spec says nothing that this version reads."""
        return cluster_of(self.result)

    @cached_property
    def steps_s(self) -> list[Interval]:
        """Begin and end of the marked steps of a measured run, on the time axis of its signals."""
        return [(row["start_s"], row["end_s"]) for row in self.rows("steps")]

    def table(self, name: str) -> Columns | None:
        """Return a table of the run; None where it has none or it cannot be read."""
        if name in self.broken:
            return None
        try:
            found = self.result.table(name) or None
        except (CharllmError, OSError, ValueError) as error:
            self.broken[name] = f"table {name}: {error}"
            return None
        if not found or not any(found.values()):
            return None
        absent = absent_column(name, found)
        if absent is not None:
            self.broken[name] = f"table {name}: stored by another version, without {absent!r}"
            return None
        return found

    def rows(self, name: str) -> list[Row]:
        """Return the rows of a table of the run; none where it has none."""
        return rows_of(self.table(name) or {})

    def interval(self, metric: str) -> Interval | None:
        """Return the interval of a metric, as it was measured or predicted."""
        predicted = intervals(self.result).get(metric)
        if predicted is not None:
            return predicted["low"], predicted["high"]
        measured = self.result.provenance.get("measurement", {}).get("intervals", {}).get(metric)
        if not measured or None in measured:
            return None
        return float(measured[0]), float(measured[1])

    def why_not(self, metric: str, table: str = "") -> str:
        """Say why a metric, and the table behind its figure, are not known."""
        told = [text.partition(":")[2].strip() for text in self.result.warnings if text.startswith(f"{metric}:")]
        if told:
            return told[0]
        if self.result.metrics.get("fits") is False:
            return "a run that does not fit in memory has no step time (see --ignore-memory)"
        if table in self.broken:
            return self.broken[table]
        if table:
            return f"this run was stored without the table {table!r}"
        return f"this {self.result.origin} run has no such data"

    def why_not_simulated(self, table: str) -> str:
        """Say why a table that needs further simulations is not there."""
        told = {row["table"]: row["reason"] for row in self.rows("reasons")}
        return told.get(table) or "it needs more simulations than this page runs; `charllm report` computes it"

    @property
    def conditions(self) -> str:
        """Under which conditions the run was executed or simulated, in one line."""
        told, origin = self.table("description"), self.result.origin
        if told is None:
            return f"{origin}; conditions not known: they are not stored in this run"
        framework = self.result.spec.get("framework", {}).get("name", "unknown")
        defaults = texts_of(told, DEFAULT)
        taken = [f"defaults of {framework}: {', '.join(defaults)}"] if defaults else []
        return "; ".join([origin, framework, *texts_of(told, CONDITION), *taken])

    @property
    def has_times(self) -> bool:
        """Whether the step time is known."""
        return self.result.metrics.get("step_time_s") is not None

    @property
    def misfit(self) -> list[str]:
        """Return why a run does not fit in memory and what would, as sentences; none where it fits."""
        told = [text.partition(": ")[2] for text in self.result.warnings if text.startswith("memory:")]
        return [] if self.result.metrics.get("fits") is not False else [f"{one[:1].upper()}{one[1:]}." for one in told]

    @property
    def warnings(self) -> list[str]:
        """Return the warnings that the answer does not repeat; metrics that nobody has measured in one line."""
        told: list[tuple[str, str]] = []
        unknown: list[tuple[str, str]] = []
        for text in self.result.warnings:
            if self.misfit and (text == ONLY_MEMORY or text.startswith("memory:")):
                continue
            metric, _, reason = text.partition(": ")
            (unknown if metric in METRICS and reason == NOT_MEASURED else told).append((metric, text))
        found = [*self.broken.values(), *(text for _metric, text in told)]
        return [*found, f"{NOT_MEASURED}: {name_some([metric for metric, _ in unknown])}"] if unknown else found

    def node_name(self, number: int) -> str:
        """Return what a node is called: its host name where it is known, else its number."""
        return next(
            (str(row["name"]) for row in self.result.nodes if row["node"] == number and row.get("name")), str(number)
        )

    def gpu_name(self, row: Mapping[str, Any]) -> str:
        """Name a GPU by node and slot, and by the slot ahead of it in the air stream."""
        node = self.node_of(row["node"])
        ahead = node.upstream_slots(row["slot"]) if node is not None and row["slot"] < node.gpus else ()
        return f"node {self.node_name(row['node'])}, slot {row['slot']}" + (
            f", behind slot {ahead[0]}" if ahead else ""
        )

    def node_of(self, number: int) -> Node | None:
        """Return what kind of node stands at a number; None where the spec is not known or knows no such node."""
        if self.cluster is None or number >= self.cluster.nodes:
            return None
        kinds = {place: other.node for other in self.cluster.mixed for place in other.nodes}
        return kinds.get(number, self.cluster.node)

    def gpu_rows(self) -> list[dict[str, Any]]:
        """Return the rows of GPUs, causes of throttling in columns of their own whatever the origin."""
        rows = []
        for row in self.result.gpus:
            shares = row.get("throttled_time_fraction") or {}
            rows.append({**row, **{f"throttled_{cause}_fraction": share for cause, share in shares.items()}})
        return rows


def missing(name: str, kind: str, question: str, reason: str) -> Figure:
    """Return a figure that cannot be drawn, with the reason."""
    return Figure(name, kind, question, f"Not shown: {reason}.", missing=reason)
