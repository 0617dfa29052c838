"""Points of a cap advisor as a plain table, for JSON, CSV, text and figures."""

from collections.abc import Sequence
from typing import Any

from charllm.plan.caps import MEANINGS, CapKind, CapPoint, find_knees
from charllm.plan.money import Tariff, tell_tariff
from charllm.plan.stage_caps import StageCaps
from charllm.result.answers import describe_spec
from charllm.result.differences import basis_of, difference, find_error
from charllm.result.metrics import selected
from charllm.spec.run import RunSpec

SHOWN = selected(
    "step_time_s", "tokens_per_s", "energy_per_step_j", "tokens_per_j", "power_mean_w", "clock_mean_hz",
    "temperature_peak_c", "cluster_power_peak_w", "facility_power_mean_w", "money_per_trillion_tokens",
)  # fmt: skip
"""Metrics of a point."""
CHANGES = {"time": "step time", "energy": "energy"}
"""Change that a point states: the quantity whose errors of differences it has."""


def tabulate_caps(run: RunSpec, kind: CapKind, points: Sequence[CapPoint], tariff: Tariff) -> dict[str, Any]:
    """Return points of one cap for all GPUs; times and energies also over those of the first point."""
    rows = [{_key(kind): point.caps[0], **_row(point, points[0], kind)} for point in points]
    return _table(run, kind, "gpu", rows, find_knees(points), tariff)


def tabulate_stage_caps(run: RunSpec, kind: CapKind, found: StageCaps, tariff: Tariff) -> dict[str, Any]:
    """Return points of a cap for each stage, each beside one cap for all that takes as long."""
    first = found.levels[0].uniform
    rows = []
    for uniform, staged in found.levels:
        row: dict[str, Any] = {f"caps_{_unit(kind)}": list(staged.caps), **_row(staged, first, kind)}
        row[f"uniform_{_key(kind)}"] = uniform.caps[0]
        row |= {f"uniform_{name}": value for name, value in _row(uniform, first, kind).items()}
        row["saved_fraction"] = 1 - staged.metrics["energy_per_step_j"] / uniform.metrics["energy_per_step_j"]
        rows.append(row)
    knees = find_knees([level.staged for level in found.levels])
    groups = [{"stages": list(group.stages), "waits_s": group.waits_s} for group in found.groups]
    return {**_table(run, kind, "stage", rows, knees, tariff), "groups": groups}


def _table(
    run: RunSpec, kind: CapKind, per: str, rows: list[dict[str, Any]], knees: dict[str, int], tariff: Tariff
) -> dict[str, Any]:
    return {
        "run": describe_spec(run.as_table()),
        "kind": kind.name,
        "per": per,
        "unit": kind.unit,
        "scale": kind.scale,
        "vendor": run.cluster.gpu.vendor,
        "currency": tariff.currency,
        "prices": tell_tariff(tariff),
        "definitions": MEANINGS,
        "basis": {word: basis_of(find_error(name, f"{kind.name} limit")) for word, name in CHANGES.items()},
        "knees": knees,
        "points": rows,
    }


def _unit(kind: CapKind) -> str:
    return kind.of_all.rpartition("_")[2]


def _key(kind: CapKind) -> str:
    return f"cap_{_unit(kind)}"


def _row(point: CapPoint, first: CapPoint, kind: CapKind) -> dict[str, Any]:
    """Return the metrics of a point, and how far time and energy of a step are from the first's, with intervals."""
    row = {name: point.metrics[name] for name in SHOWN}
    for word, name in (("time", "step_time_s"), ("energy", "energy_per_step_j")):
        before, after = float(first.metrics[name]), float(point.metrics[name])
        found = difference(name, before, after, {f"conditions.{kind.of_all}": (first.caps, point.caps)})
        low, high = (found.low, found.high) if found is not None and point is not first else (0.0, 0.0)
        row |= {f"{word}_change_fraction": after / before - 1, f"{word}_change_low_fraction": low,
                f"{word}_change_high_fraction": high}  # fmt: skip
    return row
