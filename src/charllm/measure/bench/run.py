"""Run the cases of a suite one after the other, noting when each began and ended; readings come from the sampler."""

import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from charllm.errors import CharllmError
from charllm.measure.bench.suite import OpCase
from charllm.measure.kernels.device_code import make_limited_copy, make_spin
from charllm.measure.kernels.torch_kernels import make_kernel

RUNS_FILE = "ops.jsonl"
CHUNK_S = 0.02
IN_FLIGHT = 4
BESIDE_CHUNK_S = 0.01
COPY_BYTES = 64 << 20


class OpRun(NamedTuple):
    """When a case ran, on the monotonic clock, and how often its kernel was launched."""

    name: str
    start_s: float
    end_s: float
    calls: int
    on_s: float
    """Time the GPU had work, as launched."""
    error: str = ""


def run_suite(cases: list[OpCase], folder: Path, device: str, seed: int) -> Iterator[tuple[OpCase, OpRun]]:
    """Run cases in random order (a soak keeps its cool-down behind it), appending each to the record as it ends."""
    with (folder / RUNS_FILE).open("a", encoding="utf-8") as file:
        for case in shuffled(cases, seed):
            try:
                outcome = MODES[case.mode](case, device)
            except Exception as error:
                # Whatever torch throws at one op must not end the others.
                now_s = time.monotonic()
                outcome = OpRun(case.name, now_s, now_s, 0, 0.0, _first_line(error))
            file.write(json.dumps(outcome._asdict()) + "\n")
            file.flush()
            _free(device)
            yield case, outcome


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0][:200]


def shuffled(cases: list[OpCase], seed: int) -> list[OpCase]:
    """Return cases in random order, the soak and what follows it at the end in their own order."""
    first = [case for case in cases if case.group != "soak"]
    random.Random(seed).shuffle(first)
    return first + [case for case in cases if case.group == "soak"]


def read_runs(folder: Path) -> list[OpRun]:
    """Read back what was run; a line cut short is ignored."""
    text = (folder / RUNS_FILE).read_text(encoding="utf-8")
    return [OpRun(**json.loads(line)) for line in text[: text.rfind("\n") + 1].splitlines()]


def _steady(case: OpCase, device: str) -> OpRun:
    """Launch back to back, a few chunks ahead of the GPU."""
    if case.shape is None:
        start_s = time.monotonic()
        time.sleep(case.seconds_s)
        return OpRun(case.name, start_s, time.monotonic(), 0, 0.0)
    launch = make_kernel(case.shape, device)
    call_s = _warm_up(launch, device)
    return _loop(case.name, launch, call_s, case.seconds_s, device)


def _loop(name: str, launch: Callable[[], Any], call_s: float, seconds_s: float, device: str) -> OpRun:
    chunk = max(1, int(CHUNK_S / call_s))
    queued: list[Any] = []
    calls = 0
    start_s = time.monotonic()
    while time.monotonic() - start_s < seconds_s:
        for _ in range(chunk):
            launch()
        calls += chunk
        queued.append(_event(device))
        if len(queued) >= IN_FLIGHT:
            _wait_for(queued.pop(0))
    _synchronize(device)
    end_s = time.monotonic()
    return OpRun(name, start_s, end_s, calls, end_s - start_s)


def _burst(case: OpCase, device: str) -> OpRun:
    """Launch for a time, wait for the GPU, sleep until the period is over."""
    if case.shape is None:
        raise CharllmError(f"{case.name}: a burst needs a kernel")
    launch = make_kernel(case.shape, device)
    calls_on = max(1, round(case.on_s / _warm_up(launch, device)))
    calls, on_s = 0, 0.0
    start_s = next_s = time.monotonic()
    while time.monotonic() - start_s < case.seconds_s:
        began_s = time.monotonic()
        for _ in range(calls_on):
            launch()
        _synchronize(device)
        on_s += time.monotonic() - began_s
        calls += calls_on
        next_s = max(next_s + case.period_s, time.monotonic())
        _sleep_until(next_s)
    return OpRun(case.name, start_s, time.monotonic(), calls, on_s)


def _beside(case: OpCase, device: str) -> OpRun:
    """Run a spin or a limited copy on a second stream, under the op or alone."""
    if device == "cpu":
        raise CharllmError(f"{case.name}: needs a GPU")
    other = _companion(case)
    companion_s = _warm_up(other, device)
    if case.shape is None:
        return _loop(case.name, other, companion_s, case.seconds_s, device)
    launch = make_kernel(case.shape, device)
    call_s = _warm_up(launch, device)
    stream = torch.cuda.Stream()

    def launch_both() -> None:
        with torch.cuda.stream(stream):
            other()
        for _ in range(per_companion):
            launch()

    # A copy on few blocks overshoots its length: as much of the op beside it keeps both streams busy to the end.
    per_companion = max(1, round(companion_s / call_s))
    run = _loop(case.name, launch_both, companion_s, case.seconds_s, device)
    return run._replace(calls=run.calls * per_companion)


def _companion(case: OpCase) -> Callable[[], Any]:
    if case.beside == "spin":
        return make_spin(case.blocks, BESIDE_CHUNK_S)
    return make_limited_copy(case.blocks, COPY_BYTES, BESIDE_CHUNK_S)


MODES: dict[str, Callable[[OpCase, str], OpRun]] = {"steady": _steady, "burst": _burst, "beside": _beside}


def _warm_up(launch: Callable[[], Any], device: str) -> float:
    """Launch a few times (compiling, choosing algorithms) and return the seconds of one call."""
    for _ in range(3):
        launch()
    _synchronize(device)
    start_s, calls = time.monotonic(), 0
    while calls < 3 or (time.monotonic() - start_s < 0.02 and calls < 1000):
        launch()
        calls += 1
    _synchronize(device)
    return (time.monotonic() - start_s) / calls


def _synchronize(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def _event(device: str) -> Any:
    if device == "cpu":
        return None
    event = torch.cuda.Event()
    event.record()
    return event


def _wait_for(event: Any) -> None:
    if event is not None:
        event.synchronize()


def _free(device: str) -> None:
    if device != "cpu":
        torch.cuda.empty_cache()


def _sleep_until(moment_s: float) -> None:
    """Sleep, then poll the last bit, for the operating system wakes late."""
    coarse_s = moment_s - time.monotonic() - 0.0005
    if coarse_s > 0:
        time.sleep(coarse_s)
    while time.monotonic() < moment_s:
        pass
