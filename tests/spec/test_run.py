from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.spec.request import merge, parse_settings
from charllm.spec.run import idle_requests

DENSE = {
    "model": "gpt3-175b",
    "cluster": "charllm-ppt-h200",
    "parallelism": {"tp": 8, "pp": 4},
    "training": {"global_batch_size": 128},
}
SPARSE = {"model": "mixtral-8x7b", "cluster": "charllm-ppt-h200", "parallelism": {"ep": 8}}


def changed(request: dict[str, Any], *settings: str) -> dict[str, Any]:
    merged: dict[str, Any] = merge(request, parse_settings(settings))
    return merged


@pytest.mark.parametrize(
    ("request_", "setting", "field", "hint"),
    [
        (DENSE, "parallelism.dp=2", "parallelism", "32 ranks"),
        (DENSE, "parallelism.tp=3", "parallelism", "divisor of the 32 GPUs"),
        (DENSE, "model.layers=95", "parallelism.pp", "--layers-per-stage"),
        (DENSE, "parallelism.layers_per_stage=[24,24,24,23]", "parallelism.layers_per_stage", "96"),
        (DENSE, "parallelism.layers_per_stage=[48,48]", "parallelism.layers_per_stage", "4, one for each stage"),
        (DENSE, "model.heads=12", "parallelism.tp", "12 heads"),
        (DENSE, "model.kv_heads=3", "parallelism.tp", "3 key-value heads"),
        (DENSE, "model.ffn=49153", "parallelism.tp", "divisor of ffn"),
        (DENSE, "training.global_batch_size=127.5", "training.global_batch_size", "whole number"),
        (DENSE, "training.micro_batch_size=3", "training.global_batch_size", "e.g. 126 or 129"),
        (DENSE, "training.seq_length=2047", "training.seq_length", "sequence parallelism"),
        (DENSE, "training.precision=nvfp4", "training.precision", "bf16, fp16, fp8, mxfp8, fp32 on h200"),
        (DENSE, "parallelism.ep=2", "parallelism.ep", "no experts"),
        (DENSE, "training.capacity_factor=1.0", "training.capacity_factor", "no experts"),
        (DENSE, "training.recompute_layers=2", "training.recompute_layers", "recompute full"),
        (DENSE, "training.recompute_modules=['mlp']", "training.recompute_modules", "recompute selective"),
        (DENSE, "parallelism.shard_size=3", "parallelism.shard_size", "divisor"),
        (DENSE, "parallelism.regather_size=8", "parallelism.regather_size", "0 unless zero is 3"),
        (changed(DENSE, "parallelism.zero=3"), "parallelism.regather_size=3", "parallelism.regather_size", "a divisor"),
        (DENSE, "parallelism.vpp=5", "parallelism.pp", "--layers-per-stage 5x16,4x4"),
        (DENSE, "conditions.power_cap_w=150", "conditions.power_cap_w", "200 to 700 W"),
        (DENSE, "conditions.clock_cap_mhz=3000", "conditions.clock_cap_mhz", "345 to 1980"),
        (SPARSE, "parallelism.ep=3", "parallelism.ep", "8 experts"),
        (SPARSE, "parallelism.etp=3", "parallelism.etp", "expert_ffn"),
        (SPARSE, "parallelism.etp=8", "parallelism.ep", "divisor of tp x cp x dp = 32"),
        (changed(SPARSE, "training.capacity_factor=1"), "training.routing_skew=2", "training.routing_skew", "capacity"),
    ],
)
def test_contradictions_name_the_field_and_what_is_possible(
    request_: dict[str, Any], setting: str, field: str, hint: str
) -> None:
    with pytest.raises(SpecError) as caught:
        resolve_run(changed(request_, setting))
    assert caught.value.field == field
    assert hint in str(caught.value)


def test_context_parallelism_needs_sequences_that_divide() -> None:
    request = changed({**DENSE, "parallelism": {"cp": 8}}, "training.seq_length=2040")
    with pytest.raises(SpecError, match="multiple of 16 with cp 8"):
        resolve_run(request)
    with pytest.raises(SpecError, match="divisor of heads / tp"):
        resolve_run(changed({**DENSE, "parallelism": {"cp": 32, "cp_kind": "all-to-all"}}, "model.heads=48"))


def test_interleaving_needs_whole_rounds_of_microbatches() -> None:
    with pytest.raises(SpecError, match="multiple of pp = 4 microbatches"):
        resolve_run(changed(DENSE, "parallelism.vpp=2", "training.global_batch_size=6"))


def test_a_run_knows_its_microbatches_and_tokens() -> None:
    run = resolve_run(changed(DENSE, "training.micro_batch_size=2"))
    assert (run.microbatches, run.tokens_per_step) == (64, 128 * 2048)


@pytest.mark.parametrize(
    ("request_", "setting", "words"),
    [
        (DENSE, "parallelism.overlap=['dp']", "dp is 1"),
        (DENSE, "parallelism.overlap=['cp']", "cp is 1"),
        (DENSE, "parallelism.overlap=['pp']", "1f1b stages wait for their sends"),
        (changed(DENSE, "parallelism.sp=false"), "parallelism.overlap=['tp']", "sequence parallelism"),
        (DENSE, "parallelism.zero=1", "dp x cp is 1"),
        (changed(DENSE, "training.recompute=full"), "training.recompute_layers=0", "recomputes nothing"),
    ],
)
def test_what_can_do_nothing_is_a_warning(request_: dict[str, Any], setting: str, words: str) -> None:
    (warning,) = idle_requests(resolve_run(changed(request_, setting)))
    assert words in warning


def test_a_spec_builds_itself_again() -> None:
    for request in (DENSE, SPARSE):
        run = resolve_run(request)
        assert resolve_run(run.as_table()) == run
