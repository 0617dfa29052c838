from dataclasses import replace

import pytest

from charllm.analysis.advice import Effect
from charllm.report.page.run import run_page
from charllm.report.page.view import RunView
from charllm.result.columns import columns_of
from charllm.result.metrics import Metrics
from tests.report.page.runs import measured, misfit, pipeline


def test_the_answer_says_time_power_heat_waits_and_what_helps() -> None:
    tables = {
        "best_changes": lambda: columns_of(Effect._fields, [Effect("--overlap dp", 1.0, 0.25, 1e9)]),
        "explanations": lambda: {"text": ["the arithmetic."]},
    }
    run = RunView(replace(pipeline().result, tables={**pipeline().result.tables, **tables}))
    first, power, heat, waits, change, note = run_page(run).answer
    metrics = run.result.metrics
    machine = "4 nodes x 8 h200; ib-100g-per-node: 1 x 100 Gb/s per node"
    assert first.startswith(f"llama3-8b on {machine}, tp 2 x pp 2 x dp 8: {metrics['step_time_s']:.3f} s a step (")
    assert f"MFU {100 * metrics['mfu']:.1f} %" in first
    assert f"{metrics['power_mean_w']:.0f} W per GPU (peak" in power
    assert f"Hottest GPU {metrics['temperature_peak_c']:.1f} C" in heat
    assert "behind slot" in heat
    assert waits.startswith("Largest loss beside compute: exposed dp communication")
    assert change == "Best single change: --overlap dp (+25.0 % tokens/s)."
    assert note == "Explanation: the arithmetic."


def test_facts_are_at_most_six_and_lead_to_figures_of_the_page() -> None:
    for run in (pipeline(), misfit(), RunView(measured())):
        page = run_page(run)
        drawn = {figure.name for section in page.sections for figure in section.figures if not figure.missing}
        assert 0 < len(page.facts) <= 6
        assert {fact.link for fact in page.facts if fact.link} <= drawn


def test_a_fact_has_its_interval() -> None:
    step = run_page(pipeline()).facts[0]
    low, high = (float(word) for word in step.interval.removesuffix(" s").split(" to "))
    assert low < pipeline().result.metrics["step_time_s"] < high
    measured_step = run_page(RunView(measured(step_time_s=1.0))).facts[0]
    assert (measured_step.value, measured_step.interval) == ("1.000 s", "0.9000 to 1.100 s")


def test_names_of_figures_are_unique() -> None:
    names = [figure.name for section in run_page(pipeline()).sections for figure in section.figures]
    assert len(names) == len(set(names))


def test_a_run_that_does_not_fit_begins_with_its_memory_and_shows_nothing_empty() -> None:
    page = run_page(misfit())
    assert "does not fit" in page.answer[0]
    assert "with --recompute full it fits" in page.answer[1]
    assert page.sections[0].figures[0].name == "memory"
    assert not any(figure.missing for section in page.sections for figure in section.figures)
    assert page.warnings == []


def test_a_run_that_was_simulated_although_it_does_not_fit_says_so() -> None:
    metrics = Metrics({**pipeline().result.metrics, "fits": False})
    full = replace(pipeline().result, metrics=metrics, warnings=misfit().result.warnings)
    page = run_page(RunView(full))
    assert "s a step" in page.answer[0]
    assert page.answer[1].startswith("It does not fit in memory, which was ignored.")


def test_a_measured_run_shows_what_is_known_and_why_the_rest_is_not() -> None:
    page = run_page(RunView(measured()))
    assert page.title == "Measured run: torchrun train.py"
    assert page.answer[0] == "Measured run: step time not known, no steps were marked."
    assert page.warnings == ["breakdown_s: needs a profiler trace", "not measured in this run: MFU, fits in memory"]
    assert page.provenance == {"charllm": "0.1.0", "measurement": {"steps": 4}}
    drawn = [figure.name for section in page.sections for figure in section.figures if not figure.missing]
    assert {"heat", "throttled", "memory"} <= set(drawn)


def test_an_emulated_run_names_its_rank() -> None:
    provenance = {"measurement": {"rank": 3}}
    emulated = replace(measured(nodes=1, gpus=1), origin="emulated", spec=pipeline().result.spec, provenance=provenance)
    page = run_page(RunView(emulated))
    assert page.title == "One rank of llama3-8b on charllm-ppt-h200"
    assert page.answer[0].startswith("Rank 3 of llama3-8b on 4 nodes x 8 h200; ib-100g")
    assert "tp 2 x pp 2 x dp 8, emulated on one GPU" in page.answer[0]


@pytest.mark.parametrize("table", ["timeline", "signals", "breakdown", "memory"])
def test_a_table_that_cannot_be_read_leaves_the_other_figures(table: str) -> None:
    def broken() -> dict[str, list[float]]:
        raise OSError("gone")

    whole = pipeline().result
    page = run_page(RunView(replace(whole, tables={**whole.tables, table: broken})))
    drawn = {figure.name for section in page.sections for figure in section.figures if not figure.missing}
    assert {"seconds", "heat", "clock", "memory", "energy"} <= drawn
    assert f"table {table}: gone" in page.warnings
