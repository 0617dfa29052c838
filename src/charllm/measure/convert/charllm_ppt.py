"""The telemetry of the CharLLM-PPT artifact: one headerless file ``{metric}_{rank}.csv`` of ``unix_time,value`` each.

What is wrong with those files is put right here: an error is written as -1; PCIe counters are 32 bits wide and wrap;
NVLink counters are of link 0 alone, and stay out.
"""

import re

from charllm.errors import SpecError
from charllm.measure.convert.foreign import Foreign, GpuKey
from charllm.measure.convert.names import meanings
from charllm.measure.convert.source import ForeignFile, Hints, whole_lines
from charllm.measure.convert.values import read_moment

SYSTEM = re.compile(r"^system_[a-z0-9_]+\.csv$")
"""Readings of the host, of each CPU, device or zone: not of GPUs."""
FILE = re.compile(r"^(?P<metric>[a-z_]+?)_(?P<rank>\d{1,6})\.csv$")
NVLINK = ("nvlink_tx_throughput", "nvlink_rx_throughput")
GPUS_PER_NODE = 8
FAILED, WRAP = -1.0, 2.0**32


def is_ours(file: ForeignFile) -> bool:
    """Tell whether a file has one of the artifact's names and layout."""
    if SYSTEM.match(file.path.name):
        return True
    match = FILE.match(file.path.name)
    return (
        match is not None
        and match["metric"] in {*meanings("charllm-ppt"), *NVLINK}
        and _is_pair(file.head.partition("\n")[0])
    )


def _is_pair(line: str) -> bool:
    cells = line.split(",")
    return len(cells) == 2 and read_moment(cells[0]) is not None


def read(file: ForeignFile, _hints: Hints) -> Foreign:
    """Read one metric of one rank."""
    foreign = Foreign()
    match = FILE.match(file.path.name)
    if match is None or match["metric"] not in meanings("charllm-ppt"):
        foreign.left_out[file.path.name] += 1
        if SYSTEM.match(file.path.name):
            foreign.note("readings of the host (system_*) of this layout are left out")
        elif match is not None and match["metric"] in NVLINK:
            foreign.note("NVLink counters of this layout are of link 0 alone: left out")
        return foreign
    rank, meaning = int(match["rank"]), meanings("charllm-ppt")[match["metric"]]
    key = GpuKey(f"node{rank // GPUS_PER_NODE}", str(rank % GPUS_PER_NODE))
    foreign.know(key, number=rank % GPUS_PER_NODE)
    foreign.clocks.add("utc")
    wrapped, last = 0.0, 0.0
    for number, line in whole_lines(file.text):
        cells = line.split(",")
        moment = read_moment(cells[0]) if len(cells) == 2 else None
        try:
            value = float(cells[1])
        except (ValueError, IndexError):
            value = float("nan")
        if moment is None or value != value:
            if number == 1:
                raise SpecError("PATH", f"{file.path.name}: {line}", "lines of unix_time,value")
            # The last line of a killed job.
            continue
        if meaning.how == "wrapped" and value != FAILED:
            wrapped += WRAP if value < last else 0.0
            last = value
            value += wrapped
        foreign.add(
            key, meaning._replace(how="value"), moment.seconds, "error" if cells[1].strip().startswith("-1") else value
        )
    if meaning.how == "wrapped":
        foreign.note(
            "PCIe counters are 32 bits wide: added up over their wraps, which assumes at most one between readings"
        )
    return foreign
