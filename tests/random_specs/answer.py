"""Run the command line on an input inside this process, and tell what is wrong with its answer."""

import contextlib
import io
import json
import signal
import time
import traceback
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import Any, NamedTuple, NoReturn

from charllm.cli import main

LONGEST_S, LONGEST_WAIT_S = 20.0, 120.0
"""Processor time of an answer, and time by the clock, in which other programs may run."""
EXIT_CODES = (0, 1, 2, 3)
LONGEST_MESSAGE = 4000
SIGNED = {
    "margin_to_memory_limit_k", "margin_to_slowdown_k", "memory_margin_fraction", "memory_temperature_mean_c",
    "memory_temperature_peak_c", "temperature_mean_c", "temperature_peak_c",
}  # fmt: skip
HOTTEST_C = 5000.0


class Answer(NamedTuple):
    """What the program said."""

    code: int | None
    seconds: float
    fault: str | None
    """What is wrong with it; None: nothing."""
    simulated: bool
    """Whether the closed loop was reached."""


class _TooLongError(BaseException):
    pass


def ask(words: list[str], *, wants_json: bool) -> Answer:
    """Run a command and check its answer."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    start = time.process_time()
    fault, code = None, None
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings(), _limited():
            warnings.simplefilter("error")
            code = main(words)
    except _TooLongError:
        fault = f"no answer in {LONGEST_S:.0f} s"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        fault = f"{type(error).__name__}\n{traceback.format_exc(limit=-6)}"
    seconds = time.process_time() - start
    text, said = (stream.buffer.getvalue().decode("utf-8", "replace") for stream in (out, err))
    return check_answer(code, text, said, seconds, fault, wants_json=wants_json)


def check_answer(
    code: int | None, text: str, said: str, seconds: float, fault: str | None = None, *, wants_json: bool
) -> Answer:
    """Tell what is wrong with an answer: its code, its length, its messages or its JSON."""
    result = None
    if fault is None:
        fault, result = _fault(code, text, said, wants_json=wants_json)
    if fault is None and seconds > LONGEST_S:
        fault = f"answered after {seconds:.0f} s"
    simulated = result is not None and result["metrics"]["step_time_s"] is not None
    return Answer(code, seconds, fault, simulated)


def _fault(code: int | None, text: str, said: str, *, wants_json: bool) -> tuple[str | None, Any]:
    if code not in EXIT_CODES:
        return f"exit code {code}", None
    if "Traceback" in said + text:
        return f"traceback\n{said[-2000:]}", None
    if code in (1, 2) and not said.strip():
        return "no message", None
    if code in (1, 2) and len(said) > LONGEST_MESSAGE and "usage:" not in said:
        return f"a message of {len(said)} characters", None
    if not (wants_json and code in (0, 3)) or text.startswith("usage:"):
        return None, None
    try:
        result = json.loads(text, parse_constant=_refuse)
    except ValueError as error:
        return f"invalid JSON ({error})", None
    return _absurd(result["metrics"]), result


def _absurd(metrics: dict[str, Any]) -> str | None:
    """Name a metric that cannot be."""
    for name, value in metrics.items():
        numbers = value.values() if isinstance(value, dict) else [value]
        for number in numbers:
            if isinstance(number, int | float) and number < 0 and name not in SIGNED:
                return f"{name} is {number}"
    hottest_c, step_s = metrics["temperature_peak_c"], metrics["step_time_s"]
    if hottest_c is not None and not -50 < hottest_c < HOTTEST_C:
        return f"temperature_peak_c is {hottest_c}"
    if step_s is not None and abs(sum(metrics["breakdown_s"].values()) / step_s - 1) > 1e-6:
        return f"breakdown_s adds up to {sum(metrics['breakdown_s'].values())}, not {step_s}"
    return None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def stop(_number: int, _frame: FrameType | None) -> NoReturn:
        raise _TooLongError

    timers = {signal.ITIMER_PROF: LONGEST_S, signal.ITIMER_REAL: LONGEST_WAIT_S}
    before = {number: signal.signal(number, stop) for number in (signal.SIGPROF, signal.SIGALRM)}
    for timer, seconds in timers.items():
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for timer in timers:
            signal.setitimer(timer, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
