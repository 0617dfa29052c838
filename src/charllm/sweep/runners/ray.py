"""Run cases on a Ray cluster, or on a Ray of this machine's own: a few cases a task, outcomes as tasks end.

A Ray that is started here listens on all addresses of the machine: it answers only who knows its token, made for this
run and held in the environment of its processes. The credentials of a cluster that exists are the user's own.
"""

import os
import secrets
import signal
import socket
import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from charllm.errors import CharllmError, MissingExtra, SpecError
from charllm.sweep.case import Task, fail_case, run_case
from charllm.sweep.folder import read_case
from charllm.sweep.outcome import Outcome
from charllm.sweep.runners.work import Ended, Work

MOST_CASES_PER_TASK, TASKS_PER_WORKER, TASKS_IN_FLIGHT = 50, 8, 2
"""A task takes Ray a millisecond, a case twenty; each worker has one task at work and one waiting."""
RETRIES, ANSWER_S = 2, 10.0
TOKEN_BYTES = 32
Chunk = list[tuple[int, Task]]


def run_on_ray(work: Work) -> Generator[Ended, None, None]:
    """Yield outcomes as tasks end; a task whose worker or node is lost is run again on another."""
    with _own_token(work.engine.address), _connected(ray := _import_ray(), work):
        workers = work.workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        submit = ray.remote(num_cpus=1, max_retries=RETRIES)(run_chunk).remote
        waiting = _chunks(work, workers)
        running: dict[Any, Chunk] = {}
        while True:
            while len(running) < TASKS_IN_FLIGHT * workers and (chunk := next(waiting, None)) is not None:
                running[submit(chunk)] = chunk
            if not running:
                return
            (ended, *_), _ = ray.wait(list(running), num_returns=1)
            yield from _collect(ray, ended, running.pop(ended))


def run_chunk(chunk: Chunk) -> tuple[list[Ended], str | None]:
    """Run some cases, on whatever node this is; return their outcomes, and why the rest could not be stored."""
    ended: list[Ended] = []
    for number, task in chunk:
        # A task that is run again finds what it had stored before its node was lost.
        stored = None if task.folder is None else read_case(task.folder)
        try:
            ended.append((number, stored or run_case(task)))
        except CharllmError as error:
            return ended, str(error)
    return ended, None


def _chunks(work: Work, workers: int) -> Iterator[Chunk]:
    size = min(MOST_CASES_PER_TASK, max(1, len(work.numbers) // (TASKS_PER_WORKER * workers)))
    for start in range(0, len(work.numbers), size):
        yield [(number, work.task(number)) for number in work.numbers[start : start + size]]


def _collect(ray: Any, ended: Any, chunk: Sequence[tuple[int, Task]]) -> Iterator[Ended]:
    try:
        outcomes, error = ray.get(ended)
    except ray.exceptions.RayError as lost:
        yield from ((number, _lost(task, lost)) for number, task in chunk)
        return
    yield from outcomes
    if error is not None:
        raise CharllmError(error)
    for number, task in chunk:
        if task.folder is not None and dict(outcomes)[number].exit_code != 1 and not task.folder.is_dir():
            raise CharllmError(f"{task.folder}: expected a folder that every node of the Ray cluster can see")


def _lost(task: Task, lost: Exception) -> Outcome:
    """Return what became of a case whose worker was lost: it may have been stored before."""
    stored = None if task.folder is None else read_case(task.folder)
    return stored or fail_case(task.case, f"the Ray task was lost: {type(lost).__name__}")


@contextmanager
def _own_token(address: str | None) -> Iterator[None]:
    """Ask for a token of our own where Ray is started here; Ray takes it from the environment of its processes."""
    ours = {} if address else {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(TOKEN_BYTES)}
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@contextmanager
def _connected(ray: Any, work: Work) -> Iterator[None]:
    """Join a Ray cluster, or start one here; SIGTERM keeps its meaning, which Ray would change."""
    if work.engine.address is not None:
        _check_address(work.engine.address)
    before = signal.getsignal(signal.SIGTERM)
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        with warnings.catch_warnings(action="ignore"):
            if work.engine.address is None:
                work.show("starting Ray on this machine")
                ray.init(address="local", num_cpus=work.workers, include_dashboard=False, **quiet)
            else:
                ray.init(address=work.engine.address, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CharllmError(f"Ray could not be started or reached: {said}") from None
    signal.signal(signal.SIGTERM, before)
    try:
        yield
    finally:
        ray.shutdown()


def _check_address(address: str) -> None:
    """Refuse an address that nobody answers at, which Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdecimal():
        # `auto`: a Ray of this machine that was started before.
        return
    try:
        socket.create_connection((host, int(port)), ANSWER_S).close()
    except (OSError, OverflowError) as error:
        raise SpecError("--address", address, f"the address of a Ray cluster ({error})") from None


def _import_ray() -> Any:
    try:
        with warnings.catch_warnings(action="ignore"):
            import ray
    except ImportError:
        raise MissingExtra("--runner ray needs Ray", "ray") from None
    except KeyError as error:
        # Ray 2.56 to 2.60 beside Python's amdsmi on a machine without AMD's library.
        said = f"Ray cannot be imported ({error}); a version that can: pip install 'charllm[ray]'"
        raise CharllmError(said) from None
    return ray
