"""The text of an examination: the verdict first, then what it rests on, then what could not be told."""

from charllm.analysis.doctor.examine import examine
from charllm.report.doctor import render_examination
from tests.analysis.doctor.runs import ONE_NODE, PIPELINE, simulated


def test_the_verdict_comes_first_and_the_rest_explains_it() -> None:
    text = render_examination(examine(simulated(PIPELINE, weak_gpus=[9], weak_power_fraction=1.4).result).as_table())
    assert text.startswith("GPU 1 of node 1 clocks")
    places = [text.index(title) for title in ("Findings", "Evidence", "What to do", "Not judged")]
    assert places == sorted(places)
    for words in ("silicon", "MHz", "simulation", "drain node 1 and run on 3 nodes"):
        assert words in text


def test_a_healthy_run_needs_no_tables() -> None:
    text = render_examination(examine(simulated(ONE_NODE).result).as_table())
    assert text.startswith("No weak GPU, link, node or host found")
    assert "Evidence" not in text
    assert "one node has no other" in text


def test_a_slow_adapter_is_told_by_the_ports_that_wait_for_it() -> None:
    found = examine(simulated(PIPELINE, slow_nic_nodes=[2], slow_nic_fraction=0.4).result)
    text = render_examination(found.as_table())
    assert "port cannot send of node 1" in text
    assert "port cannot send of node 3" in text
