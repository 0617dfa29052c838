"""Every table of a simulated result says what the object says that it was made from."""

from typing import Any

import numpy as np
import pytest

from charllm.analysis.advice import best_changes, list_changes, vary_preheating
from charllm.analysis.comment import ask_what_if
from charllm.analysis.explain import explain_run
from charllm.catalog.resolve import resolve_run
from charllm.gpu.sensor import HOPPER
from charllm.layout.links import group_links, nic_sharers
from charllm.network.collectives import algorithms_taken
from charllm.result.columns import TABLES, Columns, columns_of, rows_of
from charllm.result.description import CONDITION, DEFAULT, conditions, texts_of
from charllm.result.provenance import figure_sources
from charllm.simulate.predict import predict
from charllm.workload.liveness import in_flight
from charllm.workload.parameters import count_active_parameters, count_parameters
from charllm.workload.totals import count_traffic

RUN = resolve_run(
    {
        "model": "mixtral-8x7b",
        "cluster": "charllm-ppt-h200",
        "framework": "nemo",
        "parallelism": {"tp": 2, "pp": 4, "ep": 4, "overlap": ["dp"]},
        "training": {"global_batch_size": 64},
    }
)
FOUND = predict(RUN, ignore_memory=True)
RESULT = ask_what_if(FOUND)


def rows(name: str) -> list[dict[str, Any]]:
    found = RESULT.table(name)
    assert found is not None
    return rows_of(found)


def test_rows_and_columns_are_each_other_turned() -> None:
    columns: Columns = {"a": [1, 2], "b": ["x", None]}
    assert rows_of(columns) == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
    assert columns_of(("a", "b"), [(1, "x"), (2, None)]) == columns
    assert columns_of(("a",), []) == {"a": []}


def test_every_table_of_a_simulated_run_is_declared() -> None:
    assert set(RESULT.tables) <= set(TABLES)
    assert set(TABLES) - set(RESULT.tables) == {"predicted", "steps", "phases", "energy", "losses"}


def test_a_table_is_computed_once() -> None:
    assert RESULT.table("traffic") is RESULT.table("traffic")
    assert RESULT.table("no such table") is None


def test_memory_is_that_of_each_stage() -> None:
    for row, memory in zip(rows("memory"), FOUND.memory.stages, strict=True):
        assert row["stage"] == memory.stage
        assert {kind: row[f"{kind}_bytes"] for kind in memory.by_kind()} == memory.by_kind()
        assert row["allocated_bytes"] == memory.allocated_bytes
        assert row["reserved_bytes"] == memory.reserved_bytes
        held = [sum(flight) for flight in in_flight(RUN, memory.stage)]
        assert set(map(int, row["in_flight"].split("+"))) == set(held)


def test_traffic_is_that_of_each_axis_that_sends() -> None:
    traffic, algorithms = count_traffic(FOUND.step), algorithms_taken(FOUND.step)
    found = {row["axis"]: row for row in rows("traffic")}
    assert set(found) == {axis for axis, size in traffic.axis_bytes.items() if size}
    for axis, row in found.items():
        assert row["sent_bytes"] == traffic.axis_bytes[axis]
        assert {link: row[f"{link}_bytes"] for link in traffic.link_bytes} == traffic.axis_link_bytes[axis]
        assert row["messages"] == traffic.messages[axis]
        assert row["message_bytes_median"] == traffic.message_bytes_median[axis]
        assert row["algorithms"] == ", ".join(algorithms[axis])
        links = group_links(RUN, {"dp": "data"}.get(axis, axis))
        assert (row["ranks"], row["flows_per_nic"]) == (links.degree, links.ring_flows_per_nic)
        assert sum(int(hop.split()[0]) for hop in row["hops"].split(", ")) == sum(links.ring_hops.values())
    sharing = nic_sharers(RUN, "pp", ("tp", "data", "pp", "ep"))
    assert found["pp"]["nic_shared_with"] == ", ".join({"data": "dp"}.get(group, group) for group in sharing)


def test_parameters_add_up_to_those_of_the_model() -> None:
    assert sum(row["total"] for row in rows("parameters")) == pytest.approx(count_parameters(RUN.model))
    assert sum(row["active"] for row in rows("parameters")) == pytest.approx(count_active_parameters(RUN.model))


def test_the_breakdown_is_that_of_each_stage() -> None:
    assert FOUND.timed is not None
    for row in rows("breakdown"):
        assert row["seconds"] == FOUND.timed.stages[row["stage"]][row["label"]]


def test_the_description_is_that_of_the_spec() -> None:
    told = RESULT.table("description")
    assert told is not None
    assert texts_of(told, CONDITION) == conditions(RUN)
    assert tuple(texts_of(told, DEFAULT)) == RUN.defaults_taken != ()


def test_comments_are_those_of_the_analysis() -> None:
    assert [row["text"] for row in rows("explanations")] == explain_run(FOUND)
    told = [tuple(row.values()) for row in rows("best_changes")]
    assert told == [tuple(one) for one in best_changes(RUN, RESULT.metrics)]
    assert {row["change"] for row in rows("best_changes")} <= {row["change"] for row in rows("changes")}
    assert {row["change"] for row in rows("changes")} <= {tried.change.asked for tried in list_changes(RUN)}
    assert [tuple(row.values()) for row in rows("preheating")] == [tuple(one) for one in vary_preheating(RUN)]


def test_figures_have_the_sources_of_the_catalog() -> None:
    found = {f"{row['part']}.{row['figure']}": row for row in rows("figures")}
    sources = figure_sources(RUN)
    assert set(found) == set(sources)
    for field, row in found.items():
        assert sources[field] in (row["standing"], f"{row['standing']}: {row['source']}")


def test_the_sensor_is_read_at_its_refreshes_on_the_gpu_with_the_highest_power() -> None:
    read, signals = rows("sensor"), rows("signals")
    most = max(signals, key=lambda row: row["power_w"])
    assert {row["rank"] for row in read} == {most["rank"]}
    shown = {(row["rank"], row["t_s"]): row["power_w"] for row in signals}
    assert all(row["power_w"] == shown[row["rank"], row["t_s"]] for row in read)
    assert np.diff([row["t_s"] for row in read]) == pytest.approx(HOPPER.refresh_s)


def test_power_changes_are_those_of_the_power_of_all_gpus() -> None:
    cluster, changes = rows("cluster"), rows("power_changes")
    assert [row["t_s"] for row in changes] == [row["t_s"] for row in cluster]
    apart = round(1 / (cluster[1]["t_s"] - cluster[0]["t_s"]))
    for place, row in enumerate(changes):
        later = place + apart
        change = cluster[later]["gpu_power_w"] - cluster[place]["gpu_power_w"] if later < len(cluster) else None
        assert row["ramp_w_per_s"] == (None if change is None else pytest.approx(change, abs=1e-6))
    swing = np.array([row["swing_w"] for row in changes], dtype=float)
    assert np.sqrt(np.mean(swing**2)) < np.std([row["gpu_power_w"] for row in cluster])
    assert abs(swing.mean()) < 1e-6 * swing.max()
