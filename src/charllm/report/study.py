"""The cases of a study as one table, and the reasons why some were rejected."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from charllm.report.tables import format_percent, render_table, wrap_all
from charllm.units import MEGA, format_bytes

COLUMNS = (
    "case",
    "microbatches",
    "memory",
    "NVLink",
    "NICs",
    "tp message",
    "pp message",
    "step s",
    "tokens/s/GPU",
    "MFU",
    "W/GPU",
    "peak W",
    "peak C",
    "MHz",
    "clock loss",
    "tokens/J",
    "",
)
DROP = (
    "tp message",
    "pp message",
    "NVLink",
    "microbatches",
    "NICs",
    "clock loss",
    "MHz",
    "peak W",
    "tokens/J",
    "peak C",
    "memory",
    "MFU",
)
"""Columns that a narrow terminal has no room for, the least important first."""


class CaseOutcome(Protocol):
    """What a table needs of an outcome."""

    @property
    def case(self) -> str:
        """Name of the case."""

    @property
    def exit_code(self) -> int:
        """0 simulated, 2 invalid, 3 does not fit in memory."""

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


def render_study(study: NamedStudy, outcomes: Sequence[CaseOutcome]) -> str:
    """Return the table of cases, then the rejected cases and the corrections to the source."""
    cells = [_cells(outcome) for outcome in outcomes]
    parts = [render_table(f"{study.name}: {study.about}", COLUMNS, cells, drop=DROP, where="--json")]
    refused = [f"- {outcome.case}: {outcome.message}" for outcome in outcomes if outcome.exit_code]
    if refused:
        parts.append("\n".join(["Rejected cases", *wrap_all(refused)]))
    if study.corrections:
        parts.append("\n".join(["Corrections to the source", *wrap_all(f"- {text}" for text in study.corrections)]))
    return "\n\n".join(parts)


def _cells(outcome: CaseOutcome) -> list[str]:
    summary = outcome.summary
    if not summary:
        return [outcome.case, *["-"] * (len(COLUMNS) - 2), "invalid"]
    verdict = {0: "", 3: "does not fit"}.get(outcome.exit_code, "invalid")
    return [
        outcome.case,
        str(summary["microbatches"]),
        format_bytes(summary["memory_peak_bytes"]),
        format_bytes(summary["nvlink_bytes"]),
        format_bytes(summary["nic_bytes"]),
        _or_dash(summary["tp_message_bytes"], format_bytes),
        _or_dash(summary["pp_message_bytes"], format_bytes),
        # Outcomes stored before seconds were predicted have none.
        _or_dash(summary.get("step_time_s"), lambda seconds: f"{seconds:.3f}"),
        _or_dash(summary.get("tokens_per_s_per_gpu"), lambda tokens: f"{tokens:,.0f}"),
        _or_dash(summary.get("mfu"), format_percent),
        _or_dash(summary.get("power_mean_w"), lambda watts: f"{watts:.0f}"),
        _or_dash(summary.get("power_peak_sensor_w"), lambda watts: f"{watts:.0f}"),
        _or_dash(summary.get("temperature_peak_c"), lambda degrees: f"{degrees:.1f}"),
        _or_dash(summary.get("clock_mean_hz"), lambda hertz: f"{hertz / MEGA:.0f}"),
        _or_dash(summary.get("clock_loss_fraction"), format_percent),
        _or_dash(summary.get("tokens_per_j"), lambda tokens: f"{tokens:.3g}"),
        verdict,
    ]


def _or_dash(value: float | None, write: Callable[[float], str]) -> str:
    return "-" if value is None else write(value)
