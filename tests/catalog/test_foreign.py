"""What becomes of a reading of a foreign file under what the user asks for."""

from typing import Any

import pytest

from charllm.catalog.foreign import complete_request
from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.spec.readers.reading import Reading, Setting
from charllm.spec.request import merge

MODEL = {"layers": 8, "hidden": 512, "heads": 8, "ffn": 2048, "vocab": 1024}
REQUEST: dict[str, Any] = {
    "model": MODEL,
    "training": {"micro_batch_size": 2, "global_batch_size": 256, "seq_length": 512},
}


def complete(reading: Reading, cluster: Any = "h100x8", **changes: Any) -> dict[str, Any]:
    return complete_request(reading, merge(reading.request, {"cluster": cluster, **changes}))


def test_nodes_of_the_file_size_a_single_node_cluster() -> None:
    request = complete(Reading(REQUEST, nodes=16, gpus_per_node=8))
    run = resolve_run(request)
    assert (run.cluster.nodes, run.cluster.fabric.name) == (16, "ib-8x400g")
    assert "cluster.nodes is 16" in run.notes[0]


def test_nodes_are_counted_in_gpus() -> None:
    assert resolve_run(complete(Reading(REQUEST, nodes=4, gpus_per_node=8), "h100x4")).cluster.nodes == 8


@pytest.mark.parametrize("cluster", [{"base": "h100-superpod", "nodes": 2}, "charllm-ppt-h200", "h100x1"])
def test_a_cluster_that_the_user_sized_stays(cluster: Any) -> None:
    request = complete(Reading(REQUEST, nodes=16, gpus_per_node=8), cluster)
    assert request["cluster"] == cluster
    assert "the file starts 16 x 8 = 128 GPUs" in request["notes"][0]


def test_degrees_that_do_not_divide_the_gpus_are_refused() -> None:
    with pytest.raises(SpecError, match=r"tp x cp x pp = 3.*a divisor of 16 GPUs"):
        complete(Reading(REQUEST, nodes=2, gpus_per_node=8), parallelism={"pp": 3})


def test_a_batch_in_microbatches_follows_the_replicas() -> None:
    reading = Reading({"model": MODEL, "training": {"micro_batch_size": 2}}, microbatches=3)
    request = complete(reading, parallelism={"tp": 2})
    assert request["training"]["global_batch_size"] == 2 * 3 * 4


def test_what_is_not_modelled_is_refused_by_flag_and_line() -> None:
    reading = Reading(
        REQUEST, unmodelled=(Setting("--optimizer-cpu-offload", "--optimizer-cpu-offload", 7, "offloading"),)
    )
    with pytest.raises(SpecError, match=r"--optimizer-cpu-offload \(line 7\).*--allow-unmodelled") as caught:
        complete(reading)
    assert caught.value.exit_code == 2
    allowed = complete_request(reading, merge(REQUEST, {"cluster": "h100x8"}), allow_unmodelled=True)
    assert allowed["notes"] == ["not modelled, left out: --optimizer-cpu-offload (line 7): offloading"]


def test_a_missing_field_is_refused_unless_the_user_gives_it() -> None:
    reading = Reading({"model": {"layers": 2}}, missing={"model.vocab": "--set model.vocab=N"})
    with pytest.raises(SpecError, match=r"model\.vocab: got nothing; expected --set model\.vocab=N"):
        complete(reading)
    assert complete(reading, model={"vocab": 9})["model"]["vocab"] == 9
    assert complete(reading, model="gpt3-175b")["model"] == "gpt3-175b"


def test_all_that_is_missing_is_asked_for_in_one_message() -> None:
    reading = Reading(
        {}, missing={"model": "--model NAME", "parallelism.tp": "--tp N", "training.seq_length": "--seq N"}
    )
    with pytest.raises(SpecError, match=r"model, training\.seq_length: got nothing; expected --model NAME; --seq N$"):
        complete(reading, parallelism={"tp": 2})


def test_warnings_of_a_reading_reach_the_run() -> None:
    reading = Reading(REQUEST, not_understood=(Setting("--turbo", "--turbo", 3),), notes=("a note",))
    assert resolve_run(complete(reading)).notes == ("not understood and not used: --turbo (line 3)", "a note")
