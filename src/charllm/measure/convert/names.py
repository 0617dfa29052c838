"""What the columns, fields and metrics of known tools are (names.toml)."""

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from charllm.measure.convert.foreign import Meaning
from charllm.measure.convert.values import unit_factor

LATER_NAMES = {"clocks_throttle_reasons.": "clocks_event_reasons."}
EXPORTED_REASON = re.compile(r"^nvidia_smi_clocks_(?:throttle|event)_reasons_(\w+)$")


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("names.toml").read_text(encoding="utf-8"))


@cache
def meanings(tool: str) -> dict[str, Meaning]:
    """Return the names that a tool gives its columns, fields or metrics, and what they are."""
    return {name: _meaning(entry) for name, entry in _tables()[tool].items()}


def _meaning(entry: str | dict[str, Any]) -> Meaning:
    if isinstance(entry, str):
        return Meaning(entry)
    if "bit" in entry:
        return Meaning(entry["quantity"], entry["bit"], "reason")
    _, factor = unit_factor(entry.get("unit", "")) or ("", 1.0)
    return Meaning(entry["quantity"], factor, entry.get("how", "value"), entry.get("rank", 0))


def smi_meaning(field: str) -> Meaning | None:
    """Return what a field of nvidia-smi is, whatever driver wrote it."""
    name = field.strip().lower()
    for old, new in LATER_NAMES.items():
        name = name.replace(old, new)
    return meanings("nvidia-smi").get(name)


def dcgm_meaning(field: str) -> Meaning | None:
    """Return what a field of DCGM is: by name, by the heading of dmon, or by number."""
    full = field.strip().upper().removeprefix("DCGM_FI_")
    known = meanings("dcgm")
    listed = _tables()["dcgm-tags"].get(full) or _tables()["dcgm-ids"].get(full, "")
    return known.get(full) or known.get(full.removesuffix("_TOTAL")) or known.get(listed)


def metric_meaning(metric: str) -> Meaning | None:
    """Return what a metric of Prometheus is."""
    if metric.upper().startswith("DCGM_FI_"):
        return dcgm_meaning(metric)
    name, known = metric.lower(), meanings("exporters")
    reason = EXPORTED_REASON.match(name)
    if reason and name not in known:
        return smi_meaning(f"clocks_event_reasons.{reason[1]}")
    return known.get(name) or known.get(name.removeprefix("amd_")) or known.get(name.removesuffix("_total"))
