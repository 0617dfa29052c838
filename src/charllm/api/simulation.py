"""Simulate one run from keywords."""

import math
from pathlib import Path
from typing import Any, NamedTuple, Unpack

from charllm.analysis.comment import ask_what_if, comment
from charllm.api.keywords import RunKeywords, Spec, as_file, build_request
from charllm.api.signature import public_with
from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.result.result import RunResult
from charllm.result.store import check_place, drafted, write_text
from charllm.result.uncertainty import with_intervals
from charllm.simulate.predict import Simulation, predict
from charllm.simulate.settings import SimulateKeywords, SimulateSettings
from charllm.simulate.work import LONGEST_S
from charllm.spec.flags import take
from charllm.spec.request import merge
from charllm.spec.run import RunSpec

USUAL = SimulateSettings()


class Simulated(NamedTuple):
    """A simulated run, with all that a report of it needs."""

    spec: RunSpec
    found: Simulation
    messages: list[str]
    """What to say about the files that were asked for."""


class Keywords(SimulateKeywords, RunKeywords, total=False):
    """All words of a simulation."""


@public_with(SimulateSettings)
def simulate(spec: Spec | None = None, **words: Unpack[Keywords]) -> RunResult:
    """Predict memory, step time, power and temperature of one run; needs no GPU.

    The keywords are the flags of ``charllm simulate``: `spec` is a TOML file, a table, or a stored run to take the
    spec from; a dotted keyword sets any field. By default the result describes one step at thermal steady state; with
    `steps` or `seconds` the run begins with a cold start. With `uncertainty`, ``provenance["uncertainty"]`` holds a
    90 % interval of each metric whose error is known, and its basis. `out` stores the run, `perfetto` writes the step
    as a trace, `timeline` writes the step of one `rank` for `charllm.emulate`, `report` writes everything as one HTML
    file, `chakra` (a folder) writes the step of every rank as Chakra execution traces.

    A wrong request raises `charllm.SpecError`. If a run does not fit in memory, ``metrics.fits`` is False, its times
    are None and `warnings` has the reason; with ``ignore_memory=True`` it is simulated nevertheless. A simulation
    that would take minutes is refused unless ``allow_long=True``.

    >>> import charllm
    >>> result = charllm.simulate(model="llama3-8b", cluster="h200x8", tp=2, gbs=32, **{"training.optimizer": "none"})
    >>> result.metrics.fits, result.metrics["step_time_s"] == result.metrics.step_time_s
    (True, True)
    >>> len(result.gpus), result.spec["parallelism"]["dp"]
    (8, 4)
    >>> result = charllm.simulate(model="llama3-8b", cluster="h200x8", tp=2, gbs=32, uncertainty=True)
    >>> interval = result.provenance["uncertainty"]["step_time_s"]
    >>> interval["low"] < result.metrics.step_time_s < interval["high"], interval["level"]
    (True, 0.9)
    >>> charllm.simulate(model="llama3-8b", cluster="h200x8", tp=3)
    Traceback (most recent call last):
    charllm.errors.SpecError: parallelism: got 'tp 3 x cp 1 x pp 1 = 3'; expected a divisor of the 8 GPUs of h200x8
    """
    run: dict[str, Any] = dict(words)
    settings = take(SimulateSettings, run)
    return run_simulation(build_request(spec, run), settings).found.result


def run_simulation(request: dict[str, Any], settings: SimulateSettings = USUAL) -> Simulated:
    """Simulate a request and write the files that were asked for."""
    length = {"steps": settings.steps, "seconds_s": settings.seconds_s}
    length = {name: value for name, value in length.items() if value is not None}
    spec = resolve_run(merge(request, {"conditions": length}) if length else request)
    if settings.out is not None:
        check_place(settings.out)
    page = None if settings.report is None else as_file(settings.report, "--report")
    found = predict(
        spec,
        ignore_memory=settings.ignore_memory,
        longest_s=math.inf if settings.allow_long else LONGEST_S,
        whole=bool(settings.timeline or settings.chakra),
    )
    if settings.uncertainty:
        found = found._replace(result=with_intervals(found.result))
    found = found._replace(result=comment(found) if page is None else ask_what_if(found))
    files = {"--perfetto": settings.perfetto, "--timeline": settings.timeline}
    messages = _write_files(found, {flag: file for flag, file in files.items() if file is not None}, settings.rank)
    if settings.chakra is not None:
        messages += write_chakra(found, settings.chakra)
    if settings.out is not None:
        found.result.save(settings.out)
    if page is not None:
        # A page draws on studies and measurement, too, which take longer to load than most runs to simulate.
        from charllm.api.report import page_of, write_page

        write_page(page_of(found.result), page, "--report")
    return Simulated(spec, found, messages)


def _write_files(found: Simulation, files: dict[str, Path], rank: int) -> list[str]:
    """Write the step as a trace or as a timeline; returns what to say about it."""
    simulated = found.simulated
    if simulated is None:
        return [
            f"{flag}: not written: a run that does not fit in memory has no step time (see --ignore-memory)"
            for flag in files
        ]
    messages = []
    for flag, path in files.items():
        if flag == "--perfetto":
            from charllm.simulate.perfetto import Signals, trace_step
            from charllm.simulate.signals import stage_series

            signals = Signals(stage_series(simulated.machine, simulated.simulated_step), simulated.simulated_step.box_s)
            trace = trace_step(simulated.step, simulated.timed, signals=signals)
            text = trace.to_text()
            messages += [f"{flag}: {trace.left_out}"] if trace.left_out else []
        else:
            from charllm.simulate.rank_timeline import rank_timeline
            from charllm.timeline.rank_timeline import to_text

            text = to_text(rank_timeline(found, rank))
        _write(flag, path, text)
    return messages


def _write(flag: str, path: Path, text: str) -> None:
    try:
        write_text(text, path)
    except OSError as error:
        raise SpecError(flag, str(path), f"a file that can be written ({error.strerror or error})") from None


FLAG = "--chakra"
MOST_NODES = 2_000_000
"""Of all ranks together: some hundred bytes each."""


def write_chakra(found: Simulation, folder: Path) -> list[str]:
    """Write `rank-N.et` (protobuf) and `rank-N.json` of every rank; returns what to say where nothing is written."""
    from charllm.trace.chakra_nodes import rank_nodes
    from charllm.trace.chakra_writer import to_json, to_protobuf

    simulated = found.simulated
    if simulated is None:
        return [f"{FLAG}: not written: a run that does not fit in memory has no step time (see --ignore-memory)"]
    step, timed = simulated.step, simulated.timed
    world = step.run.parallelism.world
    nodes = list(rank_nodes(step, timed, 0))
    if len(nodes) * world > MOST_NODES:
        raise SpecError(FLAG, f"{world} ranks of about {len(nodes):,} ops", f"at most {MOST_NODES:,} ops in all")
    with drafted(folder, FLAG) as draft:
        for rank in range(world):
            nodes = list(rank_nodes(step, timed, rank))
            (draft / f"rank-{rank}.json").write_text(to_json(nodes), encoding="utf-8")
            (draft / f"rank-{rank}.et").write_bytes(to_protobuf(nodes))
    return []
