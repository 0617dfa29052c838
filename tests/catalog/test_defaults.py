from typing import Any

import pytest

from charllm.catalog.defaults import MAX_CHUNKS, default_chunks, split_layers
from charllm.catalog.resolve import resolve_run
from charllm.catalog.tables import entries
from charllm.spec.request import merge
from charllm.spec.run import RunSpec, idle_requests

REQUEST: dict[str, Any] = {"model": "llama3-70b", "cluster": "charllm-ppt-h200", "parallelism": {"tp": 4, "pp": 4}}


def run(framework: Any, **parts: dict[str, Any]) -> RunSpec:
    return resolve_run(merge({**REQUEST, "framework": framework}, parts))


def test_a_profile_supplies_what_a_request_leaves_open() -> None:
    found = run("nemo")
    assert (found.parallelism.vpp, found.parallelism.schedule) == (5, "interleaved")
    assert set(found.parallelism.overlap) == {"tp", "dp", "pp"}
    assert found.defaults_taken == ("vpp 5", "overlap tp,dp,pp")
    assert idle_requests(found) == ["defaults taken from profile nemo: vpp 5; overlap tp,dp,pp"]


def test_explicit_settings_win() -> None:
    found = run("nemo", parallelism={"vpp": 2, "overlap": []})
    assert (found.parallelism.vpp, found.parallelism.overlap, found.defaults_taken) == (2, (), ())
    assert run("nemo", parallelism={"schedule": "1f1b"}).parallelism.vpp == 1
    assert run("jax", training={"recompute": "none"}).training.recompute == "none"


def test_plain_megatron_supplies_nothing() -> None:
    found = run("megatron")
    assert (found.parallelism.vpp, found.parallelism.overlap, found.training.recompute) == (1, (), "none")
    assert found.defaults_taken == ()
    assert idle_requests(found) == []


def test_recomputation_and_dropped_tokens_are_the_profiles() -> None:
    assert run("jax").training.recompute == "full"
    assert run("fsdp").training.recompute == "none"  # least that fits is for published rows
    dropping = {"base": "megatron", "drops_tokens": True}
    request = {**REQUEST, "model": "mixtral-8x7b", "framework": dropping, "parallelism": {}}
    assert resolve_run(request).training.capacity_factor == 1.0
    assert resolve_run({**request, "training": {"capacity_factor": 1.5}}).training.capacity_factor == 1.5
    dropless = resolve_run({**request, "training": {"capacity_factor": None}})
    assert dropless.training.capacity_factor is None
    assert resolve_run(dropless.as_table()) == dropless


def test_a_resolved_run_takes_no_default_twice() -> None:
    for framework in entries("frameworks"):
        found = run(framework)
        again = resolve_run(found.as_table())
        assert again == found
        assert again.defaults_taken == ()


@pytest.mark.parametrize(("framework", "vpp", "hidden"), [("megatron", 2, True), ("megatron", 1, False),
                                                          ("nemo", 1, False), ("megatron-2020", 2, False)])  # fmt: skip
def test_sends_hide_by_default_between_interleaved_stages(framework: str, vpp: int, *, hidden: bool) -> None:
    found = run(framework, parallelism={"vpp": vpp})
    assert ("pp" in found.parallelism.overlap) == hidden


def test_nothing_overlaps_that_is_not_exchanged() -> None:
    alone = resolve_run({"model": "llama3-8b", "cluster": "h200x1", "framework": "nemo"})
    assert (alone.parallelism.overlap, alone.defaults_taken) == ((), ())


@pytest.mark.parametrize(("framework", "clips"), [("pytorch-eager", False), ("fsdp", True), ("megatron", True)])
def test_clipping_is_the_profiles_unless_given(framework: str, clips: bool) -> None:
    assert run(framework).training.clip_gradients is clips
    assert run(framework, training={"clip_gradients": not clips}).training.clip_gradients is not clips


def test_a_host_is_tuned_unless_its_node_says_otherwise() -> None:
    assert run("megatron").cluster.node.host_speed_fraction == 1.0
    slow = run("megatron", cluster={"node": {"host_speed_fraction": 0.5}})
    assert slow.cluster.node.host_speed_fraction == 0.5


@pytest.mark.parametrize(
    ("layers", "pp", "vpp"), [(80, 4, 5), (96, 8, 6), (96, 4, 8), (126, 8, 8), (61, 8, 1), (7, 7, 1)]
)
def test_default_chunks_are_equal_and_at_most_eight(layers: int, pp: int, vpp: int) -> None:
    found, split = default_chunks(layers, pp, 4 * pp)
    assert found == vpp <= MAX_CHUNKS
    assert not split or (len(split), sum(split)) == (pp * vpp, layers)


def test_chunks_need_whole_rounds_of_microbatches() -> None:
    assert default_chunks(80, 4, 9) == (1, ())
    assert default_chunks(80, 1, 8) == (1, ())


@pytest.mark.parametrize("layers", [9, 61, 62, 78, 80, 126])
@pytest.mark.parametrize("chunks", [1, 4, 8, 16])
def test_a_split_holds_all_layers(layers: int, chunks: int) -> None:
    split = split_layers(layers, chunks)
    assert (len(split), sum(split)) == (chunks, layers)
    assert min(split) >= 0


@pytest.mark.parametrize(
    ("layers", "vocab", "stages", "expected"),
    [(16, 131_072, 2, (11, 5)), (24, 50_257, 4, (7, 6, 7, 4)), (16, 1000, 4, (5, 4, 4, 3)), (8, 2_000_000, 2, (8, 0))],
)
def test_nanotron_cuts_stages_by_their_products(
    layers: int, vocab: int, stages: int, expected: tuple[int, ...]
) -> None:
    request = {
        "model": {"base": "llama3.2-1b", "layers": layers, "vocab": vocab, "hidden": 2048, "heads": 16, "kv_heads": 16,
                  "ffn": 8192, "head_dim": 128},
        "cluster": "h100x8", "framework": "nanotron", "parallelism": {"pp": stages},
    }  # fmt: skip
    assert resolve_run(request).parallelism.layers_per_stage == expected
    even = resolve_run({**request, "framework": "megatron"}).parallelism.layers_per_stage
    assert even == (layers // stages,) * stages
    given = {"pp": stages, "layers_per_stage": [layers // stages] * stages}
    assert resolve_run({**request, "parallelism": given}).parallelism.layers_per_stage == even
