"""What a sweep costs beside its simulations: overhead per run, and the gain of a second worker.

    python -m benchmarks.sweep_speed [RUNS]

RUNS distinct small cases (default 10,000) are swept and stored by one worker and by two. Overhead is what the sweep
with one worker takes outside the simulator, in CPU time and in wall time; wall times mean something on a quiet machine
only. At the end the two tables are compared, and one query reads the whole store.
"""

import gc
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from charllm.catalog import resolve
from charllm.database import query_store
from charllm.simulate import predict
from charllm.sweep.outcome import StudyResult
from charllm.sweep.run import run_study
from charllm.sweep.runners.work import Engine
from charllm.sweep.study import Study, unfold

RUNS = 10_000
AXES = {"tp": ("parallelism.tp", (1, 2, 4, 8)), "mbs": ("training.micro_batch_size", (1, 2, 4, 8))}
COMBINATIONS = 16
LOWEST_W, HIGHEST_W = 350.0, 700.0
MOST_OVERHEAD_S, LEAST_SPEEDUP = 2e-3, 1.8
"""What is promised, on a quiet machine."""


class Cost(NamedTuple):
    """Seconds on the clock, and of processors: of this process and of those that it has started."""

    wall_s: float
    cpu_s: float


def make_study(runs: int) -> Study:
    """Return a study of distinct cases that each take as long as a small run does."""
    axes: dict[str, Any] = {name: {"field": path, "values": list(values)} for name, (path, values) in AXES.items()}
    caps = -(-runs // COMBINATIONS)
    watts = [LOWEST_W + (HIGHEST_W - LOWEST_W) * place / caps for place in range(caps)]
    axes["cap"] = {"field": "conditions.power_cap_w", "values": watts}
    request = {"model": "llama3-8b", "cluster": "h200x8", "training": {"recompute": "full"}}
    table = {"request": request, "groups": [{"axes": axes}]}
    return unfold("speed", {**table, "sample": runs} if runs < COMBINATIONS * caps else table)


def now() -> Cost:
    own, started = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return Cost(time.monotonic(), sum(used.ru_utime + used.ru_stime for used in (own, started)))


def spent(begin: Cost) -> Cost:
    end = now()
    return Cost(end.wall_s - begin.wall_s, end.cpu_s - begin.cpu_s)


class Stopwatch:
    """Adds up what calls of a function cost."""

    def __init__(self) -> None:
        self.total = Cost(0.0, 0.0)

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **words: Any) -> Any:
            begin = Cost(time.monotonic(), time.process_time())
            try:
                return function(*args, **words)
            finally:
                self.total = Cost(
                    self.total.wall_s + time.monotonic() - begin.wall_s,
                    self.total.cpu_s + time.process_time() - begin.cpu_s,
                )

        return timed


def sweep(study: Study, workers: int, out: Path) -> tuple[Cost, StudyResult]:
    gc.collect()
    begin = now()
    result = run_study(study, engine=Engine(workers=workers), out=out)
    return spent(begin), result


def measure(runs: int, folder: Path) -> dict[str, float]:
    """Return overhead, speed-up and the time of a query, and see that the tables are equal."""
    study = make_study(runs)
    predict.predict(resolve.resolve_run(study.cases[0].request))
    simulator = Stopwatch()
    # A case imports these when it runs.
    simulating = patch.object(predict, "predict", simulator.around(predict.predict))
    with simulating, patch.object(resolve, "resolve_run", simulator.around(resolve.resolve_run)):
        one, first = sweep(study, 1, folder / "one")
    two, second = sweep(study, 2, folder / "two")
    assert first == second, "one worker and two give different tables"
    begin_s = time.monotonic()
    ((rows,),) = query_store(folder / "one", "SELECT count(step_time_s) FROM runs").rows
    assert rows == runs
    return {
        "simulation_cpu_s": simulator.total.cpu_s / runs,
        "overhead_cpu_s": (one.cpu_s - simulator.total.cpu_s) / runs,
        "overhead_wall_s": (one.wall_s - simulator.total.wall_s) / runs,
        "speedup": one.wall_s / two.wall_s,
        "cpu_of_two_over_one": two.cpu_s / one.cpu_s,
        "query_s": time.monotonic() - begin_s,
    }


def main(runs: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        found = measure(runs, Path(place))
    print(f"{runs:,} runs of {found['simulation_cpu_s'] * 1e3:.1f} ms CPU each")
    print(
        f"overhead per run: {found['overhead_cpu_s'] * 1e3:.2f} ms CPU, {found['overhead_wall_s'] * 1e3:.2f} ms wall "
        f"(promised: {MOST_OVERHEAD_S * 1e3:g} ms)"
    )
    print(
        f"two workers over one: {found['speedup']:.2f} times as fast (promised: {LEAST_SPEEDUP:g}), "
        f"{found['cpu_of_two_over_one']:.2f} times the CPU time"
    )
    print(f"a query over all runs: {found['query_s']:.1f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else RUNS)
