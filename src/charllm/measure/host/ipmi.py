"""Inlet, fans and system power that the board's management controller tells through ipmitool.

``ipmitool`` takes seconds: it runs beside the sampler, every ten seconds, and what it said last is shown until it is
too old. It is asked only where its device can be opened. Output (ipmitool(1)): ``sensor`` prints rows of
``NAME | VALUE | UNIT | STATUS | ...``; ``dcmi power reading`` prints ``Instantaneous power reading: 512 Watts``.
"""

import math
import os
import re
import shutil
import subprocess
import time

from charllm.measure.host.hwmon import INLET
from charllm.measure.host.source import STALE_S, HostSource, Roots, named
from charllm.measure.telemetry.source import Reading

PERIOD_S, LONGEST_S = 10.0, 8.0
FIRST_S = 5.0
"""How long the first answer, which tells what sensors there are, may take."""
COMMANDS = (("sensor",), ("dcmi", "power", "reading"))
DCMI = re.compile(r"Instantaneous power reading:\s*([\d.]+)\s*Watts")


def find_ipmi(roots: Roots) -> HostSource:
    """Ask the management controller once for its sensors, and then again and again without waiting for it."""
    device = next((path for path in (roots.dev / "ipmi0", roots.dev / "ipmi" / "0") if path.exists()), None)
    if roots.ipmitool is None or device is None:
        return HostSource((), list)
    if not os.access(device, os.R_OK | os.W_OK):
        return HostSource((named("system_power_w", "dcmi"),), lambda: ["no_permission"])
    first = _ask_all(roots.ipmitool)
    controller = _Controller(roots.ipmitool, first)
    return HostSource(tuple(first), controller.read, close=controller.close)


def parse_sensors(text: str) -> dict[str, float]:
    """Return inlet temperatures and fan speeds of ``ipmitool sensor``."""
    found = {}
    for cells in (line.split("|") for line in text.splitlines()):
        if len(cells) < 3:
            continue
        name, value, unit = (cell.strip() for cell in cells[:3])
        try:
            number = float(value)
        except ValueError:
            continue
        if unit == "degrees C" and INLET.search(name):
            found[named("inlet_c", name)] = number
        elif unit == "RPM":
            found[named("fan_hz", name)] = number / 60
    return found


def parse_power(text: str) -> dict[str, float]:
    """Return the power of ``ipmitool dcmi power reading``."""
    found = DCMI.search(text)
    return {named("system_power_w", "dcmi"): float(found[1])} if found else {}


def _parse(text: str) -> dict[str, float]:
    return {**parse_sensors(text), **parse_power(text)}


def _ask_all(tool: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for command in COMMANDS:
        try:
            done = subprocess.run([tool, *command], capture_output=True, text=True, timeout=FIRST_S, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        found |= _parse(done.stdout)
    return found


class _Controller:
    """What the controller said last, renewed by processes that nobody waits for."""

    def __init__(self, tool: str, first: dict[str, float]) -> None:
        self._tool, self._columns = tool, tuple(first)
        now_s = time.monotonic()
        self._said = {column: (now_s, value) for column, value in first.items()}
        self._running: list[tuple[float, subprocess.Popen[str]]] = []
        self._due_s = now_s + PERIOD_S

    def read(self) -> list[Reading]:
        """Return what was said last; what is too old is missing."""
        now_s = time.monotonic()
        self._collect(now_s)
        if now_s >= self._due_s and not self._running:
            self._due_s = now_s + PERIOD_S
            self._running = [(now_s, process) for command in COMMANDS if (process := self._start(command))]
        return [value if now_s - said_s < STALE_S else "stale" for said_s, value in self._latest()]

    def close(self) -> None:
        """End the processes that still ask."""
        self._collect(math.inf)

    def _latest(self) -> list[tuple[float, float]]:
        return [self._said[column] for column in self._columns]

    def _start(self, command: tuple[str, ...]) -> "subprocess.Popen[str] | None":
        try:
            return subprocess.Popen(
                [self._tool, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                text=True,
            )  # fmt: skip
        except OSError:
            return None

    def _collect(self, now_s: float) -> None:
        """Take the answers of those that have ended, and end those that take too long."""
        left = []
        for started_s, process in self._running:
            if process.poll() is not None:
                said, _ = process.communicate()
                self._said |= {column: (now_s, value) for column, value in _parse(said).items() if column in self._said}
            elif now_s - started_s < LONGEST_S:
                left.append((started_s, process))
            else:
                _end(process)
        self._running = left


def _end(process: "subprocess.Popen[str]") -> None:
    """End a process without waiting for what it has started."""
    process.kill()
    if process.stdout is not None:
        process.stdout.close()
    process.wait()


def tool_at_hand() -> str | None:
    """Return ipmitool where it is installed."""
    return shutil.which("ipmitool") or shutil.which("/usr/sbin/ipmitool")
