"""``nvidia-smi -q``, ``nvidia-smi -x -q`` and ``nvidia-smi -l`` logs: the whole state of every GPU, again and again."""

import re
from collections.abc import Iterator
from xml.etree import ElementTree

from charllm.errors import SpecError
from charllm.measure.convert.foreign import POWER, Foreign, GpuKey, Meaning
from charllm.measure.convert.names import meanings
from charllm.measure.convert.source import ForeignFile, Hints, whole_lines
from charllm.measure.convert.values import read_flag, read_moment, read_number, unit_factor

SECTIONS = {
    "gpu power readings": "power readings", "clocks event reasons": "clocks reasons", "fb memory": "fb memory usage",
    "clocks throttle reasons": "clocks reasons", "gpu utilization": "utilization",
}  # fmt: skip
"""Other spellings of a section; power and thermal slowdowns of a section of their own are in `clocks reasons` too."""
TABLE_TIME = re.compile(r"^\w{3} \w{3} +\d+ \d\d:\d\d:\d\d \d{4}\s*$")
TABLE_NAME = re.compile(r"^\|\s+(\d{1,6})\s+(.+?)\s+(?:On|Off|N/A|TCC|WDDM)\s*\|\s+([0-9A-Fa-f:.]+)\s")
TABLE_ROW = re.compile(
    r"^\|\s*(?:N/A|\d+%|ERR!|\[N/A\])?\s*(\d+|N/A)C?\s+P?\S+\s+(\d+|N/A)W?\s*/\s*(\d+|N/A)W?\s*\|\s*(\d+)MiB\s*/\s*\d+MiB\s*\|\s*(\d+|N/A)%?"
)
TABLE = (
    Meaning("temperature_c"), Meaning(POWER, rank=2), Meaning("power_limit_w"), Meaning("memory_used_bytes", 2.0**20),
    Meaning("utilization_fraction", 0.01),
)  # fmt: skip


def looks_like(head: str) -> bool:
    """Tell whether a text is one of nvidia-smi's dumps."""
    return "NVSMI LOG" in head or "<nvidia_smi_log>" in head or ("| NVIDIA-SMI" in head and "MiB" in head)


def read(file: ForeignFile, hints: Hints) -> Foreign:
    """Read every dump of a file."""
    foreign = Foreign()
    if "| NVIDIA-SMI" in file.head:
        _read_tables(file, hints, foreign)
    else:
        _read_entries(file, hints, foreign)
    if not foreign.tracks:
        raise SpecError("PATH", str(file.path), "a dump of nvidia-smi with power, temperature or clocks of a GPU")
    return foreign


def _read_entries(file: ForeignFile, hints: Hints, foreign: Foreign) -> None:
    known = meanings("nvidia-smi-q")
    dumps = list(_xml_dumps(file) if "<nvidia_smi_log>" in file.text else _text_dumps(file))
    for place, (stamp, gpus) in enumerate(dumps):
        moment = read_moment(stamp) if stamp else None
        foreign.clocks.add("counted" if moment is None else moment.clock)
        time_s = place * (hints.period_s or 1.0) if moment is None else moment.seconds
        for number, entries in enumerate(gpus):
            facts = dict(entries)
            uuid = facts.get(("", "gpu uuid"), facts.get(("", "uuid"), ""))
            key = GpuKey("", uuid or str(number))
            foreign.know(key, number=number, uuid=uuid, name=facts.get(("", "product name")), pci=facts.get(("", "id")))
            for where, text in entries:
                if meaning := known.get("/".join(where)):
                    foreign.add(key, meaning, time_s, _value(text, meaning))


def _value(text: str, meaning: Meaning) -> float | str:
    if meaning.how == "reason":
        return read_flag(text)
    reading, unit = read_number(text)
    factor = unit_factor(unit)
    return reading if isinstance(reading, str) or factor is None else reading * factor[1]


Entries = list[tuple[tuple[str, str], str]]


def _xml_dumps(file: ForeignFile) -> Iterator[tuple[str, list[Entries]]]:
    for part in re.findall(r"<nvidia_smi_log>.*?</nvidia_smi_log>", file.text, flags=re.DOTALL):
        try:
            root = ElementTree.fromstring(part)
        except ElementTree.ParseError as error:
            raise SpecError("PATH", str(file.path), f"XML of nvidia-smi ({error})") from None
        gpus = []
        for gpu in root.iter("gpu"):
            entries: Entries = [(("", "id"), gpu.get("id", ""))]
            for section in gpu:
                if len(section) == 0:
                    entries.append((("", _spell(section.tag)), section.text or ""))
                for entry in section:
                    name = _spell(entry.tag).replace("clocks event reason ", "").replace("clocks throttle reason ", "")
                    entries.append(
                        ((_section(_spell(section.tag)), name.removeprefix("gpu idle") or "idle"), entry.text or "")
                    )
            gpus.append(entries)
        yield root.findtext("timestamp") or "", gpus


def _spell(tag: str) -> str:
    return tag.replace("_", " ").lower()


def _section(name: str) -> str:
    return SECTIONS.get(name, name)


def _text_dumps(file: ForeignFile) -> Iterator[tuple[str, list[Entries]]]:
    stamp, section = "", ""
    gpus: list[Entries] = []
    for _, line in whole_lines(file.text):
        depth = len(line) - len(line.lstrip())
        name, divider, value = line.strip().partition(" : ")
        name = name.strip().lower()
        if "nvsmi log" in line.lower() and gpus:
            yield stamp, gpus
            stamp, gpus = "", []
        if name == "timestamp" and divider:
            if gpus:
                yield stamp, gpus
                gpus = []
            stamp = value.strip()
        elif depth == 0 and line.startswith("GPU ") and len(line.split()) > 1:
            gpus.append([(("", "id"), line.split()[1])])
            section = ""
        elif gpus and not divider and depth == 4:
            section = _section(name)
        elif gpus and divider:
            gpus[-1].append((("" if depth <= 4 else section, name), value.strip()))
    if gpus:
        yield stamp, gpus


def _read_tables(file: ForeignFile, hints: Hints, foreign: Foreign) -> None:
    """Read the boxes that nvidia-smi draws, one after another."""
    time_s, boxes, key = 0.0, 0, GpuKey("", "0")
    timed = False
    for _, line in whole_lines(file.text):
        if TABLE_TIME.match(line):
            moment = read_moment(line)
            if moment is not None:
                time_s, timed = moment.seconds, True
                foreign.clocks.add(moment.clock)
        elif "| NVIDIA-SMI" in line and not timed:
            time_s = boxes * (hints.period_s or 1.0)
            boxes += 1
            foreign.clocks.add("counted")
        elif found := TABLE_NAME.match(line):
            key = GpuKey("", found[1])
            foreign.know(key, number=int(found[1]), name=found[2], pci=found[3])
        elif row := TABLE_ROW.match(line):
            for text, meaning in zip(row.groups(), TABLE, strict=True):
                foreign.add(key, meaning, time_s, read_number(text)[0])
