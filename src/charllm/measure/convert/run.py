"""Foreign recordings become ordinary runs."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from charllm.errors import SpecError, unknown_name
from charllm.measure.convert import aligned, charllm_ppt, dmon, prometheus, records, smi_dump, table
from charllm.measure.convert.columns import understand
from charllm.measure.convert.foreign import CLOCKS, Foreign, join
from charllm.measure.convert.formats import AUTO, FORMATS, LOG, LOG_KINDS
from charllm.measure.convert.load import find_windows
from charllm.measure.convert.refused import refuse_known
from charllm.measure.convert.settle import NodeReadings, describe_readings, settle
from charllm.measure.convert.source import ForeignFile, Hints, list_files, read_file
from charllm.measure.convert.steps import StepEnd, count_gpus, is_dated, place_steps, without_warm_up
from charllm.measure.convert.write import write_run
from charllm.measure.logs import Log, read_log
from charllm.measure.record import JobRecord
from charllm.measure.redaction import describe_command
from charllm.result.result import RunResult


class Reader(NamedTuple):
    """How one layout is known and read."""

    fits: Callable[[ForeignFile], bool]
    read: Callable[[ForeignFile, Hints], Foreign]


READERS: dict[str, Reader] = {
    "charllm-ppt": Reader(charllm_ppt.is_ours, charllm_ppt.read),
    "smi-dump": Reader(lambda file: smi_dump.looks_like(file.head), smi_dump.read),
    "dmon": Reader(lambda file: dmon.looks_like(file.head), dmon.read),
    "prometheus-json": Reader(lambda file: prometheus.looks_like_json(file.head), prometheus.read_json),
    "prometheus-text": Reader(lambda file: prometheus.looks_like_text(file.head), prometheus.read_text),
    "aligned": Reader(lambda file: aligned.looks_like(file.head), aligned.read),
    "records": Reader(lambda file: records.looks_like(file.head), records.read),
    "table": Reader(lambda file: table.looks_like(file.head), table.read),
}
"""Layouts, in the order in which a file is tried."""
MOST_LEFT_OUT = 6


class Wish(NamedTuple):
    """What to convert, and how."""

    format: str
    paths: tuple[Path, ...]
    out: Path
    logs: tuple[Path, ...] = ()
    columns: tuple[str, ...] = ()
    """NAME=QUANTITY."""
    header: str = ""
    period_s: float | None = None
    gpu: str = ""
    gpus: tuple[str, ...] = ()
    from_s: float | None = None
    to_s: float | None = None
    spec: dict[str, Any] | None = None
    environment: Mapping[str, str] = {}
    """Of this process: values of its secrets are blotted out of the record."""


def convert_files(wish: Wish) -> RunResult:
    """Convert files into a run; a file that cannot be read leaves nothing behind."""
    if wish.format not in FORMATS:
        raise unknown_name("FORMAT", wish.format, FORMATS)
    hints = Hints(wish.period_s, _asked_columns(wish.columns), _header(wish.header))
    used: list[dict[str, Any]] = []
    parts: list[tuple[str, Foreign]] = []
    logs: list[Log] = []
    kinds: set[str] = set()
    for path in list_files(list(wish.paths)):
        file = read_file(path)
        kind = _kind(file, wish.format, hints, alone=len(wish.paths) == 1 and not path.is_dir())
        if kind is None:
            continue
        kinds.add(kind)
        used.append(_describe_file(file, kind, wish.environment))
        if kind == LOG:
            logs.append(_read_log(path, LOG_KINDS.get(wish.format, "auto")))
        else:
            parts.append((file.stem, READERS[kind].read(file, hints)))
    for path in wish.logs:
        used.append(_describe_file(read_file(path), LOG, wish.environment))
        logs.append(_read_log(path, "auto"))
    if not used:
        raise SpecError("PATH", ", ".join(map(str, wish.paths)), f"files of the format {wish.format}")
    foreign = join(parts)
    nodes, told = settle(foreign, wish.gpu, wish.gpus) if parts else ([], [])
    stretches, about_steps = _stretches(logs, foreign, has_readings=bool(nodes))
    nodes, stretches = _cut(nodes, stretches, wish.from_s, wish.to_s)
    told = [*foreign.notes, *told, *about_steps, *_tell(foreign, nodes)]
    job = _job(wish, nodes, stretches, foreign, used, told)
    if logs:
        # Readings may be of some of a job's GPUs alone.
        job.details["converted"]["log_gpus"] = next((count for log in logs if (count := count_gpus(log))), None)
    return write_run(wish.out, nodes, stretches, job, _source(wish, kinds))


def _kind(file: ForeignFile, asked: str, hints: Hints, *, alone: bool) -> str | None:
    """Return the layout of a file; None for a file of a folder that is of none."""
    if alone and asked in (AUTO, "csv"):
        refuse_known(file)
    layouts = FORMATS[asked] or (*READERS, LOG)
    for name in layouts:
        if name != LOG and READERS[name].fits(file):
            return name
    if (hints.header or hints.columns) and "table" in layouts:
        return "table"
    if LOG in layouts and (asked != AUTO or read_log(file.path).steps):
        return LOG
    if not alone:
        return None
    if asked == "csv":
        # Its reader says what is missing.
        return "table"
    refuse_known(file)
    first = next((line.strip() for line in file.head.split("\n") if line.strip()), "")
    raise SpecError(f"{file.path.name}", first, _expected(asked, file, first))


def _expected(asked: str, file: ForeignFile, first: str) -> str:
    for fault in table.FAULTS:
        if fault in file.head.lower():
            return "readings: this is a message of the driver"
    if table.names_a_time(first):
        return (
            "columns of known quantities: --column NAME=QUANTITY, such as 'GPU0=gpu0_power_w', for each that has none"
        )
    if asked == AUTO:
        formats = ", ".join(name for name in FORMATS if name != AUTO)
        return f"a file of one of {formats}; a table without a header needs --header"
    return f"a file of the format {asked}; a table without a header needs --header"


def _asked_columns(columns: Sequence[str]) -> dict[str, str]:
    asked = {}
    for text in columns:
        name, divider, quantity = text.rpartition("=")
        if not divider or not name.strip() or not quantity.strip():
            raise SpecError("--column", text, "NAME=QUANTITY, e.g. 'P (mW)=power_mw'")
        column = understand(quantity)
        if not column.role:
            known = "time, gpu, node, power_w, power_mw, temperature_c, clock_mhz, utilization_percent, memory_used_mib"
            raise SpecError("--column", text, f"a quantity such as {known}")
        asked[name] = quantity
    return asked


def _header(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",")) if text else ()


def _describe_file(file: ForeignFile, kind: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return what the record keeps of a file: its name without folders, its fingerprint and its size."""
    name = describe_command([file.path.name], environment)[0]
    return {"name": name, "layout": kind, "sha256": file.sha256, "bytes": file.size_bytes}


def _read_log(path: Path, kind: str) -> Log:
    log = read_log(path, kind)
    if not log.steps:
        raise SpecError("--log", str(path), "a log of a training program that reports on its steps")
    return log


def _stretches(logs: Sequence[Log], foreign: Foreign, *, has_readings: bool) -> tuple[list[list[StepEnd]], list[str]]:
    """Place the steps of logs beside the readings."""
    found: list[list[StepEnd]] = []
    told = []
    for log in logs:
        told += [f"{log.kind} log: {warning}" for warning in log.warnings]
        dated = is_dated(log)
        if has_readings and not (dated and foreign.clocks & {"utc", "local"}):
            said = "steps carry no time of day" if not dated else "readings carry no time of day"
            raise SpecError("--log", f"a {log.kind} log, but {said}", "a log and readings on the wall clock")
        placed = place_steps(log)
        kept = [without_warm_up(stretch) for stretch in placed]
        told += _tell_stretches(placed, kept)
        found += kept
    return found, told


def _tell_stretches(placed: Sequence[list[StepEnd]], kept: Sequence[list[StepEnd]]) -> list[str]:
    """Say which steps of a log its figures describe."""
    told = []
    if len(kept) > 1:
        longest = max(kept, key=len)
        runs = ", ".join(f"{stretch[0].number + 1} to {stretch[-1].number}" for stretch in placed[:MOST_LEFT_OUT])
        more = " ..." if len(kept) > MOST_LEFT_OUT else ""
        told.append(
            f"the log holds {len(kept)} runs of the program (steps {runs}{more}); "
            f"metrics describe the longest, that ends with step {longest[-1].number}"
        )
    left_out = max((len(whole) - len(rest) for whole, rest in zip(placed, kept, strict=True)), default=0)
    if left_out:
        told.append(f"the first {left_out} step{'s' if left_out > 1 else ''} took over 1.5 times the median: left out "
                    "as warm-up")  # fmt: skip
    return told


def _cut(
    nodes: Sequence[NodeReadings], stretches: Sequence[list[StepEnd]], from_s: float | None, to_s: float | None
) -> tuple[list[NodeReadings], list[list[StepEnd]]]:
    """Keep what lies between two times, in seconds after the first reading."""
    if from_s is None and to_s is None:
        return list(nodes), list(stretches)
    starts = [one.times_s[0] for node in nodes for series in node.series for one in series.values() if len(one.times_s)]
    first_s = min(starts, default=min((stretch[0].time_s for stretch in stretches), default=0.0))
    low, high = first_s + (from_s or 0.0), first_s + (float("inf") if to_s is None else to_s)
    cut_nodes = []
    for node in nodes:
        kept = []
        for series in node.series:
            inside = {name: one.between(low, high) for name, one in series.items()}
            kept.append({name: one for name, one in inside.items() if len(one.times_s)})
        cut_nodes.append(NodeReadings(node.name, node.gpus, tuple(kept)))
    if nodes and not any(series for node in cut_nodes for series in node.series):
        raise SpecError("--from", f"{from_s or 0:g} to {to_s or 0:g} s", "a time with readings in it")
    cut_steps = [[end for end in stretch if low <= end.time_s <= high] for stretch in stretches]
    return cut_nodes, [stretch for stretch in cut_steps if len(stretch) > 1]


def _tell(foreign: Foreign, nodes: Sequence[NodeReadings]) -> list[str]:
    told = []
    if "local" in foreign.clocks:
        told.append("times: the source does not name its time zone; kept as if it were UTC")
    if foreign.left_out:
        names = [name for name, _ in foreign.left_out.most_common(MOST_LEFT_OUT)]
        more = f" and {len(foreign.left_out) - len(names)} more" if len(foreign.left_out) > len(names) else ""
        told.append(f"columns left out (unknown quantities): {', '.join(names)}{more}")
    period_s = describe_readings(nodes)["period_s"]
    if isinstance(period_s, float) and period_s > 0.2:
        told.append(
            f"readings are {period_s:.3g} s apart: shorter events, such as peaks within a step, are not visible"
        )
    return told


def _job(
    wish: Wish, nodes: Sequence[NodeReadings], stretches: Sequence[Sequence[StepEnd]], foreign: Foreign,
    used: list[dict[str, Any]], told: list[str],
) -> JobRecord:  # fmt: skip
    """Describe the record: which files it is from, and over which time it goes."""
    readings = describe_readings(nodes)
    moments = [one.times_s for node in nodes for series in node.series for one in series.values() if len(one.times_s)]
    ends = moments or [np.array([end.time_s for end in stretch]) for stretch in stretches]
    first, last = (
        (float(min(times[0] for times in ends)), float(max(times[-1] for times in ends))) if ends else (0.0, 0.0)
    )
    period_s = readings["period_s"] if isinstance(readings["period_s"], float) and readings["period_s"] > 0 else 1.0
    last = last if last > first else first + period_s
    converted = {
        "format": wish.format,
        "files": used,
        "clock": sorted(CLOCKS[clock] for clock in foreign.clocks),
        "left_out": dict(foreign.left_out.most_common(100)),
        **readings,
    }
    names = [file["name"] for file in used]
    spec = wish.spec or {"converted": names if len(names) <= 5 else [*names[:4], f"... ({len(names)} files in all)"]}
    details: dict[str, Any] = {"converted": converted, "notes": told}
    if len(nodes) > 1:
        details["nodes"] = len(nodes)
    windows_s = {"command": [first, last]} if stretches else find_windows(nodes, first, last)
    if windows_s["command"] != [first, last]:
        start_s, end_s = (moment - first for moment in windows_s["command"])
        told.append(f"the job is taken to run from {start_s:.0f} s to {end_s:.0f} s, where power is above idle")
    return JobRecord("measured", spec, None, 1 / period_s, details, windows_s, ended=True)


def _source(wish: Wish, kinds: set[str]) -> str:
    return wish.format if wish.format != AUTO else "+".join(sorted(kinds))
