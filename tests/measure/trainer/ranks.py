"""Run a function on several gloo ranks, forked from this process so that torch is imported only once."""

import faulthandler
import multiprocessing
import os
import pickle
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.ports import free_port

TIMEOUT_S = 120.0
LATER_S = 10.0
"""Left to ranks that hang to say where they are."""


class RankFailed(AssertionError):
    """A rank raised, died or did not end in time; the message has its traceback."""


def run_ranks(
    count: int, function: Callable[..., Any], *arguments: Any, timeout_s: float = TIMEOUT_S, connect: bool = True
) -> list[Any]:
    """Call `function(*arguments)` on each of `count` ranks and return what each returned, in the order of ranks.

    Each rank has one thread, RANK, LOCAL_RANK and WORLD_SIZE in its environment and a gloo process group on 127.0.0.1.
    With `connect=False` the process group is left to the function: MASTER_ADDR and MASTER_PORT name a free port.
    What a function returns is pickled. The first rank that fails ends all of them.
    """
    _load_once()
    context = multiprocessing.get_context("fork")
    port = str(free_port())
    with tempfile.TemporaryDirectory() as folder:
        ranks, answers = [], []
        for rank in range(count):
            here, there = context.Pipe(duplex=False)
            environment = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_PORT": port}
            job = (there, environment, Path(folder), connect, timeout_s, function, arguments)
            process = context.Process(target=_be_rank, args=job, daemon=True)
            process.start()
            there.close()
            ranks.append(process)
            answers.append(here)
        try:
            return _collect(answers, time.monotonic() + timeout_s)
        except _Late as late:
            stacks = _ask_where(late.ranks, [process.pid or 0 for process in ranks], Path(folder))
            numbers = ", ".join(str(rank) for rank in late.ranks)
            raise RankFailed(f"ranks {numbers} did not end in time\n{stacks}") from None
        finally:
            for process in ranks:
                process.kill()
                process.join()


def _load_once() -> None:
    """Import here what each rank would import for itself: parts of torch that it loads at their first use."""
    for name in ("torch._dynamo", "torch.distributed.pipelining", "torch.distributed.fsdp", "torch.distributed.tensor"):
        import_module(name)


class _Late(Exception):
    def __init__(self, ranks: list[int]) -> None:
        self.ranks = ranks


def _ask_where(late: list[int], processes: list[int], folder: Path) -> str:
    """Let ranks that hang write down where they are."""
    places = [folder / f"stack-{rank}" for rank in late]
    end_s = time.monotonic() + LATER_S
    while not all(place.exists() for place in places) and time.monotonic() < end_s:
        time.sleep(0.01)
    for rank in late:
        os.kill(processes[rank], signal.SIGUSR1)
    while not all(place.read_text() for place in places) and time.monotonic() < end_s:
        time.sleep(0.01)
    return "\n".join(f"rank {rank}:\n{(folder / f'stack-{rank}').read_text()}" for rank in late)


def _collect(answers: list[Connection], deadline_s: float) -> list[Any]:
    returned: dict[int, Any] = {}
    while len(returned) < len(answers):
        waiting = [answer for rank, answer in enumerate(answers) if rank not in returned]
        ready = wait(waiting, max(0.0, deadline_s - time.monotonic()))
        if not ready:
            raise _Late([rank for rank in range(len(answers)) if rank not in returned])
        for answer in ready:
            rank = next(index for index, known in enumerate(answers) if known is answer)
            try:
                failure, value = pickle.loads(answers[rank].recv_bytes())
            except EOFError:
                raise RankFailed(f"rank {rank} died without a word") from None
            if failure:
                raise RankFailed(f"rank {rank} failed:\n{failure}")
            returned[rank] = value
    return [returned[rank] for rank in range(len(answers))]


def _be_rank(
    answer: Connection,
    environment: dict[str, str],
    folder: Path,
    connect: bool,
    timeout_s: float,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    os.environ.update(environment, MASTER_ADDR="127.0.0.1", GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
    torch.set_num_threads(1)
    rank, count = int(environment["RANK"]), int(environment["WORLD_SIZE"])
    stack = (folder / f"stack-{rank}.new").open("w", encoding="utf-8")
    faulthandler.register(signal.SIGUSR1, stack, all_threads=True)
    (folder / f"stack-{rank}.new").rename(folder / f"stack-{rank}")
    try:
        if connect:
            store = dist.FileStore(str(folder / "store"), count)
            dist.init_process_group(
                "gloo", store=store, rank=rank, world_size=count, timeout=timedelta(seconds=timeout_s)
            )
        told = pickle.dumps((None, function(*arguments)))
    except BaseException:
        told = pickle.dumps((traceback.format_exc(), None))
    answer.send_bytes(told)
    answer.close()
    # Peers may still be talking to this rank; the parent ends it when all have answered.
    time.sleep(timeout_s)
