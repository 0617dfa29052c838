"""Run a command under power or clock limits, as a table of caps or a user says."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from charllm.errors import SpecError
from charllm.measure.limits.boards import Before, Found, Limits, as_commands, check_limits, find_board
from charllm.measure.limits.guard import limited
from charllm.measure.limits.watch import watching
from charllm.result.result import RunResult
from charllm.result.store import RESULT_FILE
from charllm.spec.request import parse_json
from charllm.units import MEGA

KNEE = "knee"
ALIKE = "caps of all GPUs alike (without --per stage)"
"""What can be applied."""


def read_caps(path: Path, knee: str = KNEE) -> tuple[Limits, float | None]:
    """Return limits of a table of caps, of a plan's best strategy or of a run, and the tokens a second it promises."""
    file = path / RESULT_FILE if path.is_dir() else path
    try:
        table = parse_json(file.read_text(encoding="utf-8"), str(path), "PLAN")
    except OSError as error:
        raise SpecError("PLAN", str(path), f"a readable file ({error.strerror or error})") from None
    best = table.get("best") if isinstance(table, Mapping) else None
    run = best[0] if isinstance(best, list) and best else table
    if isinstance(run, Mapping) and {"spec", "metrics"} <= run.keys():
        return _take_run(run, str(path))
    return take_knee(table, knee, str(path))


def _take_run(run: Mapping[str, Any], source: str) -> tuple[Limits, float | None]:
    """Return the limits of a run or of a plan's strategy, and the tokens a second that it has."""
    try:
        asked, tokens_per_s = run["spec"]["conditions"], run["metrics"]["tokens_per_s"]
        limits = _as_limits(asked.get("power_cap_w"), asked.get("clock_cap_hz"))
        promised = None if tokens_per_s is None else float(tokens_per_s)
    except (TypeError, KeyError, ValueError, AttributeError):
        raise SpecError("PLAN", source, "a simulated run, with its conditions") from None
    if limits.power_w is None and limits.clock_hz is None:
        raise SpecError("PLAN", f"{source}, without a limit", "a run with --power-cap or --clock-cap")
    return limits, promised


def _as_limits(power_w: Any, clock_hz: Any) -> Limits:
    """Return limits that were read; TypeError where one is no number."""
    if not all(value is None or isinstance(value, int | float) for value in (power_w, clock_hz)):
        raise TypeError(power_w, clock_hz)
    return Limits(power_w, clock_hz)


def take_knee(table: Any, knee: str, source: str) -> tuple[Limits, float | None]:
    """Return the limits of a point of a table of caps, and the tokens a second that it promises."""
    expected = "what `charllm caps --json` or `charllm plan --json` prints, or a stored run"
    if not isinstance(table, Mapping) or not isinstance(table.get("knees"), Mapping):
        raise SpecError("PLAN", source, expected)
    if table.get("per") != "gpu":
        raise SpecError("PLAN", f"{source}, caps per {table.get('per')}", ALIKE)
    if knee not in table["knees"]:
        raise SpecError("--knee", knee, f"one of {', '.join(table['knees'])}")
    try:
        point = table["points"][table["knees"][knee]]
        power_w, clock_hz = point.get("cap_w"), point.get("cap_hz")
        if not (power_w or clock_hz):
            raise TypeError(point)
        return _as_limits(power_w, clock_hz), float(point["tokens_per_s"])
    except (TypeError, KeyError, IndexError, ValueError, AttributeError):
        raise SpecError("PLAN", source, expected) from None


def plan_commands(limits: Limits, numbers: Sequence[int] = ()) -> list[str]:
    """Return what would be done, as commands of the vendor's tool, and how it is undone."""
    gpus = choose(find_board().gpus, numbers)
    check_limits(limits, gpus)
    return [*as_commands(limits, gpus), "# the command", *as_commands(limits, gpus, back=True)]


def choose(gpus: Sequence[Before], numbers: Sequence[int]) -> list[Before]:
    """Return the GPUs that were asked for; all of them where none were."""
    for number in numbers:
        if number not in {gpu.number for gpu in gpus}:
            raise SpecError("--gpus", number, f"numbers of GPUs: {', '.join(str(gpu.number) for gpu in gpus)}")
    return [gpu for gpu in gpus if not numbers or gpu.number in numbers]


def run_limited(
    command: Sequence[str], out: Path, limits: Limits, numbers: Sequence[int] = (),
    promised_tokens_per_s: float | None = None, within: float = 0.05, found: Found | None = None, **settings: Any,
) -> RunResult:  # fmt: skip
    """Measure a command under limits; they are put back at its end, and as soon as it is slower than promised."""
    from charllm.api.measurement import measure_command

    found = find_board() if found is None else found
    gpus = choose(found.gpus, numbers)
    check_limits(limits, gpus)
    least = None if promised_tokens_per_s is None else (1 - within) * promised_tokens_per_s
    with limited(found, limits, gpus) as held:

        def give_up(rate: float) -> None:
            told = f"{rate:.6g} tokens/s, below {least:.6g}: limits are put back, the command goes on without them"
            print(f"charllm: {told}", file=sys.stderr)
            held.restore()

        with watching(out, least, give_up):
            return measure_command(command, out, **settings)


def describe(limits: Limits) -> str:
    """Name limits for people."""
    power = None if limits.power_w is None else f"{limits.power_w:g} W"
    clock = None if limits.clock_hz is None else f"{limits.clock_hz / MEGA:.0f} MHz"
    return " and ".join(filter(None, (power, clock)))
