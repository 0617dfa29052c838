"""Inlet, fans and system power from a Redfish answer in a file, which an agent of the site keeps up to date.

The file holds one resource, or several in a list: `Thermal` and `Power` (DSP2046, older), `ThermalMetrics`,
`EnvironmentMetrics` or `Sensor` (newer). A file and no address: asking a management controller needs passwords, and a
sampler must not hold them.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from charllm.errors import SpecError
from charllm.measure.host.hwmon import INLET
from charllm.measure.host.source import STALE_S, HostSource, Roots, named
from charllm.measure.telemetry.source import Reading
from charllm.spec.request import parse_json, read_text


def find_redfish(roots: Roots) -> HostSource:
    """Return what the file holds when it is opened; a later one may have newer values of the same."""
    if roots.redfish is None:
        return HostSource((), list)
    field = "--host redfish"
    first = parse_redfish(parse_json(read_text(roots.redfish, field), str(roots.redfish), field))
    if not first:
        raise SpecError(field, str(roots.redfish), "a Redfish resource with inlet temperatures, fans or power")
    return HostSource(tuple(first), _File(roots.redfish, first).read)


def parse_redfish(answer: Any) -> dict[str, float]:
    """Return the inlet temperatures, fan speeds and system power of a Redfish answer."""
    found: dict[str, float] = {}
    for resource in answer if isinstance(answer, list) else [answer]:
        if isinstance(resource, dict):
            found.update(_of_resource(resource))
    return found


def _of_resource(resource: dict[str, Any]) -> Iterator[tuple[str, float]]:
    for sensor in _tables(resource.get("Temperatures")):
        name, place = str(sensor.get("Name", "inlet")), str(sensor.get("PhysicalContext", ""))
        if place == "Intake" or INLET.search(name):
            yield from _number(named("inlet_c", name), sensor.get("ReadingCelsius"))
    for fan in _tables(resource.get("Fans")):
        if fan.get("ReadingUnits", "RPM") == "RPM":
            yield from _number(
                named("fan_hz", str(fan.get("Name") or fan.get("FanName", "fan"))), fan.get("Reading"), 1 / 60
            )
    for control in _tables(resource.get("PowerControl"))[:1]:
        yield from _number(named("system_power_w", "redfish"), control.get("PowerConsumedWatts"))
    inlet, power = (resource.get(key) for key in ("TemperatureSummaryCelsius", "PowerWatts"))
    if isinstance(inlet, dict) and isinstance(inlet.get("Intake"), dict):
        yield from _number(named("inlet_c", "Intake"), inlet["Intake"].get("Reading"))
    if isinstance(power, dict):
        yield from _number(named("system_power_w", "redfish"), power.get("Reading"))
    if resource.get("ReadingType") == "Temperature" and resource.get("PhysicalContext") == "Intake":
        yield from _number(named("inlet_c", str(resource.get("Name", "Intake"))), resource.get("Reading"))


def _tables(found: Any) -> list[dict[str, Any]]:
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def _number(column: str, value: Any, factor: float = 1.0) -> Iterator[tuple[str, float]]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield column, value * factor


class _File:
    """What the file said when it was last written."""

    def __init__(self, path: Path, first: dict[str, float]) -> None:
        self._path, self._columns, self._said = path, tuple(first), dict(first)
        self._written_s = path.stat().st_mtime

    def read(self) -> list[Reading]:
        """Return the values of the file; of one that nobody has written for long, none."""
        try:
            written_s = self._path.stat().st_mtime
            if written_s != self._written_s:
                self._said = parse_redfish(json.loads(self._path.read_text(encoding="utf-8")))
                self._written_s = written_s
        except (OSError, ValueError):
            # Half written, or away for a moment: the last whole one holds until it is too old.
            written_s = self._written_s
        if time.time() - written_s >= STALE_S:
            return ["stale"] * len(self._columns)
        return [self._said.get(column, "not_supported") for column in self._columns]
