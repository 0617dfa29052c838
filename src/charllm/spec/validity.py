"""Which degrees a model, a batch and a cluster allow: each rule once, for one run or for arrays of strategies.

`degrees` and `training` are a Parallelism and a Training, or objects with the same names that hold an array for each
field; a rule then gives an array. Only operators that numbers and arrays share are used, and degrees are at least 1.
"""

from collections.abc import Sequence
from typing import Any

from charllm.spec.model import Model
from charllm.spec.schedules import hiding_schedules

Rule = Any
"""True, False, or an array of them."""


def fills_cluster(degrees: Any, gpus: int) -> Rule:
    """One rank for each GPU."""
    return degrees.tp * degrees.cp * degrees.dp * degrees.pp == gpus


def sp_needs_tp(degrees: Any) -> Rule:
    """Sequence parallelism shares the sequence among tp ranks."""
    return (degrees.sp == False) | (degrees.tp > 1)  # noqa: E712


def vpp_needs_pp(degrees: Any) -> Rule:
    """Chunks of a stage need stages."""
    return (degrees.vpp == 1) | (degrees.pp > 1)


def interleaved_has_chunks(degrees: Any) -> Rule:
    """The interleaved schedule, and no other, has several chunks a stage."""
    return (degrees.schedule == "interleaved") == (degrees.vpp > 1)


def shard_divides_ranks(degrees: Any) -> Rule:
    """Copies are spread over equal parts of the replicas."""
    size = degrees.shard_size + (degrees.shard_size == 0)
    return (degrees.dp * degrees.cp) % size == 0


def shard_needs_zero(degrees: Any) -> Rule:
    """A shard size belongs to ZeRO."""
    return (degrees.shard_size == 0) | (degrees.zero > 0)


def heads_divide(model: Model, degrees: Any) -> Rule:
    """Each tp rank has as many heads."""
    return (model.heads % degrees.tp == 0) & (model.window_heads % degrees.tp == 0)


def kv_heads_divide(model: Model, degrees: Any) -> Rule:
    """Each tp rank has as many key-value heads, or a copy of one."""
    fewer = model.window_kv_heads or model.kv_heads
    return ((model.kv_heads % degrees.tp == 0) | (degrees.tp % model.kv_heads == 0)) & (
        (fewer % degrees.tp == 0) | (degrees.tp % fewer == 0)
    )


def layers_part(model: Model, degrees: Any) -> Rule:
    """Stages do not share: layers that use keys of others, or embeddings of their own, are in one stage."""
    return (degrees.pp == 1) | (model.shared_kv_layers + model.layer_input == 0)


def mamba_divides(model: Model, degrees: Any) -> Rule:
    """Each rank has as many Mamba heads, and as many groups or a copy of one."""
    groups = model.ssm_groups + (model.ssm_groups == 0)
    shares = (model.ssm_groups % degrees.tp == 0) | (degrees.tp % groups == 0)
    return (model.ssm_heads % (degrees.tp * degrees.cp) == 0) & shares


def width_divides(width: int, degrees: Any) -> Rule:
    """Each tp rank has as many columns."""
    return width % degrees.tp == 0


def context_pieces(degrees: Any) -> Any:
    """Return the pieces of a sequence: a ring gives each rank an early and a late one, so that their work is equal."""
    return degrees.cp * (1 + (degrees.cp > 1) * (degrees.cp_kind == "ring"))


def sequence_divides(degrees: Any, training: Any) -> Rule:
    """Each cp rank has as many tokens."""
    return training.seq_length % context_pieces(degrees) == 0


def sequence_shards_divide(degrees: Any, training: Any) -> Rule:
    """With sequence parallelism each tp rank has as many tokens, too."""
    return (degrees.sp == False) | ((training.seq_length // degrees.cp) % degrees.tp == 0)  # noqa: E712


def heads_exchange(model: Model, degrees: Any) -> Rule:
    """An all-to-all over cp hands whole heads on."""
    exchanged = (degrees.cp_kind == "all-to-all") & (degrees.cp > 1)
    return (exchanged == False) | ((model.heads // degrees.tp) % degrees.cp == 0)  # noqa: E712


def experts_divide(model: Model, degrees: Any) -> Rule:
    """Each ep rank has as many experts."""
    return model.experts % degrees.ep == 0


def expert_width_divides(model: Model, degrees: Any) -> Rule:
    """Each etp rank has as many columns of an expert."""
    return model.expert_ffn % degrees.etp == 0


def experts_fill_ranks(degrees: Any) -> Rule:
    """The ranks of a stage are whole groups of expert ranks."""
    return (degrees.tp * degrees.cp * degrees.dp) % (degrees.ep * degrees.etp) == 0


def batch_divides(degrees: Any, training: Any) -> Rule:
    """Each replica works through whole microbatches."""
    return training.global_batch_size % (training.micro_batch_size * degrees.dp) == 0


def rounds_are_whole(degrees: Any, training: Any) -> Rule:
    """The interleaved schedule works through whole rounds of pp microbatches."""
    microbatches = training.global_batch_size // (training.micro_batch_size * degrees.dp)
    return (degrees.schedule != "interleaved") | (microbatches % degrees.pp == 0)


def no_experts(degrees: Any) -> Rule:
    """A dense model has nothing to spread over expert ranks."""
    return (degrees.ep == 1) & (degrees.etp == 1)


def hideable(degrees: Any) -> dict[str, Rule]:
    """Return for each axis whether asking to overlap it can hide anything.

    A stage of plain 1F1B waits for its sends: Megatron-Core refuses to overlap them unless stages are interleaved
    (forward_backward_pipelining_without_interleaving); PyTorch's Schedule1F1B and DeepSpeed's PipelineEngine wait for
    each. Some schedules hide an axis anyway, and a ring over cp always hides under attention.
    """
    return {
        "tp": (degrees.tp > 1) & degrees.sp,
        "dp": degrees.dp * degrees.cp > 1,
        "pp": (degrees.pp > 1) & _none_of(degrees, ("1f1b", "forward-only", *hiding_schedules("pp"))),
        "ep": (degrees.ep > 1) & _none_of(degrees, ("forward-only", *hiding_schedules("ep"))),
        "cp": False,
    }


def _none_of(degrees: Any, schedules: Sequence[str]) -> Rule:
    found = degrees.schedule == degrees.schedule
    for schedule in schedules:
        found = found & (degrees.schedule != schedule)
    return found


def possible(model: Model, degrees: Any, training: Any, gpus: int) -> Rule:
    """Tell which strategies are runs, as far as degrees and batch decide."""
    rules = [
        fills_cluster(degrees, gpus),
        sp_needs_tp(degrees),
        vpp_needs_pp(degrees),
        interleaved_has_chunks(degrees),
        heads_divide(model, degrees),
        kv_heads_divide(model, degrees),
        layers_part(model, degrees),
        mamba_divides(model, degrees),
        *(width_divides(width, degrees) for width in (model.ffn, model.shared_ffn, model.hidden)),
        sequence_divides(degrees, training),
        sequence_shards_divide(degrees, training),
        heads_exchange(model, degrees),
        batch_divides(degrees, training),
        rounds_are_whole(degrees, training),
        experts_divide(model, degrees) & expert_width_divides(model, degrees) & experts_fill_ranks(degrees)
        if model.experts
        else no_experts(degrees),
    ]
    found = rules[0]
    for rule in rules[1:]:
        found = found & rule
    return found
