from typing import Any

from charllm.catalog.resolve import resolve_run
from charllm.result.provenance import STANDINGS, describe_provenance, figure_sources, standing

REQUEST: dict[str, Any] = {"model": "llama3-8b", "cluster": "charllm-ppt-h200"}


def test_every_figure_has_one_standing() -> None:
    provenance = describe_provenance(resolve_run(REQUEST))
    listed = [field for fields in provenance["figures"].values() for field in fields]
    assert len(listed) == len(set(listed))
    assert set(provenance["figures"]) <= set(STANDINGS)
    assert "cluster.node.upstream" in provenance["figures"]["assumed"]


def test_what_the_user_changed_was_given() -> None:
    changed = resolve_run({**REQUEST, "cluster": {"base": "charllm-ppt-h200", "nodes": 2}})
    assert figure_sources(changed)["cluster.nodes"] == "given"
    assert figure_sources(resolve_run(REQUEST))["cluster.nodes"].startswith("published")


def test_a_model_of_ones_own_is_given() -> None:
    model = {"layers": 2, "hidden": 64, "ffn": 128, "heads": 4, "vocab": 10}
    sources = figure_sources(resolve_run({**REQUEST, "model": model}))
    assert sources["model.layers"] == "given"


def test_versions_and_catalog_are_recorded() -> None:
    provenance = describe_provenance(resolve_run(REQUEST))
    assert {"charllm", "python", "catalog", "seed"} <= set(provenance)


def test_the_first_word_of_a_source_is_its_standing() -> None:
    assert standing("datasheet: a page") == "datasheet"
    assert standing("my own guess") == "given"


def test_constants_of_a_board_say_where_they_come_from() -> None:
    measured, scaled = (
        figure_sources(resolve_run({"model": "llama3-8b", "cluster": cluster})) for cluster in ("h200x8", "mi300x8")
    )
    assert measured["cluster.node.gpu.power.flop_j"].startswith("measured")
    assert measured["cluster.node.gpu.heat.die_resistance_k_per_w"].startswith("measured")
    assert scaled["cluster.node.gpu.power.instruction_j"].startswith("assumed")


def test_a_constant_of_a_board_that_was_given_says_so() -> None:
    cluster = {"base": "h200x8", "node": {"base": "hgx-h200", "gpu": {"base": "h200", "power": {"flop_pj": 1.0}}}}
    sources = figure_sources(resolve_run({"model": "llama3-8b", "cluster": cluster}))
    assert sources["cluster.node.gpu.power.flop_j"] == "given"
    assert sources["cluster.node.gpu.power.cache_byte_j"].startswith("measured")
