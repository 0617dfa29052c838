"""What the simulator says each rank sends, beside what an execution trace shows."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from charllm.errors import SpecError
from charllm.trace.execution import ExecutionTrace, rank_of, read_execution_trace
from charllm.tracking import Track, untracked
from charllm.workload.messages import Message, Messages, rank_messages
from charllm.workload.step import Step


class MessageRow(NamedTuple):
    """One message of one rank in one step: calls simulated and calls traced."""

    rank: int
    group: str
    ranks: tuple[int, ...]
    kind: str
    message_bytes: int
    calls: int
    calls_traced: int | None = None
    """None where there is no trace to compare with."""

    @property
    def equal(self) -> bool:
        """Whether the trace shows as many calls, or there is none."""
        return self.calls_traced in (None, self.calls)


def list_messages(step: Step, ranks: Sequence[int]) -> list[MessageRow]:
    """List what ranks send in one step, by rank and group."""
    return [
        MessageRow(rank, *message, calls)
        for rank in ranks
        for message, calls in sorted(rank_messages(step, rank).items())
    ]


def compare_messages(step: Step, traces: Mapping[int, ExecutionTrace]) -> list[MessageRow]:
    """Compare every traced step of each rank with what the simulator says; shows the first step that differs."""
    rows = []
    for rank, trace in sorted(traces.items()):
        said = rank_messages(step, rank)
        seen = _first_different(said, trace)
        messages: list[Message] = sorted({*said, *seen})
        rows += [MessageRow(rank, *message, said[message], seen[message]) for message in messages]
    return rows


def _first_different(said: Messages, trace: ExecutionTrace) -> Messages:
    steps = list(trace.steps.values())
    return next((seen for seen in steps if seen != said), steps[0])


def read_traces(folder: Path, track: Track = untracked) -> dict[int, ExecutionTrace]:
    """Read the execution traces of a folder, one file per rank; `track` may show how far it is."""
    files = sorted(path for suffix in ("json", "json.gz") for path in folder.glob(f"*[0-9].{suffix}"))
    if not files:
        expected = "a folder with execution traces rank-0.json ..., as `charllm train --execution-trace` writes them"
        raise SpecError("--execution-trace", str(folder), expected)
    repeated = [rank for rank, count in Counter(map(rank_of, files)).items() if count > 1]
    if repeated:
        raise SpecError("--execution-trace", f"two files of rank {repeated[0]} in {folder}", "one file per rank")
    return {rank_of(path): read_execution_trace(path) for path in track(iter(files), len(files), "traces")}


def total_by_group(rows: Sequence[MessageRow]) -> dict[tuple[str, str], list[MessageRow]]:
    """Collect the rows of all ranks by group and kind of message."""
    found: dict[tuple[str, str], list[MessageRow]] = {}
    for row in rows:
        found.setdefault((row.group, row.kind), []).append(row)
    return dict(sorted(found.items()))
