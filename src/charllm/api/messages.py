"""What each rank sends in one step, alone or beside execution traces of it."""

import json
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Unpack

from charllm.api.keywords import RunKeywords, Spec, as_path, build_request
from charllm.api.signature import public
from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.spec.run import RunSpec
from charllm.trace.compare import MessageRow, compare_messages, list_messages, read_traces
from charllm.tracking import Track, untracked
from charllm.workload.step import build_step

SPEC_FILE = "spec.json"
"""The spec that `charllm train --execution-trace` leaves beside its traces."""


class Listed(NamedTuple):
    """The messages of a run."""

    spec: RunSpec
    rows: list[MessageRow]


@public
def messages(
    spec: Spec | None = None,
    *,
    rank: int | None = None,
    execution_trace: str | PathLike[str] | None = None,
    **words: Unpack[RunKeywords],
) -> list[dict[str, Any]]:
    """List every collective and send of each rank in one step: group, kind, bytes and calls.

    `simulate` uses the same messages. `rank` selects one rank. `execution_trace` is a folder of PyTorch execution
    traces of the same run, one file per rank, as ``charllm train --execution-trace`` writes them: each row then
    has ``calls_traced`` and ``equal``. Without a spec and keywords, the run is that of the spec in the folder.

    >>> import charllm
    >>> rows = charllm.messages(model="llama3-8b", cluster="h200x8", tp=8, gbs=1, rank=0)
    >>> rows[0]["group"], rows[0]["kind"], rows[0]["message_bytes"], rows[0]["ranks"]
    ('tp', 'all_gather', 67108864, [0, 1, 2, 3, 4, 5, 6, 7])
    """
    return [as_table(row) for row in run_messages(build_request(spec, words), rank, execution_trace).rows]


def run_messages(
    request: dict[str, Any],
    rank: int | None,
    trace: str | PathLike[str] | None,
    track: Track = untracked,
) -> Listed:
    """List the messages of a request, or compare them with those of a folder of traces."""
    folder = as_path(trace, "--execution-trace") if trace is not None else None
    run = resolve_run(request or (_traced_request(folder) if folder is not None else {}))
    step, world = build_step(run), run.parallelism.world
    if folder is None:
        return Listed(run, list_messages(step, range(world) if rank is None else [rank]))
    traces = read_traces(folder, track)
    strange = [number for number in traces if number >= world]
    if strange:
        raise SpecError("--execution-trace", f"rank {strange[0]} in {folder}", f"traces of a run of {world} ranks")
    if rank is not None and rank not in traces:
        raise SpecError("--rank", rank, f"a rank that is traced in {folder}")
    return Listed(run, compare_messages(step, traces if rank is None else {rank: traces[rank]}))


def _traced_request(folder: Path) -> dict[str, Any]:
    """Return the spec that lies beside the traces."""
    path = folder / SPEC_FILE
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SpecError(
            "--execution-trace", str(path), f"the spec of the run in JSON, or a run described by flags ({error})"
        ) from None
    if not isinstance(table, dict):
        raise SpecError("--execution-trace", str(path), "the spec of the run as a table")
    return table


def as_table(row: MessageRow) -> dict[str, Any]:
    """Return a row as a table; without a trace it has nothing to compare."""
    table = {**row._asdict(), "ranks": list(row.ranks)}
    if row.calls_traced is None:
        del table["calls_traced"]
        return table
    return {**table, "equal": row.equal}
