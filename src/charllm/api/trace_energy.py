"""What the readings beside a trace add to it: joules and lost clock by class, and signals for its view."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from charllm.analysis.attribution.run import attribute_run, find_places
from charllm.analysis.attribution.table import as_table
from charllm.analysis.attribution.timeline import place_trace
from charllm.errors import SpecError
from charllm.measure.parts import is_recording
from charllm.report.perfetto import Signal
from charllm.trace.run import TracedRank
from charllm.units import MEGA

SIGNALS = {
    "power W": ("power_instant_w", 1.0),
    "temperature C": ("temperature_c", 1.0),
    "clock MHz": ("clock_hz", MEGA),
}
"""Name of a counter in a view: the quantity, and its unit in SI."""


def with_energy(summary: dict[str, Any], folders: Sequence[Path], ranks: Sequence[TracedRank]) -> dict[str, Any]:
    """Add where the joules of measured runs went to the summary of their traces; what cannot be told is a note."""
    tables, notes = [], []
    for folder in filter(is_recording, folders):
        try:
            tables += [as_table(found) for found in attribute_run(folder, _own(folder, ranks))]
        except SpecError as error:
            notes.append(f"energy by class: {error}")
    known = [text for text in summary["warnings"] if not (tables and text.startswith("joules:"))]
    return {**summary, "energy": tables, "warnings": [*known, *notes]}


def read_signals(folders: Sequence[Path], ranks: Sequence[TracedRank]) -> dict[int, list[Signal]]:
    """Return the readings of each rank's GPU on the clock of its trace."""
    found: dict[int, list[Signal]] = {}
    for folder in filter(is_recording, folders):
        for rank, place in find_places(folder, _own(folder, ranks)):
            recording, gpu = place.recording, place.gpu
            clock = place_trace(rank.trace, rank.activity, *place).clock
            signals = []
            for name, (quantity, unit) in SIGNALS.items():
                times_s, values = recording.known(gpu, quantity)
                # Offsets change by microseconds over a trace: the middle one serves for all of it.
                own_s = times_s - float(np.mean(clock.offsets_s))
                near = (own_s >= 0) & (own_s <= float(rank.trace.events.end_s.max()))
                signals.append(Signal(name, own_s[near], values[near] / unit))
            found[rank.rank] = signals
    return found


def _own(folder: Path, ranks: Sequence[TracedRank]) -> list[TracedRank]:
    return [rank for rank in ranks if folder in rank.trace.path.parents]
