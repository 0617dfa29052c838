"""The cases of a study as one table, and why some were refused."""

from collections.abc import Sequence
from typing import Any, Protocol

from charllm.report.tables import render_table
from charllm.units import format_bytes, format_si


class CaseOutcome(Protocol):
    """What a table needs of an outcome."""

    @property
    def case(self) -> str:
        """Name of the case."""

    @property
    def exit_code(self) -> int:
        """0 simulated, 2 wrong, 3 does not fit."""

    @property
    def message(self) -> str:
        """Why it was refused, or what to know."""

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
        """What it asks."""

    @property
    def corrections(self) -> tuple[str, ...]:
        """What differs from its source."""


def render_study(study: NamedStudy, outcomes: Sequence[CaseOutcome]) -> str:
    """Return the table of cases, then what was refused and corrected."""
    cells = [_cells(outcome) for outcome in outcomes]
    columns = ["case", "microbatches", "memory", "FLOP", "NVLink", "NICs", "tp message", "pp message", ""]
    parts = [render_table(f"{study.name}: {study.about}", columns, cells)]
    refused = [[outcome.case, outcome.message] for outcome in outcomes if outcome.exit_code]
    if refused:
        parts.append("Refused\n" + "\n".join(f"  {case}: {message}" for case, message in refused))
    if study.corrections:
        parts.append("Corrected against the source\n" + "\n".join(f"  {text}" for text in study.corrections))
    return "\n\n".join(parts)


def _cells(outcome: CaseOutcome) -> list[str]:
    summary = outcome.summary
    if not summary:
        return [outcome.case, *["-"] * 7, "wrong"]
    verdict = {0: "", 3: "does not fit"}.get(outcome.exit_code, "wrong")
    return [
        outcome.case,
        str(summary["microbatches"]),
        format_bytes(summary["memory_peak_bytes"]),
        format_si(summary["executed_flop"]),
        format_bytes(summary["nvlink_bytes"]),
        format_bytes(summary["nic_bytes"]),
        _or_dash(summary["tp_message_bytes"]),
        _or_dash(summary["pp_message_bytes"]),
        verdict,
    ]


def _or_dash(size_bytes: float | None) -> str:
    return "-" if size_bytes is None else format_bytes(size_bytes)
