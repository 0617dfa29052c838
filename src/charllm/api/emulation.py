"""Emulate one rank of a large job on the GPU of this machine, or predict what that GPU will read."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Unpack

from charllm.api.keywords import RunKeywords, Spec, build_request
from charllm.api.signature import public_with
from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.measure.command_settings import EmulationKeywords, EmulationSettings, EmulatorKeywords, EmulatorSettings
from charllm.measure.device import require_device, telemetry_gpus
from charllm.result.metrics import Metrics
from charllm.result.result import RunResult
from charllm.spec.fields import read
from charllm.spec.flags import take
from charllm.spec.request import Table, as_table
from charllm.spec.run import Conditions
from charllm.timeline.rank_timeline import RankTimeline, check_length, read_timeline

CAPS = ("power_cap", "clock_cap")
"""Conditions that hold for one GPU alone, in any unit."""
WARM_AFTER_S = 3600.0
"""An hour, after which a GPU no longer warms up, and the prediction stays as it is."""


class Emulation(NamedTuple):
    """An emulated rank: its readings, what was predicted of them, and where they are recorded."""

    result: RunResult
    predicted: dict[str, float]
    folder: Path


class PredictKeywords(EmulationKeywords, RunKeywords, total=False):
    """All words of a predicted emulation."""


class EmulateKeywords(PredictKeywords, EmulatorKeywords, total=False):
    """All words of an emulation."""


@public_with(EmulationSettings, EmulatorSettings)
def emulate(spec: Spec | None = None, **words: Unpack[EmulateKeywords]) -> RunResult:
    """Emulate one rank of a large job on this GPU; returns its readings as a result with origin ``emulated``.

    The rank's kernels run, its communication and waits last as long as simulated, for whole steps of at least
    `seconds`. `timeline` is a file from ``simulate(timeline=...)`` to emulate instead. The prediction is stored in
    `out` (default ``charllm-runs/rank-TIME``) before the emulation starts. Needs torch and a GPU.
    """
    run: dict[str, Any] = dict(words)
    settings, emulator = take(EmulationSettings, run), take(EmulatorSettings, run)
    request = build_request(spec, run)
    return run_emulation(timeline_of(request, settings), request, settings.seconds_s, emulator).result


@public_with(EmulationSettings)
def predict_emulation(spec: Spec | None = None, **words: Unpack[PredictKeywords]) -> Metrics:
    """Predict the readings of `emulate` without a GPU: step time, power, clock and temperature of a single GPU.

    >>> import charllm
    >>> seen = charllm.predict_emulation(model="llama3-8b", cluster="h200x8", tp=8, gbs=8, rank=3, seconds=1)
    >>> 100 < seen.power_mean_w < 900, seen["step_time_s"] > 0
    (True, True)
    """
    run: dict[str, Any] = dict(words)
    settings = take(EmulationSettings, run)
    request = build_request(spec, run)
    return Metrics(predict_readings(timeline_of(request, settings), request, settings.seconds_s))


def timeline_of(request: Table, settings: EmulationSettings) -> RankTimeline:
    """Read the timeline to emulate, or simulate it."""
    if settings.timeline is not None:
        timeline = read_timeline(settings.timeline)
        check_length(timeline)
        return timeline
    from charllm.simulate.rank_timeline import generate_timeline

    return generate_timeline(resolve_run(request), settings.rank)


def run_emulation(
    timeline: RankTimeline,
    request: Table,
    seconds_s: float,
    emulator: EmulatorSettings,
) -> Emulation:
    """Predict, then emulate a timeline under the sampler."""
    predicted = predict_readings(timeline, request, seconds_s)
    require_device(emulator.device)
    from charllm.measure.emulation.record import emulate as record_rank

    gpus = telemetry_gpus(emulator.telemetry, os.environ)[:1]
    folder = emulator.out or Path("charllm-runs") / time.strftime("rank-%Y%m%d-%H%M%S")
    result = record_rank(timeline, folder, emulator.telemetry, emulator.device, seconds_s, gpus, predicted)
    return Emulation(result, predicted, folder)


def predict_readings(timeline: RankTimeline, request: Table, seconds_s: float) -> dict[str, float]:
    """Predict what one GPU of the timeline's kind will read, alone where such a one was measured."""
    from charllm.evaluate.ops import bench_machine
    from charllm.simulate.emulated import predict_emulated

    conditions = _conditions(timeline, request)
    try:
        cluster = bench_machine(timeline.spec["cluster"]["node"]["gpu"]["name"])
    except (KeyError, TypeError, SpecError):
        # A timeline from elsewhere, or a GPU that the catalog does not know.
        return {}
    return predict_emulated(timeline, cluster, min(seconds_s, WARM_AFTER_S), conditions).metrics


def _conditions(timeline: RankTimeline, request: Mapping[str, Any]) -> Conditions:
    """Return the caps that were asked for, or those under which the timeline was simulated."""
    asked = as_table(request.get("conditions") or timeline.spec.get("conditions") or {}, "conditions")
    return read(Conditions, {name: value for name, value in asked.items() if name.startswith(CAPS)}, "conditions")
