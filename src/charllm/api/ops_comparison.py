"""Two traces, or a trace and a simulation, op by op."""

import json
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from charllm.analysis.attribution.run import attribute_run
from charllm.api.keywords import File, Spec, as_path, build_request
from charllm.api.signature import public
from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.layout.grid import Grid
from charllm.measure.parts import is_recording
from charllm.measure.record import SPEC_FILE
from charllm.profile import TRACE_FILES
from charllm.report.op_compare import render_ops
from charllm.report.tables import to_csv
from charllm.result.store import RESULT_FILE, write_text
from charllm.simulate.long_step import Execution
from charllm.simulate.predict import predict
from charllm.spec.request import parse_json, read_text
from charllm.spec.run import RunSpec
from charllm.timeline.passes import host_pace, launch_seconds
from charllm.trace.op_compare import ClassRow, Side, compare_classes, simulated_side, traced_side
from charllm.trace.op_table import COLUMNS, tabulate_ops
from charllm.trace.open import HEAD_BYTES
from charllm.trace.run import SUFFIXES, TracedRun, read_run
from charllm.trace.simulated import simulated_kernels
from charllm.workload.update import update_launches

HOST_BOUND = 0.8
"""Share of a step that the host needs to launch it, from which on it is taken to bind (assumed)."""


@dataclass(frozen=True, slots=True, repr=False)
class OpsComparison:
    """Classes and kernels of a mean step on two sides."""

    first: Side
    second: Side
    classes: list[ClassRow]
    notes: list[str]

    def kernels(self) -> list[dict[str, Any]]:
        """Return a row for each side and kind of kernel."""
        sides = (self.first, self.second)
        rows = [{"side": side.name, "class": one.work, "name": one.name, "launches": one.launches,
                 "seconds": one.seconds} for side in sides for one in side.kernels]  # fmt: skip
        return sorted(rows, key=lambda row: (row["class"], row["side"], -row["seconds"]))

    def as_table(self) -> dict[str, Any]:
        """Return everything as a plain table."""
        sides = [
            {"name": side.name, "step_time_s": side.step_time_s, "host_s": side.host_s,
             "launches": sum(one.launches for one in side.kernels)}
            for side in (self.first, self.second)
        ]  # fmt: skip
        classes = [
            {"class": row.work, "launches": list(row.launches), "seconds": list(row.seconds),
             "difference_fraction": row.difference_fraction}
            for row in self.classes
        ]  # fmt: skip
        return {"sides": sides, "classes": classes, "kernels": self.kernels(), "notes": self.notes}

    def to_json(self) -> str:
        """Return everything as JSON, as ``charllm compare --ops --json`` prints it."""
        return json.dumps(self.as_table(), indent=2, allow_nan=False)

    def __repr__(self) -> str:
        return render_ops(self.first, self.second, self.classes, self.notes)


@public
def compare_ops(
    first: File, second: Spec | None = None, *, rank: int | None = None, table: File | None = None
) -> OpsComparison:
    """Compare the kernels of a traced step with those of another trace or of a simulation.

    `first` is a trace, or a folder with traces. `second` is another trace, a spec (a file or a table) or a simulated
    run (default: the spec that `charllm train` stores with a measured run). `rank` is the rank to compare (default:
    the lowest that was traced). `table` writes the traced ops of the forward pass, with their shapes, as a
    table that ``charllm calibrate`` reads.

    >>> import charllm
    >>> found = charllm.compare_ops("examples/h200-moe")
    >>> [row.work for row in found.classes][:3], abs(found.classes[0].difference_fraction) < 0.1
    (['gemm', 'memory-bound', 'optimizer'], True)
    """
    place = as_path(first, "RUN")
    run = read_run([place])
    traced = _side(run, rank, str(place))
    notes: list[str] = []
    if isinstance(second, str | PathLike) and _has_traces(as_path(second, "RUN")):
        other = _side(read_run([as_path(second, "RUN")]), rank, str(second))
        if table is not None:
            raise SpecError("--table", str(table), "a simulation to compare with, which knows the shapes of ops")
    else:
        execution = _simulate(_own_spec(place) if second is None else second)
        number = traced_rank(run, rank)
        stage = int(Grid(execution.step.run.parallelism).stage(number))
        launch_s = launch_seconds(execution.step.run)
        kernels = simulated_kernels(execution.step, execution.timed, stage)
        pace, update_s = host_pace(execution.step.run), update_launches(execution.step, stage) * launch_s
        kernels = [one._replace(launch_s=pace * one.launch_s) for one in kernels]
        other = simulated_side(kernels, execution.timed.step_time_s, "simulated", update_s)
        notes += _host_notes(traced, other, execution.step.run)
        if table is not None:
            notes += _write_table(as_path(table, "--table"), place, run, number, execution)
    return OpsComparison(traced, other, compare_classes(traced, other), notes)


def _host_notes(traced: Side, simulated: Side, run: RunSpec) -> list[str]:
    """Say how fast this host launches beside what was assumed of it."""
    speed = host_speed(traced, simulated, run)
    if speed is None:
        return []
    assumed = run.cluster.node.host_speed_fraction
    binds = " and binds the step" if traced.host_s > HOST_BOUND * traced.step_time_s else ""  # type: ignore[operator]
    return [
        f"this host launches at {speed:.2f} of a tuned host's speed ({assumed:g} assumed){binds}: "
        f"--set cluster.node.host_speed_fraction={speed:.2f}, or `charllm calibrate RUN -o FILE.toml` writes it "
        "(the profiler's own cost is in it)"
    ]


def host_speed(traced: Side, simulated: Side, run: RunSpec) -> float | None:
    """Return the speed of a traced host over a tuned one: what simulated launches would take it over what they took."""
    if not traced.host_s or not simulated.host_s:
        return None
    return run.cluster.node.host_speed_fraction * simulated.host_s / traced.host_s


def measure_host(run: str) -> dict[str, Any]:
    """Return what launching took the host of a traced run, beside what is assumed of a tuned one."""
    compared, spec = compare_ops(run), own_run(Path(run))
    traced, simulated = compared.first, compared.second
    speed = host_speed(traced, simulated, spec)
    if speed is None:
        raise SpecError("RUN", run, "a trace with CPU activities, which shows launches of kernels")
    launches = [sum(one.launches for one in side.kernels) for side in (traced, simulated)]
    assert traced.host_s is not None
    assert simulated.host_s is not None
    return {
        "run": run,
        "host_speed_fraction": speed,
        "launch_s": traced.host_s / launches[0],
        "assumed_launch_s": simulated.host_s / launches[1],
        "launches": launches[0],
        "assumed_launches": launches[1],
    }


def traced_rank(run: TracedRun, rank: int | None) -> int:
    """Return the rank that is compared."""
    known = [one.rank for one in run.ranks if one.windows]
    if not known or (rank is not None and rank not in known):
        raise SpecError("--rank", rank, f"a rank that was traced: {', '.join(map(str, known)) or 'none could be read'}")
    return known[0] if rank is None else rank


def _side(run: TracedRun, rank: int | None, name: str) -> Side:
    number = traced_rank(run, rank)
    return traced_side(next(one for one in run.ranks if one.rank == number), run.classes, name)


def _has_traces(path: Path) -> bool:
    """Tell a trace, or a folder with traces, from a spec or a stored run."""
    if path.is_dir():
        return any(path.rglob(TRACE_FILES)) or not (path / RESULT_FILE).is_file()
    if not path.is_file():
        return False
    if path.suffix != ".json":
        return path.name.endswith(SUFFIXES)
    with path.open("rb") as file:
        return b'"traceEvents"' in file.read(HEAD_BYTES)


def own_run(place: Path) -> RunSpec:
    """Return the run that a measured folder says it was."""
    return resolve_run(build_request(_own_spec(place), {}))


def _own_spec(place: Path) -> Any:
    path = place / SPEC_FILE
    if not path.is_file():
        raise SpecError(
            "RUN", str(place), f"a folder with {SPEC_FILE}, or a second RUN: a trace, a spec or a stored run"
        )
    return parse_json(read_text(path, "RUN"), str(path), "RUN")


def _simulate(spec: Any) -> Execution:
    found = predict(resolve_run(build_request(spec, {})), ignore_memory=True, whole=True).simulated
    assert found is not None
    return found


def _write_table(path: Path, place: Path, run: TracedRun, rank: int, execution: Execution) -> list[str]:
    traced = next(one for one in run.ranks if one.rank == rank)
    clocks = {}
    if is_recording(place):
        (found,) = attribute_run(place, [traced])
        clocks = {name: share.rate for name, share in found.clock.shares.items()}
    rows, notes = tabulate_ops(traced, execution.step, execution.timed, clocks)
    if not rows:
        raise SpecError("--table", str(path), f"ops that both sides have in the same number ({'; '.join(notes)})")
    write_text(to_csv([{name: row[name] for name in COLUMNS} for row in rows]) + "\n", path)
    return notes
