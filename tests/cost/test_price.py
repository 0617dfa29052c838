from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.cost import price as module
from charllm.cost.calibration import CALIBRATION
from charllm.cost.kernels import price_kernel
from charllm.cost.price import make_price
from charllm.network.collectives import collective_seconds
from charllm.workload.op import Op, elementwise, is_communication
from charllm.workload.step import build_step
from charllm.workload.totals import stage_ops

REQUESTS: dict[str, dict[str, Any]] = {
    "dense": {"model": "llama3-70b", "cluster": "h100x64", "parallelism": {"tp": 8, "pp": 4, "cp": 2}},
    "sparse": {"model": "deepseek-v3-4l", "cluster": "gb200-nvl72", "parallelism": {"ep": 8}},
    "narrow": {"model": "llama3-8b", "cluster": "b200x8", "training": {"precision": "mxfp8", "recompute": "full"}},
    "sharded": {"model": "mixtral-8x7b", "cluster": "mi250x32", "framework": "fsdp", "parallelism": {"ep": 8}},
    "eager": {"model": "gpt2", "cluster": "v100x8", "framework": "pytorch-eager", "training": {"precision": "fp16"}},
}


@pytest.mark.parametrize("name", sorted(REQUESTS))
def test_every_op_of_a_step_has_a_price(name: str) -> None:
    run = resolve_run(REQUESTS[name])
    price, step = make_price(run, CALIBRATION), build_step(run)
    for stage in range(run.parallelism.pp):
        for op, _times, _phase in stage_ops(step, stage):
            seconds = price(op)
            assert 0 < seconds < float("inf"), op
            expected = collective_seconds(op, run) if is_communication(op) else price_kernel(op, run, CALIBRATION)
            assert seconds == expected


def test_an_op_is_priced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Op] = []

    def note(op: Op, *_rest: Any) -> float:
        asked.append(op)
        return float(len(asked))

    monkeypatch.setattr(module, "price_kernel", note)
    price = make_price(resolve_run(REQUESTS["dense"]), CALIBRATION)
    norm = elementwise("norm", 1e6, 1e6, "norm")
    assert [price(norm), price(norm), price(norm)] == [1.0, 1.0, 1.0]
    assert asked == [norm]


def test_ops_that_come_and_go_are_not_mistaken_for_each_other() -> None:
    price = make_price(resolve_run(REQUESTS["dense"]), CALIBRATION)
    # Each op is forgotten by its maker at once, so that the next may be put where it was.
    seconds = [price(elementwise("norm", size * 1e6, 0.0, "norm")) for size in range(1, 200)]
    assert seconds == sorted(set(seconds))


def test_runs_have_prices_of_their_own() -> None:
    norm = elementwise("norm", 1e9, 1e9, "norm")
    slow, fast = (
        make_price(resolve_run({"model": "llama3-8b", "cluster": cluster}), CALIBRATION)(norm)
        for cluster in ("h100x8", "b200x8")
    )
    assert slow > fast
