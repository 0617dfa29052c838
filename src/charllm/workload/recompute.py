"""Which activations are thrown away after forward, and what runs again in backward to have them back.

Equation: kept = sum of the tensors that the policy does not drop; again = forward ops of the modules that it names.
Source: Korthikanti 2022 (selective and full), Megatron-Core's --recompute-modules, torchtitan's op-level policy.
Ignores: the state of random generators; recomputation that overlaps with communication.
"""

from typing import NamedTuple

from charllm.workload.cut import Cut
from charllm.workload.op import MATRIX_KINDS, Module, Op

LAST_PRODUCTS = ("fc2", "proj", "mamba out", "delta out", "lightning out", "latent up")
"""Products that may end a layer."""


class Replay(NamedTuple):
    """What recomputation makes of a layer: what is still kept, and the ops that run twice."""

    kept_bytes: float
    ops: tuple[Op, ...]


def replay(cut: Cut, modules: tuple[Module, ...], policy: str) -> Replay:
    """Apply a recompute policy (a key of POLICIES) to a layer."""
    return POLICIES[policy](cut, modules)


def policy_of(cut: Cut) -> str:
    """Return the recompute policy that the run's setting means in its framework."""
    training = cut.training
    if training.recompute == "selective" and not training.recompute_modules:
        return cut.framework.selective
    return "modules" if training.recompute == "selective" else training.recompute


def kept_bytes(modules: tuple[Module, ...]) -> float:
    """Add up what modules keep from forward to backward."""
    return sum(tensor.size_bytes for module in modules for tensor in module.kept)


def _nothing(_cut: Cut, modules: tuple[Module, ...]) -> Replay:
    return Replay(kept_bytes(modules), ())


def _full(cut: Cut, modules: tuple[Module, ...]) -> Replay:
    """Keep only the layer's input; run its forward again, as far as the framework does.

    No gradient needs what the last product and the addition after it give; PyTorch runs them only for a dropout mask
    (torch.utils.checkpoint, `set_checkpoint_early_stop`), XLA never.
    """
    layer_input = cut.shard_tokens * cut.model.hidden * cut.stream_bytes
    returned = sum(tensor.size_bytes for module in modules for tensor in module.kept if tensor.returned)
    ends_at_product = modules[-2].name in LAST_PRODUCTS
    needless = {"all": False, "saved": ends_at_product and not modules[-1].kept, "needed": ends_at_product}
    again = modules[:-2] if needless[cut.framework.full_recompute] else modules
    return Replay(layer_input + returned, tuple(op for module in again for op in module.forward))


def _modules(cut: Cut, modules: tuple[Module, ...]) -> Replay:
    """Drop what the named modules can give again (Megatron's --recompute-modules; core attention unless named)."""
    chosen = set(cut.training.recompute_modules or ("core_attn",))
    kept = sum(
        tensor.size_bytes
        for module in modules
        for tensor in module.kept
        if tensor.returned or chosen.isdisjoint(tensor.dropped_by)
    )
    ops = tuple(op for module in modules if not chosen.isdisjoint(module.recomputed_by) for op in module.forward)
    return Replay(kept, ops)


def _alternate_matmuls(cut: Cut, modules: tuple[Module, ...]) -> Replay:
    """Keep attention's output and every second product's (torchtitan's op-level policy); run the rest again.

    Counted in the order q k v, proj, gate up, down: the outputs of q, v, gate and down are kept, so that of qkv
    and fc1 a share runs again.
    """
    model = cut.model
    layer_input = cut.shard_tokens * model.hidden * cut.stream_bytes
    saved, ops = layer_input, []
    shares = {"qkv": _key_share(cut), "fc1": 0.5 if model.gated else 1.0, "fc2": 0.0, "core attention": 0.0}
    for module in modules:
        again = shares.get(module.name, 1.0)
        for op in module.forward:
            if op.kind in MATRIX_KINDS:
                if again < 1.0:
                    saved += op.written_bytes * (1.0 - again)
                if again > 0.0:
                    ops.append(op._replace(flop=op.flop * again, written_bytes=op.written_bytes * again))
            elif op.kind == "reduce_scatter":
                saved += op.message_bytes / cut.tp
            elif module.name != "core attention":
                ops.append(op)
    return Replay(saved, tuple(ops))


def _key_share(cut: Cut) -> float:
    return cut.kv_heads / (cut.heads + 2 * cut.kv_heads)


POLICIES = {"none": _nothing, "full": _full, "modules": _modules, "alternate_matmuls": _alternate_matmuls}
