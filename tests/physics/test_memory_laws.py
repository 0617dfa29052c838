"""Laws that memory obeys whatever the run."""

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.spec.request import merge
from charllm.spec.run import RunSpec
from charllm.workload.memory import StageMemory, rank_memories
from charllm.workload.step import build_step
from charllm.workload.sync import shards_weights
from tests.random_specs.strategies import sensible_requests

EXAMPLES = settings(max_examples=150)
FEWER = settings(max_examples=60)


def resolve(request: dict[str, Any], **training: Any) -> RunSpec:
    try:
        return resolve_run(merge(request, {"training": training}) if training else request)
    except SpecError:
        assume(False)
        raise


def allocated(run: RunSpec) -> list[float]:
    return [memory.allocated_bytes for memory in rank_memories(build_step(run))]


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
    none, full = (rank_memories(build_step(resolve(request, recompute=kind))) for kind in ("none", "full"))
    for before, after in zip(none, full, strict=True):
        assert after.activations <= before.activations * (1 + 1e-12)


@EXAMPLES
@given(sensible_requests())
def test_adapters_never_need_more_state(request: dict[str, Any]) -> None:
    trained, lora = (rank_memories(build_step(resolve(request, lora_rank=rank))) for rank in (0, 8))
    for before, after in zip(trained, lora, strict=True):
        assume(before.optimizer > 0)
        assert after.optimizer <= before.optimizer


@EXAMPLES
@given(sensible_requests(), st.integers(0, 2))
def test_sharding_more_never_holds_more_state(request: dict[str, Any], zero: int) -> None:
    def states(stage: int) -> list[float]:
        run = resolve(merge(request, {"parallelism": {"zero": stage, "shard_size": 0}}))
        return [memory.weights + memory.gradients + memory.optimizer for memory in rank_memories(build_step(run))]

    assert all(after <= before * (1 + 1e-12) for before, after in zip(states(zero), states(zero + 1), strict=True))


@EXAMPLES
@given(sensible_requests())
def test_a_larger_gpu_changes_only_the_cache(request: dict[str, Any]) -> None:
    roomy = merge(request, {"cluster": {"node": {"gpu": {"memory_gib": 5_000}}}})
    assert allocated(resolve(request)) == allocated(resolve(roomy))


def memories(request: dict[str, Any], **training: Any) -> list[StageMemory]:
    return rank_memories(build_step(resolve(request, **training)))


@FEWER
@given(sensible_requests())
def test_what_is_allocated_is_reserved_and_what_is_reserved_is_on_the_device(request: dict[str, Any]) -> None:
    for memory in memories(request):
        assert 0 < memory.allocated_bytes <= memory.reserved_bytes <= memory.total_bytes
        assert memory.allocated_bytes <= memory.need_bytes <= memory.total_bytes * (1 + 1e-12)
        assert all(size >= 0 for size in memory.by_kind().values())


@FEWER
@given(sensible_requests(), st.sampled_from(["optimizer_offload_fraction", "activation_offload_fraction"]))
def test_offloading_never_needs_more_of_the_gpu(request: dict[str, Any], field: str) -> None:
    none, half, everything = (memories(request, **{field: fraction}) for fraction in (0.0, 0.5, 1.0))
    for before, middle, after in zip(none, half, everything, strict=True):
        assert after.allocated_bytes <= middle.allocated_bytes * (1 + 1e-12)
        assert middle.allocated_bytes <= before.allocated_bytes * (1 + 1e-12)
        assert after.total_bytes <= before.total_bytes * (1 + 1e-12)


NARROWER = [
    ("reduce_precision", "fp32", "bf16"),
    ("reduce_precision", "bf16", "fp8"),
    ("first_moment_precision", "fp32", "16bit"),
    ("second_moment_precision", "16bit", "8bit"),
    ("main_weight_precision", "fp32", "16bit"),
    ("main_weight_precision", "16bit", "none"),
    ("main_gradient_precision", "fp32", "16bit"),
    ("narrow_weights", False, True),
    ("narrow_activation_input", False, True),
]


@FEWER
@given(sensible_requests(), st.sampled_from(NARROWER))
def test_a_narrower_format_never_keeps_more(request: dict[str, Any], change: tuple[str, Any, Any]) -> None:
    field, wide, narrow = change
    # An update in fp32 copies gradients that are narrower, so that narrow ones may need more for a moment.
    kinds = ("weights", "gradients", "optimizer", "activations")
    # Weights cast for each use have no copy that could be saved.
    assume(field != "narrow_weights" or resolve(request).framework.cast_weights != "each-use")
    for before, after in zip(memories(request, **{field: wide}), memories(request, **{field: narrow}), strict=True):
        for kind in kinds:
            assert getattr(after, kind) <= getattr(before, kind) * (1 + 1e-12)


@FEWER
@given(sensible_requests(), st.sampled_from([1, 2, 4]))
def test_more_tensor_parallelism_never_holds_more_weights(request: dict[str, Any], tp: int) -> None:
    degrees = {name: value for name, value in request["parallelism"].items() if name not in ("dp", "sp", "etp", "tp")}

    def weights(degree: int) -> list[float]:
        narrower = {**request, "parallelism": {**degrees, "tp": degree, "zero": degrees.get("zero", 1)}}
        # Weights that data-parallel ranks share are cut over all ranks with any tp, of which norms have a copy on each.
        assume(not shards_weights(resolve(narrower, global_batch_size=4096)))
        return [memory.weights for memory in memories(narrower, global_batch_size=4096)]

    assert all(after <= before * (1 + 1e-12) for before, after in zip(weights(tp), weights(2 * tp), strict=True))
