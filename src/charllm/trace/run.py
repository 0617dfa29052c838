"""A traced run: every rank's trace, what kept its device busy, and its steps."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from charllm.errors import SpecError
from charllm.profile import TRACE_FILES
from charllm.spec.parallelism import Parallelism
from charllm.trace.activity import Activity
from charllm.trace.axes import Axis, name_axes
from charllm.trace.classes import Classes, read_classes
from charllm.trace.classify import classify
from charllm.trace.events import Group, RankTrace
from charllm.trace.execution_arguments import join_arguments
from charllm.trace.open import EXECUTION_TRACE, read_traces
from charllm.trace.steps import Window, find_steps
from charllm.tracking import Track, untracked

SUFFIXES = (
    ".json", ".json.gz", ".et", ".xplane.pb", ".xplane.pb.gz", ".pftrace", ".perfetto-trace", ".sqlite",
    "_kernel_trace.csv",
)  # fmt: skip
SHOWN_RANKS = 8


class TracedRank(NamedTuple):
    """One rank of a traced run."""

    trace: RankTrace
    activity: Activity
    windows: list[Window]

    @property
    def rank(self) -> int:
        """Number of the rank."""
        return self.trace.rank


class TracedRun(NamedTuple):
    """All ranks that were traced, in order."""

    ranks: list[TracedRank]
    axes: dict[Group, Axis]
    classes: Classes
    warnings: list[str]


def read_run(
    paths: Sequence[Path],
    classes: Path | None = None,
    parallelism: Parallelism | None = None,
    track: Track = untracked,
) -> TracedRun:
    """Read the traces of a run from files and folders, a file a rank; `track` may show how far it is."""
    found, table = list(trace_files(paths)), read_classes(classes)
    traces = [one for path in track(iter(found), len(found), "traces") for one in read_traces(path)]
    return build_run(_join_execution_traces(traces), table, parallelism)


def build_run(traces: Sequence[RankTrace], classes: Classes, parallelism: Parallelism | None = None) -> TracedRun:
    """Classify the events of every rank and find its steps."""
    kept, warnings = _one_a_rank(traces)
    axes = name_axes(kept, classes, parallelism)
    ranks = []
    for trace in kept:
        activity = classify(trace, classes, axes)
        windows, odd = find_steps(trace, activity)
        warnings += [*trace.warnings, *odd]
        if not trace.has_device_events:
            warnings.append(f"{trace.path.name}: no GPU events; operators of the host are shown instead")
        ranks.append(TracedRank(trace, activity, windows))
    return TracedRun(ranks, axes, classes, [*dict.fromkeys(warnings), *_missing_ranks(kept)])


def trace_files(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the trace files of paths: files as they are, those of a folder by name."""
    for path in paths:
        if path.is_dir():
            # A measured run holds other JSON files beside its traces.
            inside = sorted(path.rglob(TRACE_FILES)) or sorted(
                file for file in path.rglob("*") if file.name.endswith(SUFFIXES) and file.is_file()
            )
            if not inside:
                raise SpecError("PATH", str(path), f"a folder with traces ({', '.join(SUFFIXES)})")
            yield from inside
        elif path.exists():
            yield path
        else:
            raise SpecError("PATH", str(path), "a trace file or a folder with traces")


def _join_execution_traces(traces: Sequence[RankTrace]) -> list[RankTrace]:
    """Give each trace the collective arguments of the execution trace of its rank, where there is one."""
    timed = [trace for trace in traces if trace.source != EXECUTION_TRACE]
    told = {trace.rank: trace.path for trace in traces if trace.source == EXECUTION_TRACE}
    joined = [join_arguments(trace, told[trace.rank]) if trace.rank in told else trace for trace in timed]
    ranks = {trace.rank for trace in timed}
    return [*joined, *(trace for trace in traces if trace.source == EXECUTION_TRACE and trace.rank not in ranks)]


def _one_a_rank(traces: Sequence[RankTrace]) -> tuple[list[RankTrace], list[str]]:
    """Keep the fullest trace of each rank."""
    readable = [trace for trace in traces if trace.events.size]
    warnings = [text for trace in traces if not trace.events.size for text in trace.warnings]
    warnings += [f"{trace.path.name}: no events" for trace in traces if not trace.events.size and not trace.warnings]
    by_rank: dict[int, RankTrace] = {}
    for trace in sorted(readable, key=lambda trace: -trace.events.size):
        by_rank.setdefault(trace.rank, trace)
    for rank, count in Counter(trace.rank for trace in readable).items():
        if count > 1:
            warnings.append(f"{count} files are of rank {rank}; the one with most events is used")
    return [by_rank[rank] for rank in sorted(by_rank)], warnings


def _missing_ranks(traces: Sequence[RankTrace]) -> list[str]:
    world = max((trace.world_size or 0 for trace in traces), default=0)
    there = {trace.rank for trace in traces}
    missing = world - sum(rank < world for rank in there)
    if not missing or not traces:
        return []
    first = islice((rank for rank in range(world) if rank not in there), SHOWN_RANKS)
    shown = ", ".join(map(str, first)) + (" ..." if missing > SHOWN_RANKS else "")
    return [f"{missing} of {world} ranks have no trace ({shown}): waits for them cannot be separated from transfers"]
