"""Collectives and sends beside their links."""

from functools import cache
from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.simulate.one_clock import solve_step
from charllm.timeline.link_table import tabulate_links
from charllm.workload.step import build_step
from charllm.workload.totals import count_traffic


@cache
def links_of(model: str, cluster: str, **degrees: int) -> list[dict[str, Any]]:
    run = resolve_run(
        {"model": model, "cluster": cluster, "parallelism": degrees, "training": {"global_batch_size": 64}}
    )
    step = build_step(run)
    table = tabulate_links(step, solve_step(step))
    return [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]


def rows_of(rows: list[dict[str, Any]], axis: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["axis"] == axis]


def test_no_collective_is_faster_than_its_link() -> None:
    for row in links_of("llama3-70b", "charllm-ppt-h200", tp=4, pp=4):
        assert 0 < row["achieved_bytes_per_s"] <= row["peak_bytes_per_s"]
        assert row["achieved_bytes_per_s"] == pytest.approx(row["sent_bytes"] / row["seconds"])


def test_larger_messages_are_not_slower() -> None:
    for row in links_of("llama3-70b", "charllm-ppt-h200", tp=4, pp=4):
        assert row["achieved_bytes_per_s"] <= row["large_message_bytes_per_s"] * (1 + 1e-9)


def test_tensor_and_pipeline_together_cut_the_messages_that_share_a_nic() -> None:
    def send(tp: int) -> dict[str, Any]:
        rows = links_of("llama3-70b", "charllm-ppt-h200", tp=tp, pp=4)
        return next(row for row in rows_of(rows, "pp") if row["link"] == "nic")

    narrow, wide = send(8), send(2)
    assert narrow["message_bytes"] == pytest.approx(wide["message_bytes"] / 4)
    assert narrow["flows_per_nic"] == wide["flows_per_nic"] == 8
    assert narrow["achieved_bytes_per_s"] < wide["peak_bytes_per_s"] / 8


def test_each_link_is_the_one_the_ranks_are_joined_by() -> None:
    rows = links_of("llama3-70b", "charllm-ppt-h200", tp=4, pp=4)
    assert {row["link"] for row in rows_of(rows, "tp")} == {"nvlink"}
    assert {row["link"] for row in rows_of(rows, "pp")} == {"nic"}
    across = links_of("llama3-8b", "charllm-ppt-h200", tp=1)
    assert {row["link"] for row in rows_of(across, "dp")} == {"nic"}


def test_sent_bytes_add_up_to_the_traffic() -> None:
    run = resolve_run({"model": "llama3-8b", "cluster": "h200x8", "parallelism": {"tp": 2}})
    step = build_step(run)
    table = tabulate_links(step, solve_step(step))
    sent = sum(calls * size for calls, size in zip(table["calls"], table["sent_bytes"], strict=True))
    # Sizes are told apart to two digits.
    assert sent * run.parallelism.world == pytest.approx(sum(count_traffic(step).axis_bytes.values()), rel=0.02)


def test_one_gpu_sends_nothing() -> None:
    assert links_of("llama3-8b", "h200x1") == []
