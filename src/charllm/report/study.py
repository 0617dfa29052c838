"""The cases of a study as one table, and the reasons why some were rejected."""

from collections.abc import Sequence
from typing import Any, Protocol

from charllm.report.tables import metric_cells, metric_headings, render_table, wrap_all
from charllm.result.metrics import selected, with_derived

VERDICTS = {0: "", 1: "failed", 2: "invalid", 3: "does not fit"}
"""By exit code."""
SHOWN = selected(
    "microbatches", "memory_peak_bytes", "link_bytes.nvlink", "link_bytes.nic", "message_bytes_median.tp",
    "message_bytes_median.pp", "step_time_s", "tokens_per_s_per_gpu", "mfu", "power_mean_w", "power_peak_sensor_w",
    "temperature_peak_c", "clock_mean_hz", "clock_loss", "tokens_per_j",
)  # fmt: skip
"""Metrics of every case."""
DROP = selected(
    "message_bytes_median.tp", "message_bytes_median.pp", "link_bytes.nvlink", "microbatches", "link_bytes.nic",
    "clock_loss", "clock_mean_hz", "power_peak_sensor_w", "tokens_per_j", "temperature_peak_c", "memory_peak_bytes",
    "mfu",
)  # fmt: skip
"""Those that a narrow terminal has no room for, the least important first."""


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
    columns = ["case", *(_heading(name, swept) for name in swept), *metric_headings(SHOWN), ""]
    cells = [_cells(outcome, swept) for outcome in outcomes]
    parts = [render_table(f"{study.name}: {study.about}", columns, cells, drop=metric_headings(DROP), where="--csv")]
    for title, codes in (("Rejected cases", (2, 3)), ("Failed cases", (1,))):
        found = [f"- {outcome.case}: {outcome.message}" for outcome in outcomes if outcome.exit_code in codes]
        parts += ["\n".join([title, *wrap_all(found)])] if found else []
    if study.corrections:
        parts.append("\n".join(["Corrections to the source", *wrap_all(f"- {text}" for text in study.corrections)]))
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
    metrics = metric_cells(with_derived(summary), SHOWN)
    return [outcome.case, *settings, *metrics, VERDICTS.get(outcome.exit_code, "invalid")]


def _setting(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
