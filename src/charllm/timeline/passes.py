"""One microbatch through one chunk in one direction: what it takes, and under which label.

Equation: an exchange of s seconds beside c seconds of compute leaves e exposed on the compute stream and slows the
compute: e + contention (s - e). Nothing hidden: e = s. Tensor-parallel exchanges: e = max(s / pieces, s - c) with c the
GEMM beside them, and no first piece where backward hides them under a weight gradient. Rings of context parallelism: e
= max(s / max(2, cp), s - attention). Sharded weights and gradients: e = max(0, s - what is left of the layer's
compute). Expert exchanges hide under another microbatch (`Pricer._paired`).
Source: timeline/constants.py for contention and pieces; Megatron-Core, Transformer Engine and FSDP for what each hides.
Ignores: that the compute which hides an exchange may have been slowed by another; exchanges that hide under
memory-bound kernels; order of prefetching beyond one layer.
"""

from typing import NamedTuple

from charllm.spec.run import RunSpec
from charllm.spec.schedules import SCHEDULES
from charllm.timeline.arrival import arrival_wait_s
from charllm.timeline.costs import Costs
from charllm.timeline.host_race import NOTHING, SYNC, Race, host_only
from charllm.workload.op import MATRIX_KINDS, Op, is_communication
from charllm.workload.step import Block, Chunk, Step
from charllm.workload.sync import gathers_once, layer_gather, layer_reduce
from charllm.workload.totals import AXIS_OF_GROUP


class Timed(NamedTuple):
    """One op as it is seen on the compute stream: what stays exposed of it, and what is hidden."""

    op: Op
    label: str
    seconds: float
    hidden_s: float = 0.0
    late_s: float = 0.0
    """Of `seconds`: waited for the slowest host of its ranks."""


class Item(NamedTuple):
    """One thing that happens in a pass: a kernel or collective (a group), host work, or a host that waits."""

    kind: str
    """kernel, collective, host or sync."""
    seconds: float
    """On the compute stream."""
    launch_s: float
    """On the host, before it can begin."""
    op: Op | None = None
    late_s: float = 0.0
    """Of `seconds`: waited for the slowest host of its ranks."""
    launches: float = 1.0
    """Kernels, launched one after the other while the first of them run."""

    @property
    def group(self) -> str:
        """The group of a collective."""
        return self.op.group if self.op else ""


class Pair(NamedTuple):
    """Two microbatches in one block beside each other, one forward and one backward: what both take together."""

    computed_s: float
    exchanged_s: float
    """Between expert ranks."""


class Span(NamedTuple):
    """Items in order, several times over."""

    items: tuple[Item, ...]
    repeats: int


class Pass(NamedTuple):
    """A pass of one microbatch through a chunk."""

    race: Race
    labels: dict[str, float]
    """Label of the breakdown: seconds on the compute stream."""
    hidden: dict[str, float]
    """Axis: seconds of communication under compute."""
    ops: int
    spans: tuple[Span, ...] = ()
    """What `race` is the product of."""

    @property
    def seconds(self) -> float:
        """Time on the GPU when the host never holds it up."""
        return self.race.gg


class ChunkPasses(NamedTuple):
    """The passes of one chunk: forward, backward, and the backward's part that only weights need."""

    forward: Pass
    backward: Pass
    weight: Pass
    """With a zero-bubble schedule; empty otherwise, its ops being in `backward`."""


def chunk_passes(step: Step, costs: Costs) -> list[ChunkPasses]:
    """Price every chunk of a step; equal chunks once."""
    pricer = Pricer(step, costs)
    known: dict[int, ChunkPasses] = {}
    found = []
    for chunk in step.chunks:
        key = id(chunk.blocks)
        if key not in known:
            known[key] = pricer.chunk(chunk)
        found.append(known[key])
    return found


class Pricer:
    """Prices blocks of one step, each distinct one once."""

    def __init__(self, step: Step, costs: Costs) -> None:
        self.step, self.costs, self.price = step, costs, costs.price
        self.overlap = hidden_axes(step.run)
        self.host_pace = host_pace(step.run)
        self.split = SCHEDULES[step.run.parallelism.schedule].puts_off_weights
        self.known: dict[tuple[int, int, str], Pass] = {}

    def chunk(self, chunk: Chunk) -> ChunkPasses:
        """Price the passes of one chunk."""
        calls = self._calls(first=chunk.stage == 0)
        forward = _joined([*calls, *(self.block(block, "forward") for block in chunk.blocks)])
        backward = _joined([*calls, *(self.block(block, "backward") for block in reversed(chunk.blocks))])
        weight = _joined([self.block(block, "weight") for block in reversed(chunk.blocks)]) if self.split else EMPTY
        return ChunkPasses(forward, backward, weight)

    def _calls(self, *, first: bool) -> list[Pass]:
        """What is put together from profiled parts has no host that runs ahead from one to the next."""
        run = self.step.run
        items: tuple[Item, ...] = ()
        if run.framework.composed:
            items = (Item("sync", 0.0, 0.0),)
        elif run.generation and run.framework.step_host_s and first:
            # The host schedules a step of generation before it launches it.
            items = (Item("host", 0.0, run.framework.step_host_s / run.microbatches),)
        return [Pass(race_of(items), {}, {}, 0, (Span(items, 1),))] if items else []

    def block(self, block: Block, direction: str) -> Pass:
        """Price all repeats of a block in one direction."""
        key = (id(block.modules), id(block.replay), direction)
        if key not in self.known:
            self.known[key] = self._one(block, direction)
        one = self.known[key]
        return _times(one, block.repeats)

    def _one(self, block: Block, direction: str) -> Pass:
        ways = ("forward", "backward") if "ep" in self.overlap else ()
        pair = self.pair([op for way in ways for ops, _ in self._parts(block, way) for op in ops])
        timed = [
            item
            for ops, label in self._parts(block, direction)
            for item in self.expose(ops, label, backward=direction != "forward", pair=pair)
        ]
        timed = self._met_late(timed)
        items = self._items(timed)
        if sharded := self._sharded(block, direction):
            # What stays exposed of a sharded exchange is waited for before the ops that need it.
            sharding = self._sharding(sharded, race_of(items).gg)
            timed, items = [*sharding, *timed], (*self._items(sharding), *items)
        items = (*items, *self._offload(block, direction, sum(item.launch_s for item in items)))
        labels: dict[str, float] = {}
        hidden: dict[str, float] = {}
        for item in timed:
            labels[item.label] = labels.get(item.label, 0.0) + item.seconds
            if item.hidden_s:
                axis = AXIS_OF_GROUP[item.op.group]
                hidden[axis] = hidden.get(axis, 0.0) + item.hidden_s
        return Pass(race_of(items), labels, hidden, len(timed), (Span(items, 1),))

    def _met_late(self, timed: list[Timed]) -> list[Timed]:
        """Let the first exchange between expert ranks wait for the slowest of their hosts as well."""
        places = [place for place, one in enumerate(timed) if one.op.group == "ep"]
        if not places:
            return timed
        launch_s = sum(self._launch_s(one.op) for one in timed)
        first = timed[places[0]]
        run, constants = self.step.run, self.costs.timeline
        usual_s, late_s = (arrival_wait_s(run, "ep", constants, launched_s) for launched_s in (0.0, launch_s))
        late_s -= usual_s
        late = first._replace(seconds=first.seconds + late_s, late_s=late_s)
        return [*timed[: places[0]], late, *timed[places[0] + 1 :]]

    def _items(self, timed: list[Timed]) -> tuple[Item, ...]:
        """List what happens in one block in one direction, in order.

        The host reads once how many tokens each expert gets, and launches nothing until the GPU has counted them.
        """
        items: list[Item] = []
        counted, blocking = not self._reads_counts(), self.step.run.framework.blocking_launches
        for one in timed:
            if not counted and self._needs_counts(one.op):
                items.append(Item("sync", 0.0, 0.0))
                counted = True
            kind = "collective" if is_communication(one.op) else "kernel"
            launches = 1.0 if blocking else self.costs.launches(one.op)
            items.append(Item(kind, one.seconds, self._launch_s(one.op), one.op, one.late_s, launches))
            if blocking:
                items.append(Item("sync", 0.0, 0.0))
        return tuple(items)

    def _offload(self, block: Block, direction: str, launch_s: float) -> tuple[Item, ...]:
        """Let copies of activations to or from the host pace a layer, as launches do where these take longer.

        Ignores: that copies share the host's links with NICs and other GPUs, and their energy.
        """
        run = self.step.run
        if direction == "weight" or not block.is_layer or not run.training.activation_offload_fraction:
            return ()
        moved_bytes = block.replay.kept_bytes * run.training.activation_offload_fraction
        copy_s = moved_bytes / run.cluster.node.pcie_bandwidth_bytes_per_s
        return (Item("host", 0.0, max(0.0, copy_s - launch_s)),)

    def _reads_counts(self) -> bool:
        """Tell whether the host waits for token counts; fixed capacities need no reading."""
        run = self.step.run
        return run.framework.sparse_sync and run.framework.graphs != "full" and run.training.capacity_factor is None

    def _needs_counts(self, op: Op) -> bool:
        """Tell whether an op is launched with the counts of tokens: the sorting, or what experts do with the sorted.

        HybridEP sorts while it sends; its counts are read when tokens have arrived (Megatron-Core's dispatcher).
        """
        late = self.step.run.framework.dispatcher == "hybridep"
        return op.direction == "forward" and (op.expert and op.kind != "permute" if late else op.kind == "permute")

    def _launch_s(self, op: Op) -> float:
        """Return the host's time to launch an op: none where a graph holds it."""
        if self.step.run.framework.graphs == "partial" and not (op.expert or op.group == "ep"):
            return 0.0
        return self.host_pace * self.costs.launch_s(op)

    def _parts(self, block: Block, direction: str) -> list[tuple[list[Op], str]]:
        if direction == "forward":
            return [([op for module in block.modules for op in module.forward], "compute")]
        backward = [op for module in reversed(block.modules) for op in module.backward]
        if direction == "weight":
            return [([op for op in backward if op.direction == "wgrad"], "compute")]
        if self.split:
            backward = [op for op in backward if op.direction != "wgrad"]
        return [(list(block.replay.ops), "recompute"), (backward, "compute")]

    def expose(self, ops: list[Op], label: str, *, backward: bool, pair: Pair) -> list[Timed]:
        """Decide for each op what stays on the compute stream."""
        return [
            self.exposed(ops, place, backward=backward, pair=pair)
            if is_communication(op)
            else Timed(op, label, self.price(op))
            for place, op in enumerate(ops)
        ]

    def exposed(self, ops: list[Op], place: int, *, backward: bool, pair: Pair) -> Timed:
        """Decide what of a communication stays on the compute stream."""
        op = ops[place]
        seconds, axis = self.price(op), AXIS_OF_GROUP[op.group]
        if axis == "ep" and axis in self.overlap:
            return self._paired(op, seconds, pair)
        exposed = self._exposed(ops, place, axis, seconds, backward=backward)
        hidden = seconds - exposed
        slowed = exposed + hidden * self.costs.timeline.contention_fraction
        return Timed(op, f"{axis}_exposed", slowed, hidden)

    def pair(self, ops: list[Op]) -> Pair:
        """Return what the ops of a block in both directions take."""
        exchanges = [op for op in ops if is_communication(op) and AXIS_OF_GROUP[op.group] == "ep"]
        computed_s = sum(self.price(op) for op in ops if not is_communication(op))
        return Pair(computed_s, sum(map(self.price, exchanges)))

    def _paired(self, op: Op, seconds: float, pair: Pair) -> Timed:
        """Hide an exchange between expert ranks under the compute of another microbatch.

        Equation: compute C and exchanges E of a pair run side by side and take max(E, E / pieces + C + contention x
        the rest of E): a slower compute stream costs nothing where the exchanges last longer anyway.
        """
        constants = self.costs.timeline
        first = 1 / constants.overlap_chunks
        uncovered = 1 - pair.computed_s / pair.exchanged_s
        alone = unpaired_fraction(self.step.run)
        shown = max(first + (1 - first) * constants.contention_fraction, uncovered)
        hidden = 1 - max(first, uncovered)
        return Timed(op, "ep_exposed", seconds * (alone + (1 - alone) * shown), seconds * (1 - alone) * hidden)

    def _exposed(self, ops: list[Op], place: int, axis: str, seconds: float, *, backward: bool) -> float:
        """Return how much of a collective nothing covers."""
        op = ops[place]
        if axis == "tp":
            cover = self._cover(ops, place)
            if backward and self.step.run.framework.async_tp_backward and _is_column(ops, place):
                return max(0.0, seconds - cover)
            if "tp" in self.overlap:
                return max(seconds / self.costs.timeline.overlap_chunks, seconds - cover)
            return seconds
        if op.kind == "ring_exchange":
            covers = [self.price(other) for other in ops if other.kind == "attention"]
            return max(seconds / max(2, self.step.run.parallelism.cp), seconds - sum(covers))
        return seconds

    def _cover(self, ops: list[Op], place: int) -> float:
        """Return the seconds of the product beside a tensor-parallel exchange."""
        after, before = products_beside(ops, place)
        product = after or before
        return self.price(product) if product else 0.0

    def _sharded(self, block: Block, direction: str) -> tuple[Op, ...]:
        """List what gathers the sharded weights of a layer, and reduces their gradients, in one direction."""
        if direction == "weight" or gathers_once(self.step.run):
            return ()
        reduced = layer_reduce(self.step, block) if direction == "backward" else ()
        return (*layer_gather(self.step, block, direction), *reduced)

    def _sharding(self, ops: tuple[Op, ...], room_s: float) -> list[Timed]:
        """Gather sharded weights while the layer before runs, waits included, and reduce gradients under the next."""
        timed = []
        for op in ops:
            seconds = self.price(op)
            exposed = max(0.0, seconds - room_s)
            room_s = max(0.0, room_s - seconds)
            hidden = seconds - exposed
            timed.append(Timed(op, "dp_exposed", exposed + hidden * self.costs.timeline.contention_fraction, hidden))
        return timed


def unpaired_fraction(run: RunSpec) -> float:
    """Return the share of passes that have no pass of another microbatch beside them to hide exchanges under.

    One's forward runs beside another's backward; those that fill and drain the pipeline run alone.
    """
    degrees = run.parallelism
    filling = degrees.pp - 1 + (degrees.vpp - 1) * degrees.pp
    return min(1.0, (1 + filling) / (run.microbatches * degrees.vpp))


def products_beside(ops: list[Op], place: int) -> tuple[Op | None, Op | None]:
    """Return the products after and before an exchange, where they are next to it."""
    neighbours = (_uncast(ops, place)[0], ops[place - 1] if place else None)
    after, before = (one if one is not None and one.kind in MATRIX_KINDS else None for one in neighbours)
    return after, before


def _is_column(ops: list[Op], place: int) -> bool:
    """Tell whether an exchange belongs to a product cut by columns, whose backward hides it under a product."""
    after, follows = _uncast(ops, place)
    if after is None or after.kind not in ("gemm", "grouped_gemm"):
        return False
    if ops[place].kind == "all_gather":
        return follows is not None and is_communication(follows)
    return after.direction == "wgrad"


def _uncast(ops: list[Op], place: int) -> tuple[Op | None, Op | None]:
    """Return the two ops that follow an exchange; casting what it moves is part of it, and covers nothing."""
    ahead = (op for op in ops[place + 1 : place + 4] if op.kind != "cast")
    return next(ahead, None), next(ahead, None)


def hidden_axes(run: RunSpec) -> frozenset[str]:
    """Return the axes whose communication hides under compute, asked for or not."""
    degrees = run.parallelism
    return frozenset(degrees.effective_overlap).union(SCHEDULES[degrees.schedule].always_hides)


def launch_seconds(run: RunSpec) -> float:
    """Return the host's time to launch one kernel of a run."""
    return host_pace(run) * run.framework.launch_s


def host_pace(run: RunSpec) -> float:
    """Return the host's time for launches over that of a tuned x86 host; none where a graph holds the whole step."""
    return 0.0 if run.framework.graphs == "full" else 1 / run.cluster.node.launch_speed_fraction


def race_of(items: tuple[Item, ...]) -> Race:
    """Multiply what happens out."""
    race = NOTHING
    for item in items:
        if item.kind == "host":
            race = race.then(host_only(item.launch_s))
        elif item.kind == "sync":
            race = race.then(SYNC)
        else:
            race = race.launch(item.seconds, item.launch_s, item.launches)
    return race


EMPTY = Pass(NOTHING, {}, {}, 0)


def _times(one: Pass, times: int) -> Pass:
    if times == 1:
        return one
    return Pass(
        one.race.repeated(times),
        {label: times * seconds for label, seconds in one.labels.items()},
        {axis: times * seconds for axis, seconds in one.hidden.items()},
        one.ops * times,
        tuple(span._replace(repeats=span.repeats * times) for span in one.spans),
    )


def _joined(parts: list[Pass]) -> Pass:
    race = NOTHING
    labels: dict[str, float] = {}
    hidden: dict[str, float] = {}
    for part in parts:
        race = race.then(part.race)
        for label, seconds in part.labels.items():
            labels[label] = labels.get(label, 0.0) + seconds
        for axis, seconds in part.hidden.items():
            hidden[axis] = hidden.get(axis, 0.0) + seconds
    spans = tuple(span for part in parts for span in part.spans)
    return Pass(race, labels, hidden, sum(part.ops for part in parts), spans)
