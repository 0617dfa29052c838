"""Files of known tools that hold no readings of GPUs over time: named, with what they hold and what would do."""

import re
from typing import NamedTuple

from charllm.errors import SpecError, Words
from charllm.measure.convert.source import ForeignFile


class Known(NamedTuple):
    """A format that is known and cannot become a recording."""

    tool: str
    mark: re.Pattern[str]
    """Found in the beginning of its files."""
    holds: str


CPU = "the power of processors and their memory, not that of GPUs"
TOTALS = "the totals of whole runs, no readings over time"
SCREEN = "no times; record with amd-smi monitor --csv -w 1"
KERNELS = "kernels, no power; charllm trace reads nsys export --type sqlite"
NODE = "the power of a whole node, not that of its GPUs"
KNOWN = (
    Known("CodeCarbon (emissions.csv)", re.compile(r"(?i)^.{0,400}\bemissions_rate\b.{0,400}\bgpu_energy\b"), TOTALS),
    Known("sacct", re.compile(r"(?i)^\s*\|?JobID(?:Raw)?\s*[| ,].{0,400}(?:ConsumedEnergy|Elapsed)"), TOTALS),
    Known("Zeus", re.compile(r'"gpu_energy"\s*:\s*\{'), "the energy of measured windows, no readings over time"),
    Known("Zeus", re.compile(r"(?i)^\s*start_time,window_name,elapsed_time"), "the energy of measured windows"),
    Known("ipmitool (dcmi power reading)", re.compile(r"Instantaneous power reading:"), NODE),
    Known("ipmitool (sensors)", re.compile(r"(?im)^[^\n|]{0,80}\|\s*[\d.]+\s*\|\s*(?:Watts|degrees C)"), NODE),
    Known("Intel Power Gadget", re.compile(r"Processor Power_\d+ ?\(Watt\)"), CPU),
    Known("turbostat", re.compile(r"(?m)^.{0,300}\bPkgWatt\b"), CPU),
    Known("perf stat", re.compile(r"\bJoules,?\s+power/energy-"), CPU),
    Known(
        "powermetrics of macOS", re.compile(r"(?s)^Machine model:.{0,200}\bOS version:"), "the power of an Apple chip"
    ),
    Known("CodeCarbon", re.compile(r"(?i)^.{0,200}\bemissions\b.{0,200}\benergy_consumed\b"), TOTALS),
    Known("rocm-smi (its table for the screen)", re.compile(r"={5,} (?:ROCm System|Concise Info)"), SCREEN),
    Known("nsys stats (cuda_gpu_trace)", re.compile(r"^\"?Start \(ns\).{0,80}CorrId"), KERNELS),
    Known("Redfish", re.compile(r'"@odata\.id"|"PowerConsumedWatts"'), NODE),
)
WANTED = "readings of GPUs over time: charllm measure, or a log of nvidia-smi, DCGM, amd-smi, Prometheus or W&B"


def refuse_known(file: ForeignFile) -> None:
    """Refuse a file of a tool that has no readings for a recording."""
    for known in KNOWN:
        if known.mark.search(file.head):
            raise SpecError(file.path.name, Words(f"a file of {known.tool}: {known.holds}"), WANTED)
