import re

import pytest

from charllm.analysis.advice import Effect, best_changes
from charllm.catalog.resolve import resolve_run
from charllm.report.run import render_memory, render_run
from charllm.report.time import BAR_WIDTH, render_gains, render_links, render_stages, render_waterfall
from charllm.simulate.predict import simulate
from charllm.timeline.step_time import time_at_highest_clock
from charllm.units import GIB
from charllm.workload.step import build_step

RUN = resolve_run(
    {
        "model": "mixtral-8x7b",
        "cluster": "h200x32",
        "parallelism": {"tp": 2, "pp": 2, "ep": 4, "overlap": ["dp"]},
        "training": {"recompute": "full"},
    }
)


def test_the_report_shows_weights_memory_arithmetic_and_traffic() -> None:
    text = render_run(build_step(RUN), simulate(RUN))
    for part in (
        "Parameters",
        "expert fc1",
        "Memory per stage",
        ", worst)",
        "Matrix FLOPs",
        "Communication traffic",
        "over NICs",
    ):
        assert part in text


def test_long_pipelines_show_their_ends() -> None:
    deep = resolve_run({"model": "gpt3-175b", "cluster": "h200x32", "parallelism": {"pp": 32}})
    text = render_memory(build_step(deep), simulate(deep))
    assert "20 stages between not shown" in text
    assert len(text.splitlines()) == 3 + 12 + 1


# time


def test_a_report_begins_with_the_answers_and_ends_with_what_would_help() -> None:
    step, result = build_step(RUN), simulate(RUN)
    timed = time_at_highest_clock(step)
    text = render_run(step, result, timed, best_changes(RUN, timed.step_time_s), ["because of this"])
    parts = [
        "mixtral-8x7b on h200x32",
        "conditions:",
        "Step time  ",
        "Power  ",
        "Temperature  ",
        "Clock  ",
        "Memory  ",
        "Bottleneck",
        "Best changes",
        "Explanation: because of this",
        "Breakdown of the step time (mean",
        "Breakdown of the step time by pipeline stage",
        "Communication by axis",
        "GPUs by slot",
        "Memory per stage",
        "Communication traffic",
    ]
    places = [text.index(part) for part in [*parts, "Best single changes"]]
    assert places == sorted(places)


def test_a_report_without_times_shows_none() -> None:
    tight = resolve_run({"model": "gpt3-175b", "cluster": "h200x32", "parallelism": {"pp": 32}})
    text = render_run(build_step(tight), simulate(tight))
    assert "Memory per stage" in text
    assert "conditions:" in text
    assert not any(word in text for word in ("Step time", "Breakdown", "Best single"))


def test_the_waterfall_has_a_bar_for_each_label_that_takes_time() -> None:
    text = render_waterfall({"compute": 6.0, "recompute": 0.0, "tp_exposed": 3.0, "bubble": 0.999, "overhead": 0.001})
    rows = text.splitlines()[3:]
    assert [row.split("  ")[0].strip() for row in rows] == ["compute", "tp exposed", "bubble", "overhead", "step"]
    bars = [row.count("#") for row in rows]
    assert bars == [24, 12, 4, 1, 0]
    ends = [row.rfind("#") for row in rows[:-1]]
    assert rows[1].index("#") == ends[0] + 1
    assert max(ends) - rows[0].index("#") < BAR_WIDTH
    assert "60.0 %" in rows[0]
    assert "100.0 %" in rows[-1]


def test_the_table_of_stages_adds_up_to_the_step() -> None:
    timed = time_at_highest_clock(build_step(RUN))
    rows = render_stages(RUN, timed).splitlines()[3:]
    assert len(rows) == RUN.parallelism.pp
    for row in rows:
        shares = [float(share) for share in re.findall(r"([\d.]+) %", row)]
        assert sum(shares) == pytest.approx(100, abs=0.5)


def test_links_are_told_by_axis_with_their_messages() -> None:
    result = simulate(RUN)
    text = render_links(build_step(RUN), result)
    axes = [row.split()[0] for row in text.splitlines()[3:]]
    assert axes == ["tp", "pp", "dp", "ep"]
    by_link = dict.fromkeys(("nvlink", "nic"), 0.0)
    for row in text.splitlines()[3:]:
        nvlink, _pcie, nic = (cell.strip() for cell in re.split(r"\s{2,}", row)[-3:])
        for link, cell in (("nvlink", nvlink), ("nic", nic)):
            by_link[link] += 0.0 if cell == "-" else float(cell.rstrip(" %"))
    for link, percent in by_link.items():
        assert percent == pytest.approx(100 * result.metrics["link_utilization_fraction"][link], abs=0.21)


def test_a_gpu_alone_uses_no_links() -> None:
    alone = resolve_run({"model": "llama3-8b", "cluster": "h200x1", "training": {"lora_rank": 8}})
    assert "single GPU" in render_links(build_step(alone), simulate(alone, ignore_memory=True))


def test_gains_are_listed_or_said_to_be_none() -> None:
    text = render_gains([Effect("--mbs 2", 9.0, 0.111, 70 * GIB), Effect("--sp", 10.0, 0.001, 64.25 * GIB)])
    assert [line.split() for line in text.splitlines()[3:]] == [
        ["--mbs", "2", "9.00", "+11.1", "%", "70.00"],
        ["--sp", "10.00", "+0.1", "%", "64.25"],
    ]
    assert "no change that was tried" in render_gains([])
