"""The cases of a study as one table, and the reasons why some were rejected."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from charllm.report.tables import format_percent, render_table
from charllm.result.metrics import CAUSES
from charllm.units import MEGA, format_bytes

VERDICTS = {0: "", 1: "failed", 2: "invalid", 3: "does not fit"}
"""By exit code."""


class CaseOutcome(Protocol):
    """What a table needs of an outcome."""

    @property
    def case(self) -> str:
        """Name of the case."""

    @property
    def exit_code(self) -> int:
        """A key of VERDICTS."""

    @property
    def message(self) -> str:
        """Why it was rejected, or its warnings."""

    @property
    def summary(self) -> dict[str, Any]:
        """Its numbers."""


class NamedStudy(Protocol):
    """What a table needs of a study."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def about(self) -> str:
        """The question it answers."""

    @property
    def corrections(self) -> tuple[str, ...]:
        """What differs from its source."""

    @property
    def swept(self) -> tuple[str, ...]:
        """Names of the axes and fields that it varies."""


def render_study(study: NamedStudy, outcomes: Sequence[CaseOutcome]) -> str:
    """Return the table of cases, then the rejected and failed cases and the corrections to the source."""
    swept = [name for name in study.swept if not _is_label(name, outcomes)]
    columns = ["case", *(_heading(name, swept) for name in swept), *METRIC_COLUMNS, ""]
    cells = [_cells(outcome, swept) for outcome in outcomes]
    parts = [render_table(f"{study.name}: {study.about}", columns, cells)]
    for title, codes in (("Rejected cases", (2, 3)), ("Failed cases", (1,))):
        found = [f"  {outcome.case}: {outcome.message}" for outcome in outcomes if outcome.exit_code in codes]
        parts += ["\n".join([title, *found])] if found else []
    if study.corrections:
        parts.append("Corrections to the source\n" + "\n".join(f"  {text}" for text in study.corrections))
    return "\n\n".join(parts)


def _is_label(name: str, outcomes: Sequence[CaseOutcome]) -> bool:
    """Tell whether the names of the cases say the same as a column."""
    return all(outcome.summary.get(name) in (None, *outcome.case.split(" / ")) for outcome in outcomes)


def _heading(name: str, names: Sequence[str]) -> str:
    """Return the last part of a field's name where no other field ends in it."""
    last = name.rpartition(".")[2]
    return last if [other.rpartition(".")[2] for other in names].count(last) == 1 else name


def _cells(outcome: CaseOutcome, swept: Sequence[str]) -> list[str]:
    summary = outcome.summary
    settings = ["-" if summary.get(name) is None else _setting(summary[name]) for name in swept]
    metrics = [_or_dash(find(summary), write) for find, write in METRIC_COLUMNS.values()]
    return [outcome.case, *settings, *metrics, VERDICTS.get(outcome.exit_code, "invalid")]


def _setting(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _or_dash(value: Any, write: Callable[[Any], str]) -> str:
    return "-" if value is None else write(value)


def _metric(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda summary: summary.get(name)


def _clock_loss(summary: dict[str, Any]) -> float | None:
    """Add up what every cause takes from the clock."""
    losses = [summary.get(f"clock_loss_fraction.{cause}") for cause in CAUSES]
    known = [loss for loss in losses if loss is not None]
    return sum(known) if known else None


METRIC_COLUMNS: dict[str, tuple[Callable[[dict[str, Any]], Any], Callable[[Any], str]]] = {
    "microbatches": (_metric("microbatches"), str),
    "memory": (_metric("memory_peak_bytes"), format_bytes),
    "NVLink": (_metric("link_bytes.nvlink"), format_bytes),
    "NICs": (_metric("link_bytes.nic"), format_bytes),
    "tp message": (_metric("message_bytes_median.tp"), format_bytes),
    "pp message": (_metric("message_bytes_median.pp"), format_bytes),
    "step s": (_metric("step_time_s"), lambda seconds: f"{seconds:.3f}"),
    "tokens/s/GPU": (_metric("tokens_per_s_per_gpu"), lambda tokens: f"{tokens:,.0f}"),
    "MFU": (_metric("mfu"), format_percent),
    "W/GPU": (_metric("power_mean_w"), lambda watts: f"{watts:.0f}"),
    "peak W": (_metric("power_peak_sensor_w"), lambda watts: f"{watts:.0f}"),
    "peak C": (_metric("temperature_peak_c"), lambda degrees: f"{degrees:.1f}"),
    "MHz": (_metric("clock_mean_hz"), lambda hertz: f"{hertz / MEGA:.0f}"),
    "clock loss": (_clock_loss, format_percent),
    "tokens/J": (_metric("tokens_per_j"), lambda tokens: f"{tokens:.3g}"),
}
"""Heading: which number of a case it shows, and how it is written."""
