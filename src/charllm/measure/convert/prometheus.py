"""Prometheus: answers of its HTTP API, scrapes of exporters as text, and lines of ``promtool tsdb dump``."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from charllm.errors import SpecError
from charllm.measure.convert.foreign import Foreign, GpuKey, Meaning
from charllm.measure.convert.names import metric_meaning
from charllm.measure.convert.source import ForeignFile, Hints, whole_lines
from charllm.measure.convert.values import read_moment, read_number, without_blanks
from charllm.spec.request import parse_json
from charllm.units import MEGA, MILLI, whole_number

DEEPEST = 8
USUAL_PERIOD_S = 30.0
"""dcgm-exporter's own."""
SAMPLE = re.compile(
    r"^\s*(?P<name>[a-zA-Z_:][\w:]*)?\s*(?:\{(?P<labels>.*)\})?\s+(?P<value>[-+\w.]+)"
    r"(?:\s+(?P<time>[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d{1,2})?))?\s*(?:#.*)?$"
)
LABEL = re.compile(r'([a-zA-Z_]\w*)\s*=~?\s*"((?:[^"\\]|\\.)*)"')
LATEST_SECONDS = 1e11
"""A time above it is in milliseconds: OpenMetrics writes seconds, Prometheus milliseconds."""

NUMBERS = ("gpu", "gpu_id", "index", "minor_number", "gpu_index", "id")
UUIDS = ("UUID", "uuid", "gpu_uuid", "GPU_UUID", "serial_number")
NODES = (
    "Hostname",
    "hostname",
    "node",
    "nodename",
    "exported_instance",
    "kubernetes_node",
    "host",
    "server",
    "instance",
)
MODELS = ("modelName", "name", "gpu_name", "card_model", "card_series", "model", "product_name")
ADDRESSES = ("pci_bus_id", "pci_bus", "bdf")
CLOCK_MEANINGS = {
    "GPU_CLOCK_TYPE_SYSTEM": Meaning("clock_hz", MEGA),
    "GPU_CLOCK_TYPE_MEMORY": Meaning("memory_clock_hz", MEGA),
}
"""Label clock_type of AMD's exporter."""


class Sample(NamedTuple):
    """One value of one series."""

    name: str
    labels: Mapping[str, str]
    time_s: float
    value: str


def looks_like_text(head: str) -> bool:
    """Tell whether a text has samples of GPU metrics that we know."""
    return any(metric_meaning(name) for name, _, _, _ in _samples(head.split("\n")[:2000]))


def looks_like_json(head: str) -> bool:
    """Tell whether a text begins as an answer of Prometheus."""
    start = head.lstrip()[:1]
    return start in ("{", "[") and ('"metric"' in head and ('"values"' in head or '"value"' in head))


def read_json(file: ForeignFile, _hints: Hints) -> Foreign:
    """Read an answer of /api/v1/query_range or /api/v1/query, alone, in a list, in a table, or one a line."""
    foreign = Foreign()
    foreign.clocks.add("utc")
    for name, series in _find_series(_documents(file), file.stem, 0):
        labels = {str(key): str(value) for key, value in series["metric"].items()}
        metric = labels.pop("__name__", name)
        values = series.get("values", [series["value"]] if "value" in series else [])
        if not isinstance(values, list):
            continue
        for pair in values:
            if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], int | float):
                seconds = float(pair[0]) * (MILLI if pair[0] > LATEST_SECONDS else 1.0)
                _add(Sample(metric, labels, seconds, str(pair[1])), foreign)
    return _checked(foreign, file)


def _documents(file: ForeignFile) -> Any:
    lines = [line for _, line in whole_lines(file.text)]
    if len(lines) > 1 and all(line.lstrip().startswith("{") and line.rstrip().endswith("}") for line in lines):
        return [parse_json(line, str(file.path), "PATH") for line in lines]
    return parse_json(file.text, str(file.path), "PATH")


def _find_series(value: Any, name: str, depth: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every series in an answer, with the name of what holds it."""
    if depth > DEEPEST:
        return
    if isinstance(value, dict):
        if isinstance(value.get("metric"), dict) and ("values" in value or "value" in value):
            yield name, value
            return
        for key, inner in value.items():
            plain = key in ("data", "result", "results", "response", "resultType", "status", "metrics")
            yield from _find_series(inner, name if plain else str(key), depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _find_series(inner, name, depth + 1)


def read_text(file: ForeignFile, hints: Hints) -> Foreign:
    """Read scrapes one after another; those without a time of their own are told apart by a series that comes again."""
    foreign = Foreign()
    period_s = hints.period_s or USUAL_PERIOD_S
    now_s: float | None = None
    tick = 0
    seen: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
    counted = timed = False
    for _, line in whole_lines(file.text):
        if line.lstrip().startswith("#"):
            moment = _comment_moment(line)
            if moment is not None:
                now_s, timed = moment, True
                foreign.clocks.add("utc")
            continue
        found = next(iter(_samples([line])), None)
        if found is None:
            moment = _comment_moment(line)
            now_s = now_s if moment is None else moment
            timed = timed or moment is not None
            continue
        name, labels, value, time_text = found
        if metric_meaning(name) is None and name not in FACTS and name != "gpu_clock":
            foreign.left_out[name] += 1
            continue
        if time_text:
            time_s = float(time_text) * (MILLI if float(time_text) > LATEST_SECONDS else 1.0)
            foreign.clocks.add("utc")
        elif now_s is not None:
            time_s = now_s
        else:
            series = (name, tuple(sorted(labels.items())))
            if series in seen:
                tick, seen = tick + 1, set()
            seen.add(series)
            time_s, counted = tick * period_s, True
        _add(Sample(name, labels, time_s, value), foreign)
    if counted:
        foreign.clocks.add("counted")
        if tick and hints.period_s is None:
            foreign.note(
                f"no timestamps: scrapes assumed to be {period_s:g} s apart, dcgm-exporter's own period; --period S"
            )
        if tick == 0:
            foreign.note("one scrape without a time: a single reading of each GPU, at second 0")
    if timed:
        foreign.clocks.add("utc")
    return _checked(foreign, file)


def _comment_moment(line: str) -> float | None:
    """Return the time that a line between scrapes tells, as scripts write it: ``# 2024-05-01T12:00:00Z``."""
    text = line.strip().lstrip("#").strip()
    if text.startswith(("HELP", "TYPE", "UNIT", "EOF")):
        return None
    found = STAMP.search(text)
    moment = read_moment(found[0]) if found else read_moment(text) if text[:3] in DAYS else None
    return moment.seconds if moment is not None and moment.clock != "relative" else None


STAMP = re.compile(
    r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?|\b1\d{9}(?:\d{3})?(?:\.\d+)?\b"
)
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def _samples(lines: list[str]) -> Iterator[tuple[str, dict[str, str], str, str]]:
    """Yield name, labels, value and time of each sample; other lines are left out."""
    for line in lines:
        if line.lstrip().startswith("#"):
            continue
        match = SAMPLE.match(line)
        if match is None:
            continue
        labels = {key: _unescape(value) for key, value in LABEL.findall(match["labels"] or "")}
        name = match["name"] or labels.pop("__name__", "")
        if name and _is_number(match["value"]):
            yield name, labels, match["value"], match["time"] or ""


def _unescape(text: str) -> str:
    return text.replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


FACTS = {"nvidia_smi_index", "nvidia_smi_gpu_info", "DCGM_FI_DEV_NAME"}
"""Metrics that say which GPU is which."""


def _add(sample: Sample, foreign: Foreign) -> None:
    """Give a sample to its GPU."""
    labels = sample.labels
    if labels.get("GPU_I_ID") or labels.get("gpu_partition_id", "0") not in ("", "0"):
        foreign.left_out["slices of GPUs (MIG, partitions)"] += 1
        return
    meaning = metric_meaning(sample.name)
    if meaning is None and sample.name.removeprefix("amd_") == "gpu_clock":
        meaning = CLOCK_MEANINGS.get(labels.get("clock_type", "").upper())
    if meaning is None and sample.name not in FACTS:
        foreign.left_out[sample.name] += 1
        return
    key = _key(labels)
    if key is None:
        foreign.left_out[f"{sample.name} without a GPU"] += 1
        return
    number = labels.get(next((name for name in NUMBERS if name in labels), ""), "").removeprefix("nvidia")
    device = labels.get("device", "")
    if not number.isdecimal() and device.startswith("nvidia"):
        number = device.removeprefix("nvidia")
    reading, _ = read_number(sample.value)
    if sample.name == "nvidia_smi_index" and not isinstance(reading, str):
        number = str(int(reading))
    foreign.know(
        key, number=whole_number(number), uuid=_first(labels, UUIDS),
        name=_first(labels, MODELS),
        pci=_first(labels, ADDRESSES),
    )  # fmt: skip
    if meaning is not None:
        foreign.add(key, meaning, sample.time_s, reading if isinstance(reading, str) else without_blanks(reading))


def _key(labels: Mapping[str, str]) -> GpuKey | None:
    gpu = _first(labels, UUIDS) or _first(labels, NUMBERS) or labels.get("device", "")
    node = _first(labels, NODES)
    if node and ":" in node and not _first(labels, NODES[:-1]):
        node = node.rsplit(":", 1)[0]
    if not gpu:
        return GpuKey(node, "0") if node else None
    return GpuKey(node, gpu)


def _first(labels: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")


def _checked(foreign: Foreign, file: ForeignFile) -> Foreign:
    if not foreign.tracks:
        names = ", ".join(list(foreign.left_out)[:5]) or "no series"
        raise SpecError("PATH", f"{file.path.name}: {names}", "metrics of dcgm-exporter or another GPU exporter")
    return foreign
