"""A stored run as text."""

from charllm.report.stored import render_stored
from charllm.result.metrics import fill_metrics
from charllm.result.result import RunResult


def measured(nodes: list[dict[str, float]]) -> str:
    return render_stored(RunResult("measured", {"command": ["true"]}, fill_metrics({}), [], list(nodes)))


def test_a_measured_node_shows_what_was_read_of_its_host() -> None:
    shown = measured([{"node": 0, "power_mean_w": 5213.0, "cpu_load_fraction": 0.125, "fan_mean_hz": 90.0}])
    heading, _, row = shown.splitlines()[-3:]
    assert heading.split() == ["node", "W", "CPU", "load", "fan", "rpm"]
    assert row.split() == ["0", "5213", "12.5", "%", "5400"]


def test_a_node_of_which_nothing_was_read_has_no_table() -> None:
    assert "Nodes" not in measured([{"node": 0}])
