"""Published runs at locked clocks: a V100 computes bf16 in fp32 units."""

from statistics import median

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.evaluate.clock_locked import clock_locked_runs, describe_run, read_clock_locked
from charllm.simulate.predict import predict
from charllm.workload.model_flop import peak_flop_per_s

RUNS = list(clock_locked_runs())


@pytest.mark.parametrize(("tp", "nodes", "time", "power"), [(4, 1, 0.05, 0.05), (2, 1, 0.04, 0.05), (4, 2, 0.04, 0.06)])
def test_step_time_and_power_at_locked_clocks_are_those_that_were_read(
    tp: int, nodes: int, time: float, power: float
) -> None:
    own = [one for one in RUNS if one.request["parallelism"]["tp"] == tp and one.request["cluster"]["nodes"] == nodes
           and one.request["conditions"]["clock_cap_hz"]]  # fmt: skip
    times = [
        one.metrics["step_time_s"] / one.read["step_time_s"] for one in own if one.request["model"]["layers"] == 28
    ]
    watts = [one.metrics["power_mean_w"] / one.read["power_mean_w"] for one in own if "power_mean_w" in one.read
             and one.request["model"]["layers"] == 28]  # fmt: skip
    assert len(times) >= 3
    assert median(times) == pytest.approx(1.0, abs=time)
    assert median(watts) == pytest.approx(1.0, abs=power)


def test_nodes_that_heat_limits_are_slower_at_free_clocks_than_at_locked_ones() -> None:
    full = {
        one.name: one for one in RUNS if one.request["parallelism"]["tp"] == 4 and one.request["cluster"]["nodes"] == 1
    }
    free, at_1380, at_1410, at_1597 = (
        next(one for name, one in full.items() if name.startswith(f"power_{kind}_"))
        for kind in ("baseline", "static1380", "static1410", "static1597")
    )
    for one in (free, at_1380, at_1410, at_1597):
        assert one.metrics["step_time_s"] == pytest.approx(one.read["step_time_s"], rel=0.05)
    ordered = [one.metrics["step_time_s"] for one in (at_1380, at_1410, at_1597)]
    assert ordered == sorted(ordered)
    assert free.metrics["step_time_s"] > 1.08 * at_1380.metrics["step_time_s"]


def test_states_on_the_cpu_are_said() -> None:
    offloaded = [one for one in RUNS if one.request["training"].get("optimizer_offload_fraction")]
    assert {one.request["model"]["layers"] for one in offloaded} == {36}
    assert all(one.metrics["breakdown_s"]["overhead"] > 0.5 for one in offloaded)


def test_bf16_on_a_v100_runs_in_fp32_units_and_says_so() -> None:
    run = resolve_run(describe_run(read_clock_locked()[0]))
    found = predict(run, ignore_memory=True).result
    assert peak_flop_per_s(run) == run.cluster.gpu.peak_fp32_flop_per_s == 15.7e12
    assert 0.3 < found.metrics["mfu"] < 1
    assert any("take no bf16: products run in fp32 units" in warning for warning in found.warnings)


def test_no_fp32_product_is_faster_than_the_units_that_take_it() -> None:
    for name in ("v100x1", "mi250x2", "mi355x1", "h100x1"):
        request = {"model": "llama3.2-1b", "cluster": name, "training": {"precision": "fp32", "global_batch_size": 4}}
        run = resolve_run(request)
        gpu = run.cluster.gpu
        assert peak_flop_per_s(run) == (gpu.peak_tf32_flop_per_s or gpu.peak_fp32_flop_per_s)
        assert predict(run, ignore_memory=True).result.metrics["mfu"] < 1
