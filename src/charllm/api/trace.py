"""Read the profiler traces of a run: where its time goes, kernel by kernel and rank by rank."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from charllm import __version__
from charllm.api.keywords import RunKeywords, Spec, as_file, as_path, build_request
from charllm.api.signature import public
from charllm.catalog.resolve import resolve_run
from charllm.report.attribution import render_attribution
from charllm.report.tables import wrap_all
from charllm.report.trace import render_snapshot, render_trace
from charllm.result.metrics import fill_metrics, missing
from charllm.result.result import RunResult, to_frame
from charllm.result.store import write_text
from charllm.spec.request import Table
from charllm.spec.run import RunSpec
from charllm.trace.analyses.breakdown import OTHER, break_down, mean_breakdown
from charllm.trace.analyses.kernels import as_table, kernel_rows
from charllm.trace.memory import read_snapshots, tabulate_snapshots
from charllm.trace.run import TracedRun, read_run
from charllm.trace.summary import summarize
from charllm.tracking import Track, untracked

if TYPE_CHECKING:
    from pandas import DataFrame

    from charllm.report.perfetto import Signal

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]


@dataclass(frozen=True, slots=True, repr=False)
class Traced:
    """The analysis of a run's traces: `summary` holds every figure, as ``charllm trace --json`` prints it."""

    summary: dict[str, Any]
    run: TracedRun = field(compare=False)
    """The events of every rank in columns, with their classes and steps."""
    spec: RunSpec | None = None

    def __getitem__(self, name: str) -> Any:
        return self.summary[name]

    @property
    def warnings(self) -> list[str]:
        """What could not be read, and which figures are not known and why."""
        return list(self.summary["warnings"])

    @property
    def timeline(self) -> dict[str, list[Any]]:
        """Timeline of each rank's first step, in the columns of a simulated run's timeline."""
        # The room of timelines loads a compiler, which takes longer than reading a small trace.
        from charllm.trace.timeline import tabulate_trace

        return tabulate_trace(self.run, self.spec.parallelism if self.spec else None)

    def as_table(self) -> dict[str, Any]:
        """Return everything as a plain table."""
        return self.summary

    def to_json(self) -> str:
        """Return everything as JSON, as ``charllm trace --json`` prints it."""
        return json.dumps(self.summary, indent=2, allow_nan=False)

    def kernels(self) -> list[dict[str, Any]]:
        """Return a row for each rank and kernel: name, class, calls and seconds of a mean step."""
        return [{"rank": rank.rank, **as_table(row)} for rank in self.run.ranks for row in kernel_rows(rank)]

    def to_frame(self) -> "DataFrame":
        """Return a row for each rank and kernel as a pandas DataFrame."""
        return to_frame(self.kernels())

    def to_result(self) -> RunResult:
        """Return the run as a result: reports and comparisons read it like a simulated one."""
        return _to_result(self)

    def __repr__(self) -> str:
        told = [render_attribution(one) for one in self.summary["energy"]]
        traced = [render_trace(self.summary)] if self.run.ranks or not self.summary["memory"] else []
        memory = [render_snapshot(one) for one in self.summary["memory"]]
        notes = [] if traced else ["\n".join(wrap_all(self.summary["warnings"]))] if self.summary["warnings"] else []
        return "\n\n".join([*traced, *memory, *told, *notes])


@public
def trace(
    paths: Paths = (),
    *,
    memory: Paths = (),
    spec: Spec | None = None,
    classes: str | PathLike[str] | None = None,
    perfetto: str | PathLike[str] | None = None,
    out: str | PathLike[str] | None = None,
    **words: Unpack[RunKeywords],
) -> Traced:
    """Read traces of the PyTorch profiler, or Chakra traces: files or folders, one file per rank.

    The result has exposed communication, idle time by cause, waiting for other ranks and bandwidth by message size.
    With a `spec`, or keywords that describe the run, the axis of each process group is certain, and MFU is known.
    `classes` is a TOML file of kernel patterns, tried before the built-in ones. `perfetto` writes all ranks as one
    view; `out` stores the run for reports and comparisons. For a run recorded by ``charllm measure --profile``, the
    result also has energy and clock loss by class (``["energy"]``), and the view has power, temperature and clock.
    `memory` is a memory snapshot of PyTorch or several: ``["memory"]`` has who held memory at the peak, beside what a
    spec predicts.

    >>> import charllm, json, tempfile
    >>> work = {"nvjet_gemm": (7, 0, 60), "ncclDevKernel_AllReduce": (20, 50, 50)}  # stream, start, microseconds
    >>> events = [{"ph": "X", "cat": "kernel", "name": name, "ts": start, "dur": length, "args": {"stream": stream}}
    ...           for name, (stream, start, length) in work.items()]
    >>> with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
    ...     json.dump({"traceEvents": events}, file)
    ...     file.flush()
    ...     found = charllm.trace(file.name)
    >>> round(found["exposed_communication_fraction"], 3), round(found["overlapped_communication_fraction"], 3)
    (0.4, 0.1)
    """
    request = build_request(spec, words)
    return run_trace(paths, request, memory=memory, classes=classes, perfetto=perfetto, out=out)


def run_trace(
    paths: Paths,
    request: Table,
    *,
    memory: Paths = (),
    classes: str | PathLike[str] | None = None,
    perfetto: str | PathLike[str] | None = None,
    out: str | PathLike[str] | None = None,
    track: Track = untracked,
) -> Traced:
    """Read the traces of a run that a request describes, where it is not empty."""
    asked = resolve_run(request) if request else None
    view = as_file(perfetto, "--perfetto") if perfetto is not None else None
    places = [as_path(path, "PATH") for path in _listed(paths)]
    snapshots = [one for path in _listed(memory) for one in read_snapshots(as_path(path, "--memory"))]
    run = read_run(
        places,
        as_path(classes, "--classes") if classes is not None else None,
        asked.parallelism if asked else None,
        track,
    )
    folders = [path for path in places if path.is_dir()]
    summary = _with_energy(summarize(run, asked), folders, run)
    told = [text for one in snapshots for text in one.warnings]
    warnings = [*(summary["warnings"] if places else []), *told]
    summary = {**summary, "memory": tabulate_snapshots(snapshots, asked), "warnings": warnings}
    found = Traced(summary, run, asked)
    if view is not None:
        from charllm.report.perfetto import trace_run

        signals = _read_signals(folders, run)
        write_text(trace_run(run, signals=signals).to_text(), view)
    if out is not None:
        found.to_result().save(as_path(out, "--out"))
    return found


def _listed(paths: Paths) -> list[str | PathLike[str]]:
    return [paths] if isinstance(paths, str | PathLike) else list(paths)


def _with_energy(summary: dict[str, Any], folders: list[Path], run: TracedRun) -> dict[str, Any]:
    """Add where the joules went, for folders of measured runs; a trace alone does without what reads them."""
    if not folders:
        return {**summary, "energy": []}
    from charllm.api.trace_energy import with_energy

    return with_energy(summary, folders, run.ranks)


def _read_signals(folders: list[Path], run: TracedRun) -> "dict[int, list[Signal]]":
    if not folders:
        return {}
    from charllm.api.trace_energy import read_signals

    return read_signals(folders, run.ranks)


def _to_result(found: Traced) -> RunResult:
    from charllm.trace.timeline import breakdown_labels

    summary, run = found.summary, found.run
    whole = mean_breakdown([break_down(rank) for rank in run.ranks if rank.windows])
    optimizer_s = summary["classes"].get("optimizer", {"seconds": 0.0})["seconds"]
    known: dict[str, Any] = {
        "step_time_s": summary["step_time_s"],
        "mfu": summary["mfu"],
        "breakdown_s": breakdown_labels(whole, optimizer_s) if summary["step_time_s"] else None,
        "hidden_communication_s": dict(whole.hidden_s),
    }
    if found.spec is not None and summary["step_time_s"]:
        tokens = found.spec.training.global_batch_size * found.spec.training.seq_length
        known["tokens_per_s"] = tokens / summary["step_time_s"]
        known["tokens_per_s_per_gpu"] = known["tokens_per_s"] / found.spec.parallelism.world
    metrics = fill_metrics(known)
    warnings = [*summary["warnings"], *(f"{name}: not recorded in a trace" for name in missing(metrics))]
    if OTHER in whole.exposed_s:
        warnings.append("breakdown_s: communication whose axis is not known is shown as dp_exposed")
    return RunResult(
        origin="measured",
        spec=found.spec.as_table() if found.spec else {},
        metrics=metrics,
        provenance={"charllm": __version__, "traces": [str(rank.trace.path) for rank in run.ranks]},
        warnings=warnings,
        tables={"timeline": lambda: found.timeline},
    )
