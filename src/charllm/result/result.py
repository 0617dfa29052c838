"""RunResult: one type for simulated, emulated and measured runs."""

import json
import math
from dataclasses import dataclass, field
from typing import Any

from charllm.errors import SpecError

SCHEMA_VERSION = 1
ORIGINS = ("simulated", "emulated", "measured")


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run gave. A metric that is not known is None, with a reason in `warnings`."""

    origin: str
    spec: dict[str, Any]
    metrics: dict[str, Any]
    gpus: list[dict[str, Any]] = field(default_factory=list)
    nodes: list[dict[str, Any]] = field(default_factory=list)
    provenance: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    schema_version: int = SCHEMA_VERSION

    def as_table(self) -> dict[str, Any]:
        """Return the result as a plain table, keys in the order of the schema."""
        return {
            "origin": self.origin,
            "schema_version": self.schema_version,
            "spec": self.spec,
            "metrics": self.metrics,
            "gpus": self.gpus,
            "nodes": self.nodes,
            "provenance": self.provenance,
            "warnings": self.warnings,
        }


def to_json(result: RunResult) -> str:
    """Write a result as JSON; numbers that are not finite are a fault of ours, and refused."""
    return json.dumps(result.as_table(), indent=2, allow_nan=False)


def from_json(text: str, source: str) -> RunResult:
    """Read a result back, or say what is wrong with it."""
    try:
        table = json.loads(text)
        version = table["schema_version"]
        if version != SCHEMA_VERSION:
            raise SpecError(source, f"schema_version {version}", f"{SCHEMA_VERSION}")
        if table["origin"] not in ORIGINS:
            raise SpecError(source, table["origin"], f"an origin of {', '.join(ORIGINS)}")
        return RunResult(**table)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, SpecError):
            raise
        raise SpecError(source, type(error).__name__, "a result.json that charllm wrote") from None


def all_finite(value: Any) -> bool:
    """Tell whether every number in a nested value is finite."""
    if isinstance(value, dict):
        return all(all_finite(item) for item in value.values())
    if isinstance(value, list | tuple):
        return all(all_finite(item) for item in value)
    return not isinstance(value, float) or math.isfinite(value)
