"""A whole step: the layers of each stage, both ends of the model, and what happens once per step."""

from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from charllm.spec.model import MIXERS
from charllm.spec.run import RunSpec
from charllm.workload.cut import Cut, cut_run, in_16_bits
from charllm.workload.layer import LayerKind, layer, layer_kinds, mtp_kinds
from charllm.workload.op import Module, Op, collective
from charllm.workload.recompute import Replay, policy_of, replay
from charllm.workload.vocabulary import embedding, head, mtp_entry

PART_NAMES = {"M": "mamba layer", "*": "attention layer", "-": "feed-forward layer", "E": "expert layer"}
"""Letter of a hybrid's pattern: what its block is called."""


class Weights(NamedTuple):
    """Weight elements on one rank."""

    dense: float = 0.0
    expert: float = 0.0
    frozen: float = 0.0
    partial: float = 0.0
    """Of the dense ones, those whose gradients tp ranks add up."""

    @property
    def trained(self) -> float:
        """Elements that have a gradient."""
        return self.dense + self.expert

    @property
    def total(self) -> float:
        """All elements."""
        return self.dense + self.expert + self.frozen

    def plus(self, other: "Weights", times: float = 1.0) -> "Weights":
        """Add another count, `times` over."""
        return Weights(
            self.dense + times * other.dense,
            self.expert + times * other.expert,
            self.frozen + times * other.frozen,
            self.partial + times * other.partial,
        )


class Block(NamedTuple):
    """Equal parts of a chunk in a row: a layer several times, or one end of the model once."""

    name: str
    modules: tuple[Module, ...]
    repeats: int
    replay: Replay
    weights: Weights
    """Of one repeat."""
    narrow: bool
    """Whether its products run in the run's precision; embedding and head stay in 16 bits."""
    forward_high: float
    """Most bytes one pass through its modules holds; recomputation frees most of them at the end."""
    backward_high: float
    """Most bytes it holds going backward, after recomputation has brought back what it needs."""
    hole: float
    """Freed bytes beside them that nothing in its backward pass fits in."""
    is_layer: bool = True
    """Whether it is a layer, not one end of the model."""


def make_block(name: str, modules: tuple[Module, ...], repeats: int, replayed: Replay, *, narrow: bool) -> Block:
    """Count a block's weights and find its high-water marks, once for all that ask."""
    dense = expert = frozen = partial = level = forward_high = backward_high = 0.0
    for module in modules:
        if module.expert:
            expert += module.weights
        else:
            dense += module.weights
        frozen += module.frozen_weights
        partial += module.partial_weights
        for tensor in module.kept:
            level += tensor.size_bytes
        forward_high = max(forward_high, level + module.forward_scratch_bytes)
        backward_high = max(backward_high, level + module.backward_scratch_bytes)
    hole = sum(module.hole_bytes for module in modules)
    weights = Weights(dense, expert, frozen, partial)
    return Block(name, modules, repeats, replayed, weights, narrow, forward_high, backward_high, hole)


class Chunk(NamedTuple):
    """The blocks of one virtual stage, in forward order."""

    stage: int
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Step:
    """What the ranks of each stage execute in one step."""

    run: RunSpec
    cut: Cut
    chunks: tuple[Chunk, ...]
    """In model order: chunk i belongs to stage i modulo pp."""

    @cached_property
    def boundary_ops(self) -> tuple[Op, ...]:
        """Sending one microbatch's activations (or their gradients) to the neighbouring stage."""
        parts = self.cut.tp if self._scatters else 1
        return collective("send", "pp", self._boundary_bytes / parts, self.run.parallelism.pp)

    @cached_property
    def boundary_gathers(self) -> tuple[Op, ...]:
        """Gathering on a stage what tp ranks of its neighbour sent in parts.

        Source: Megatron-LM's --scatter-gather-tensors-in-pipeline (Narayanan 2021, section 4.1), DeepSpeed's
        PartitionedTensor. Ignores: that DeepSpeed gathers outputs once more before their backward pass.
        """
        return collective("all_gather", "tp", self._boundary_bytes, self.cut.tp) if self._scatters else ()

    @property
    def _boundary_bytes(self) -> float:
        return self.cut.shard_tokens * self.run.model.hidden * self.cut.stream_bytes

    @property
    def _scatters(self) -> bool:
        return self.run.framework.scattered_sends and not self.cut.sp

    def stage_chunks(self, stage: int) -> tuple[Chunk, ...]:
        """List the chunks of one stage, in model order."""
        return self.chunks[stage :: self.run.parallelism.pp]

    def stage_blocks(self, stage: int) -> tuple[Block, ...]:
        """List the blocks of one stage."""
        return tuple(block for chunk in self.stage_chunks(stage) for block in chunk.blocks)


class ModelBlocks(NamedTuple):
    """The distinct blocks of a model on one rank, before they are put on stages."""

    cut: Cut
    kinds: tuple[LayerKind, ...]
    """Of each layer, in order."""
    layers: "dict[LayerKind, LayerPair]"
    opening: tuple[Block, ...]
    closing: tuple[Block, ...]


def model_blocks(run: RunSpec) -> ModelBlocks:
    """Describe one rank's share of each distinct layer and of both ends of the model."""
    cut, kinds = cut_run(run), model_kinds(run)
    predicting = mtp_kinds(run.model) if run.model.mtp_layers else ()
    layers = {kind: _layer_pair(cut, kind) for kind in dict.fromkeys((*kinds, *predicting))}
    return ModelBlocks(cut, kinds, layers, *_ends(run, cut, layers))


def build_step(run: RunSpec, blocks: ModelBlocks | None = None) -> Step:
    """Describe what every stage of a run executes; `blocks` are those of a run with the same share, where known."""
    cut, kinds, layers, opening, closing = blocks or model_blocks(run)
    chunks: list[Chunk] = []
    seen: dict[object, tuple[Block, ...]] = {}
    split = run.parallelism.layers_per_stage
    start = 0
    for index, count in enumerate(split):
        first, last = index == 0, index == len(split) - 1
        owned = kinds[start : start + count]
        start += count
        key = (owned, first, last)
        if key not in seen:
            middle = _layer_blocks(run, owned, layers)
            seen[key] = (*(opening if first else ()), *middle, *(closing if last else ()))
        chunks.append(Chunk(index % run.parallelism.pp, seen[key]))
    return Step(run, cut, tuple(chunks))


def model_kinds(run: RunSpec) -> tuple[LayerKind, ...]:
    """List the kind of each layer; in a narrow format the last ones may keep their products in 16 bits."""
    return _widened(layer_kinds(run.model), run.training.wide_layers if cut_run(run).cast else 0)


def _widened(kinds: tuple[LayerKind, ...], count: int) -> tuple[LayerKind, ...]:
    """Let the last layers keep their products in 16 bits."""
    narrow = max(0, len(kinds) - count)
    return (*kinds[:narrow], *(kind._replace(wide=True) for kind in kinds[narrow:]))


class LayerPair(NamedTuple):
    """One layer as it is, and as recomputation makes it."""

    plain: Block
    recomputed: Block


def _layer_pair(cut: Cut, kind: LayerKind) -> LayerPair:
    name = PART_NAMES.get(kind.part) or ("sparse layer" if kind.sparse else "dense layer")
    name += " windowed" if kind.window else f" {MIXERS[kind.mixer]}" if kind.mixer else ""
    cut = in_16_bits(cut) if kind.wide else cut
    modules = layer(cut, kind) if cut.trains else forward_alone(cut, layer(cut, kind))
    plain = make_block(name, modules, 1, replay(cut, modules, "none"), narrow=not kind.wide)
    policy = policy_of(cut)
    return LayerPair(plain, plain if policy == "none" else plain._replace(replay=replay(cut, modules, policy)))


def _layer_blocks(run: RunSpec, kinds: tuple[LayerKind, ...], layers: dict[LayerKind, LayerPair]) -> tuple[Block, ...]:
    """Fold equal neighbouring layers; with full recomputation of only some, the first ones of the chunk."""
    limit = run.training.recompute_layers
    limit = len(kinds) if limit is None else min(limit, len(kinds))
    marked = ((kind, index < limit) for index, kind in enumerate(kinds))
    return tuple(
        (layers[kind].recomputed if again else layers[kind].plain)._replace(repeats=sum(1 for _ in same))
        for (kind, again), same in groupby(marked)
    )


def _ends(run: RunSpec, cut: Cut, layers: dict[LayerKind, LayerPair]) -> tuple[tuple[Block, ...], tuple[Block, ...]]:
    """Describe both ends of the model; a tied weight is held by first and last stage when these differ."""
    lent = run.model.tied_embeddings and run.parallelism.pp == 1
    opening = embedding(cut)
    closing = [_end(cut, "head", head(cut, owns_weight=not lent))]
    if run.model.mtp_layers:
        repeats = run.model.mtp_layers
        closing += [
            _end(cut, "mtp entry", mtp_entry(cut), repeats),
            *(
                layers[kind].recomputed._replace(name=f"mtp {kind.part or 'layer'}", repeats=repeats)
                for kind in mtp_kinds(run.model)
            ),
            _end(cut, "mtp head", head(cut, owns_weight=False), repeats),
        ]
    return ((_end(cut, "embedding", opening),) if opening else ()), tuple(closing)


def _end(cut: Cut, name: str, modules: tuple[Module, ...], repeats: int = 1) -> Block:
    modules = modules if cut.trains else forward_alone(cut, modules)
    return make_block(name, modules, repeats, replay(cut, modules, "none"), narrow=False)._replace(is_layer=False)


def forward_alone(cut: Cut, modules: tuple[Module, ...]) -> tuple[Module, ...]:
    """Return modules without a backward pass: what each would have kept for it lives only while the module runs."""
    stream = cut.shard_tokens * cut.model.hidden * cut.stream_bytes
    return tuple(
        module._replace(
            backward=(),
            kept=tuple(tensor for tensor in module.kept if tensor.returned),
            forward_scratch_bytes=module.forward_scratch_bytes
            + stream
            + sum(tensor.size_bytes for tensor in module.kept if not tensor.returned),
            backward_scratch_bytes=0.0,
            hole_bytes=0.0,
        )
        for module in modules
    )
