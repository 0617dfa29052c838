from dataclasses import replace

import pytest

from charllm.report.page.clock import clock_figure, throttled_figure
from charllm.report.page.energy import energy_figure
from charllm.report.page.memory import memory_figure
from charllm.report.page.steps import steps_figure
from charllm.report.page.view import RunView
from charllm.units import GIB
from tests.report.page.runs import measured, misfit, pipeline, rows_of, view, with_steps


def sums_of(figure: object, value: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for row in rows_of(figure):  # type: ignore[arg-type]
        found[row["bar"]] = found.get(row["bar"], 0.0) + row[value]
    return found


# memory


def test_memory_of_the_fullest_stage_is_the_peak() -> None:
    figure = memory_figure(pipeline())
    assert max(sums_of(figure, "size").values()) == pytest.approx(pipeline().result.metrics["memory_peak_bytes"] / GIB)
    assert figure.options["limit"]["value"] == pytest.approx(140.4, abs=0.1)


def test_a_run_that_does_not_fit_says_what_would() -> None:
    figure = memory_figure(misfit())
    assert "Does not fit" in figure.message
    assert "with --recompute full it fits" in figure.message
    assert len(sums_of(figure, "size")) == 12


def test_without_its_table_the_worst_rank_is_shown() -> None:
    run = RunView(replace(pipeline().result, tables={}))
    assert list(sums_of(memory_figure(run), "size")) == ["rank 0"]


def test_a_measured_run_shows_what_each_device_used() -> None:
    figure = memory_figure(RunView(measured()))
    assert sums_of(figure, "size") == {f"node host{node} GPU {slot}": 16.0 for node in range(2) for slot in range(2)}
    assert "limit" not in figure.options


# clock


def test_clock_lost_by_slot_and_by_stage_has_the_mean_of_the_metrics() -> None:
    figure = clock_figure(pipeline())
    assert figure is not None
    sums = sums_of(figure, "share")
    lost = 100 * sum(pipeline().result.metrics["clock_loss_fraction"].values())
    slots = [share for bar, share in sums.items() if bar.startswith("slot")]
    stages = [share for bar, share in sums.items() if bar.startswith("stage")]
    assert sum(slots) / len(slots) == pytest.approx(lost)
    assert sum(stages) / len(stages) == pytest.approx(lost)
    assert "slot 0 behind 1" in sums


def test_a_run_that_is_not_throttled_says_so_once() -> None:
    cool = view(conditions={"clock_cap_mhz": 900})
    clock = clock_figure(cool)
    assert clock is not None
    assert "no GPU was throttled" in clock.missing
    assert throttled_figure(cool) is None


def test_telemetry_tells_how_long_and_not_how_much() -> None:
    run = RunView(measured())
    assert clock_figure(run) is None
    figure = throttled_figure(run)
    assert figure is not None
    assert sums_of(figure, "share") == {"slot 0": 12.5, "slot 1": 12.5}


# energy


def test_joules_per_token_are_those_of_the_metrics() -> None:
    rows = {(row["bar"], row["part"]): row["joules"] / 1e3 for row in rows_of(energy_figure(pipeline()))}
    metrics = pipeline().result.metrics
    assert 1 / rows["all GPUs", "gpus"] == pytest.approx(metrics["tokens_per_j"])
    assert rows["stage 0", "gpus"] + rows["stage 1", "gpus"] == pytest.approx(rows["all GPUs", "gpus"])
    nodes_w = metrics["node_power_mean_w"] * 4
    assert rows["all GPUs", "gpus"] + rows["all GPUs", "node"] == pytest.approx(nodes_w / metrics["tokens_per_s"])


def test_a_run_without_tokens_has_no_energy_per_token() -> None:
    assert energy_figure(RunView(measured())).missing


# steps


def test_steps_of_a_measured_run_are_drawn_without_the_one_that_warms_up() -> None:
    steps = [(0.0, 9.0), *((9.0 + at, 10.0 + at) for at in range(20))]
    figure = steps_figure(with_steps(measured(), steps))
    assert figure is not None
    assert figure.columns["mean"].values == pytest.approx([1.0] * 20)
    assert "the longest is step 0 with 9.000 s" in figure.message
    assert "not drawn" in figure.message


def test_very_many_steps_share_points_between_the_shortest_and_the_longest() -> None:
    steps = [(float(at), at + (1.5 if at == 700 else 1.0)) for at in range(5000)]
    figure = steps_figure(with_steps(measured(), steps))
    assert figure is not None
    assert len(figure.columns["high"].values) == 600
    assert max(figure.columns["high"].values) == pytest.approx(1.5)
    assert steps_figure(RunView(measured())) is None
