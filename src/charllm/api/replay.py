"""Replay a traced run with something changed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from charllm.analysis.attribution.bins import cycle_bins
from charllm.analysis.attribution.run import find_places
from charllm.analysis.attribution.timeline import place_trace
from charllm.api.keywords import as_path
from charllm.api.signature import public
from charllm.errors import SpecError
from charllm.measure.parts import is_recording
from charllm.report.replay import render_replay
from charllm.trace.replay import Edits, Replay
from charllm.trace.replay import replay as replay_ranks
from charllm.trace.run import TracedRank, read_run
from charllm.trace.settings import GPUS_PER_NODE

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]


@dataclass(frozen=True, slots=True, repr=False)
class Replayed:
    """Step times of a trace, of its unchanged replay and of the changed one."""

    edits: Edits
    found: Replay

    def as_table(self) -> dict[str, Any]:
        """Return everything as a plain table, as ``charllm replay --json`` prints it."""
        times = self.found._asdict()
        fractions = {"error_fraction": self.found.error_fraction, "change_fraction": self.found.change_fraction}
        return {**times, **fractions, "edits": {**self.edits._asdict(), "hide": list(self.edits.hide)}}

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each step time."""
        found = self.found
        times = {"traced": found.traced_s, "unchanged": found.unchanged_s, "changed": found.changed_s}
        return [{"replay": name, "step_time_s": seconds} for name, seconds in times.items()]

    def __repr__(self) -> str:
        return render_replay(self.found, self.edits)


@public
def replay(
    paths: Paths,
    *,
    nic: float = 1.0,
    hide: Sequence[str] = (),
    clock_full: Mapping[int, float | None] | Sequence[int] = (),
    scale: Mapping[str, float] | None = None,
    launch: float = 1.0,
    gpus_per_node: int = GPUS_PER_NODE,
) -> Replayed:
    """Predict the step time of traces with one thing changed.

    Kernels, launches, streams, waits and collectives keep their order and dependencies. `nic` is the speed-up of
    collectives between nodes. `hide` removes the time of collectives, by axis ("dp"), kind ("all_reduce") or class.
    `clock_full` runs the GPUs of these ranks at full clock; the fraction of it at which they ran comes from the
    readings of a measured run, or is given: ``{3: 0.8}``. `scale` multiplies the time of a kernel class (``{"gemm":
    0.8}``), `launch` the host time of launches.

    >>> import charllm
    >>> found = charllm.replay("examples/h200-moe", scale={"gemm": 0.8})
    >>> abs(found.found.error_fraction) < 0.01, -0.13 < found.found.change_fraction < -0.09
    (True, True)
    """
    for flag, value in (("--nic", nic), ("--launch", launch), *(("--scale", one) for one in (scale or {}).values())):
        if not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise SpecError(flag, value, "a factor above 0")
    if gpus_per_node < 1:
        raise SpecError("--gpus-per-node", gpus_per_node, "at least 1")
    listed = [paths] if isinstance(paths, str | PathLike) else list(paths)
    places = [as_path(path, "TRACE") for path in listed]
    ranks = read_run(places).ranks
    wanted = dict(clock_full) if isinstance(clock_full, Mapping) else dict.fromkeys(clock_full)
    clocks = {rank: _clock_fraction(rank, given, places, ranks) for rank, given in wanted.items()}
    edits = Edits(nic, tuple(hide), clocks, dict(scale or {}), launch, gpus_per_node)
    return Replayed(edits, replay_ranks(ranks, edits))


def _clock_fraction(rank: int, given: float | None, places: Sequence[Path], ranks: Sequence[TracedRank]) -> float:
    """Return the fraction of its full clock that a rank's GPU ran at: as given, or as it was read in traced steps."""
    if given is not None:
        if not 0 < given <= 1:
            raise SpecError("--clock-full", f"{rank}={given}", "a fraction of the full clock, above 0 and at most 1")
        return given
    for folder in filter(is_recording, places):
        own = [one for one in ranks if one.rank == rank and folder in one.trace.path.parents]
        for traced, place in find_places(folder, own):
            spans = place_trace(traced.trace, traced.activity, *place).spans
            bins, full_hz = cycle_bins(place.recording, place.gpu, sorted(spans))
            if len(bins.amount):
                return float(bins.amount.sum() / (bins.end_s - bins.start_s).sum() / full_hz)
    raise SpecError(
        "--clock-full", rank, "RANK=FRACTION, or the folder of a measured run that has read this rank's clock"
    )
