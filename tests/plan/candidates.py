"""A few strategies of one job, each simulated once."""

from functools import cache

from charllm.catalog.resolve import resolve_run
from charllm.plan.candidate import Candidate
from charllm.plan.metrics import Economics, derive_metrics
from charllm.plan.whole_run import WholeRun
from charllm.simulate.predict import predict
from charllm.spec.request import Table

DEGREES = ((8, 4, 1), (4, 8, 1), (4, 4, 1), (8, 2, 1), (2, 8, 2))
"""tp, pp and vpp."""
TOKENS = 3e11


def request(tp: int, pp: int, vpp: int = 1) -> Table:
    """Return the request of one strategy of GPT-3 on 32 H200."""
    return {
        "model": "gpt3-175b",
        "cluster": "charllm-ppt-h200",
        "parallelism": {"tp": tp, "pp": pp, "vpp": vpp},
        "training": {"global_batch_size": 64},
    }


@cache
def candidates() -> tuple[Candidate, ...]:
    """Return the strategies with their metrics, whether they fit or not."""
    return tuple(candidate(request(*degrees)) for degrees in DEGREES)


def candidate(asked: Table) -> Candidate:
    """Simulate one strategy."""
    run = resolve_run(asked)
    metrics = predict(run, ignore_memory=True).result.metrics
    return Candidate(run, asked, derive_metrics(run, metrics, Economics(whole_run=WholeRun(tokens=TOKENS))), True)


def mine() -> Candidate:
    """Return the first of them."""
    return candidates()[0]
