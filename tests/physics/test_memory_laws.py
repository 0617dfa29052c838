"""Laws that memory obeys whatever the run."""

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.spec.request import merge
from charllm.spec.run import RunSpec
from charllm.workload.memory import stage_memories
from charllm.workload.step import build_step
from tests.random_specs.strategies import sensible_requests

EXAMPLES = settings(max_examples=150)


def resolve(request: dict[str, Any], **training: Any) -> RunSpec:
    try:
        return resolve_run(merge(request, {"training": training}) if training else request)
    except SpecError:
        assume(False)
        raise


def allocated(run: RunSpec) -> list[float]:
    return [memory.allocated_bytes for memory in stage_memories(build_step(run))]


@EXAMPLES
@given(sensible_requests())
def test_a_larger_microbatch_never_needs_less(request: dict[str, Any]) -> None:
    # With all microbatches in flight (GPipe), finer ones still hold more of the rest when the last gradients appear.
    assume(request["parallelism"].get("schedule") != "gpipe")
    small, large = (allocated(resolve(request, micro_batch_size=size, global_batch_size=4096)) for size in (1, 2))
    assert all(first <= second * (1 + 1e-12) for first, second in zip(small, large, strict=True))


@EXAMPLES
@given(sensible_requests())
def test_full_recomputation_never_keeps_more(request: dict[str, Any]) -> None:
    none, full = (stage_memories(build_step(resolve(request, recompute=kind))) for kind in ("none", "full"))
    for before, after in zip(none, full, strict=True):
        assert after.activations <= before.activations * (1 + 1e-12)


@EXAMPLES
@given(sensible_requests())
def test_adapters_never_need_more_state(request: dict[str, Any]) -> None:
    trained, lora = (stage_memories(build_step(resolve(request, lora_rank=rank))) for rank in (0, 8))
    for before, after in zip(trained, lora, strict=True):
        assume(before.optimizer > 0)
        assert after.optimizer <= before.optimizer


@EXAMPLES
@given(sensible_requests(), st.integers(0, 2))
def test_sharding_more_never_holds_more_state(request: dict[str, Any], zero: int) -> None:
    def states(stage: int) -> list[float]:
        run = resolve(merge(request, {"parallelism": {"zero": stage, "shard_size": 0}}))
        return [memory.weights + memory.gradients + memory.optimizer for memory in stage_memories(build_step(run))]

    assert all(after <= before * (1 + 1e-12) for before, after in zip(states(zero), states(zero + 1), strict=True))


@EXAMPLES
@given(sensible_requests())
def test_a_larger_gpu_changes_only_the_cache(request: dict[str, Any]) -> None:
    roomy = merge(request, {"cluster": {"node": {"gpu": {"memory_gib": 10_000}}}})
    assert allocated(resolve(request)) == allocated(resolve(roomy))
