from dataclasses import replace

import pytest

from charllm.catalog.resolve import resolve_cluster
from charllm.report.page.heat import MOST_NODES, heat_figure, place_slots
from charllm.report.page.view import RunView
from tests.report.page.runs import measured, misfit, pipeline, rows_of, view


@pytest.mark.parametrize("cluster", ["h200x8", "charllm-ppt-mi250", "b200x8", "mi300x8", "gb200-nvl72", "a100x8"])
def test_every_slot_has_a_place_of_its_own_behind_the_slot_upstream(cluster: str) -> None:
    node = resolve_cluster(cluster).node
    places = place_slots(node)
    assert len(set(places)) == node.gpus
    for slot, (row, across) in enumerate(places):
        ahead = node.upstream_slots(slot)
        assert row == len(ahead)
        if ahead:
            assert places[ahead[0]] == (row - 1, across)


def test_slots_behind_the_same_slot_stand_side_by_side() -> None:
    node = replace(resolve_cluster("h200x8").node, upstream=(-1, 0, 0, 0, -1, -1, -1, -1))
    assert len(set(place_slots(node))) == 8


def test_cells_are_kelvins_above_the_inlet_of_their_node() -> None:
    run = view(cluster={"base": "charllm-ppt-h200", "cooling": {"inlet_c": [20, 24, 25, 30]}})
    figure = heat_figure(run)
    by_rank = {row["rank"]: row for row in run.result.gpus}
    for row in rows_of(figure):
        inlet_c = (20, 24, 25, 30)[int(row["node"])]
        assert row["value"] == pytest.approx(by_rank[row["rank"]]["temperature_mean_c"] - inlet_c)
    assert figure.options["inlet"] == "20.0 to 30.0 C by node"
    assert figure.options["airflow"] == "front to rear"


def test_the_ring_is_on_the_weak_gpu_that_paces_the_job() -> None:
    figure = heat_figure(view(conditions={"weak_gpus": [9], "weak_power_fraction": 1.5}))
    ringed = [row for row in rows_of(figure) if row["ring"]]
    assert [(row["node"], row["slot"]) for row in ringed] == [("1", 1)]
    assert "bottleneck GPU: node 1, slot 1" in figure.message


def test_gpus_that_pace_the_job_together_all_have_a_ring() -> None:
    figure = heat_figure(view(model="llama3-70b", parallelism={"tp": 4, "pp": 4}, training={"global_batch_size": 32}))
    ringed = [row for row in rows_of(figure) if row["ring"]]
    assert [row["slot"] for row in ringed] == [0, 3, 4, 6]
    assert "slots 0, 3, 4, 6, at" in figure.message


def test_where_all_gpus_are_alike_none_has_a_ring() -> None:
    figure = heat_figure(
        view(cluster="gb200-nvl72", parallelism={"tp": 4, "pp": 1}, training={"global_batch_size": 72})
    )
    assert not any(row["ring"] for row in rows_of(figure))
    assert figure.message.startswith("All 72 GPUs are equally warm")


def test_of_a_large_cluster_the_telling_nodes_are_shown() -> None:
    run = view(
        cluster={"base": "charllm-ppt-h200", "nodes": 32, "cooling": {"inlet_c": [25] * 20 + [35] + [25] * 10 + [15]}},
        training={"global_batch_size": 256},
    )
    figure = heat_figure(run)
    shown = {row["node"] for row in rows_of(figure)}
    assert len(shown) == MOST_NODES == figure.options["nodes_shown"]
    assert {"20", "31"} < shown
    assert "8 of 32 nodes" in figure.options["more"]


def test_gpus_of_a_package_are_named_as_such() -> None:
    run = view(model="llama3-30b", cluster="charllm-ppt-mi250", parallelism={"tp": 4, "pp": 4})
    packages = {row["slot"]: row["package"] for row in rows_of(heat_figure(run))}
    assert packages[0] == packages[1] != packages[2]


def test_a_measured_run_shows_degrees_on_its_hosts() -> None:
    figure = heat_figure(RunView(measured()))
    assert {row["node"] for row in rows_of(figure)} == {"host0", "host1"}
    assert (figure.options["unit"], figure.options["airflow"]) == ("C", "")
    assert "node host1, slot 1" in figure.message
    assert "charllm doctor" in figure.message


def test_a_measured_run_whose_machine_is_known_stands_as_the_machine_does() -> None:
    figure = heat_figure(RunView(replace(measured(nodes=1, gpus=8), spec=view(cluster="h200x8").result.spec)))
    assert {row["slot"]: row["row"] for row in rows_of(figure)} == {0: 1, 1: 0, 2: 0, 3: 1, 4: 1, 5: 0, 6: 1, 7: 0}


def test_a_run_without_temperatures_says_why() -> None:
    assert "does not fit" in heat_figure(misfit()).missing
    assert heat_figure(pipeline()).missing == ""
