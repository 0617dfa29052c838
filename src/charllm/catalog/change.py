"""One change to a run, as flags that a user would add to the command and as the run that these flags give."""

from collections.abc import Iterator
from typing import NamedTuple

from charllm.catalog.defaults import default_batch, default_overlap
from charllm.catalog.resolve import resolve_run
from charllm.spec.request import Table, merge
from charllm.spec.run import RunSpec

LEFT_OPEN = None
"""As a value of a change: the setting is left open and follows from the others."""


class Change(NamedTuple):
    """One change to a run's table."""

    asked: str
    """The flags that ask for it, or what would have to be bought."""
    settings: Table
    never_slower: bool = False
    """Whether physics forbids that it makes the run slower: a faster link."""


def changed_run(run: RunSpec, change: Change) -> RunSpec:
    """Return a run with one change, or raise SpecError where that is no run."""
    return resolve_run(_without_open(merge(_open_table(run), change.settings)))


def _open_table(run: RunSpec) -> Table:
    """Return a run's table without what its profile supplied, so that the profile decides again."""
    table = run.as_table()
    degrees, training = table["parallelism"], table["training"]
    taken = {text.split()[0] for text in run.defaults_taken}
    if "vpp" in taken:
        for name in ("vpp", "schedule", "layers_per_stage"):
            degrees.pop(name, None)
    usual = default_overlap(run.framework, run.parallelism, sparse=bool(run.model.experts))
    if "overlap" in taken or not (degrees["overlap"] or usual):
        degrees.pop("overlap")
    if "recompute" in taken:
        for name in ("recompute", "recompute_layers", "recompute_modules"):
            training.pop(name, None)
    if run.parallelism.zero == (run.framework.default_zero if run.parallelism.data_ranks > 1 else 0):
        degrees.pop("zero")
    return table


def _without_open(table: Table) -> Table:
    return {
        part: {name: value for name, value in settings.items() if value is not LEFT_OPEN}
        for part, settings in table.items()
    }


def tensor_change(run: RunSpec, factor: float) -> Iterator[Change]:
    """Move a factor from dp to tp."""
    degrees = run.parallelism
    tp, dp = _times(degrees.tp, factor), _times(degrees.dp, 1 / factor)
    if tp is None or dp is None:
        return
    settings: Table = {"tp": tp, "dp": dp}
    if degrees.tp == 1 or tp == 1:
        settings["sp"] = LEFT_OPEN
    if degrees.etp == degrees.tp:
        settings["etp"] = LEFT_OPEN
    yield _with_batch(run, Change(f"--tp {tp} --dp {dp}", {"parallelism": settings}))


def pipeline_change(run: RunSpec, factor: float) -> Iterator[Change]:
    """Move a factor from dp to pp."""
    degrees = run.parallelism
    pp, dp = _times(degrees.pp, factor), _times(degrees.dp, 1 / factor)
    if pp is None or dp is None:
        return
    settings: Table = {"pp": pp, "dp": dp, "layers_per_stage": LEFT_OPEN}
    flags = f"--pp {pp} --dp {dp}"
    vpp = degrees.vpp
    if pp == 1 and vpp > 1:
        vpp = 1
        settings.update(vpp=vpp, schedule=LEFT_OPEN)
        flags += " --vpp 1"
    if len(set(degrees.layers_per_stage)) > 1:
        # Layers of the present stages were given, and would stay in force.
        layers, rest = divmod(run.model.layers, pp * vpp)
        if rest:
            return
        flags += f" --layers-per-stage {layers}x{pp * vpp}"
    yield _with_batch(run, Change(flags, {"parallelism": settings}))


def microbatch_change(run: RunSpec, factor: float) -> Iterator[Change]:
    """Work on more or fewer sequences at once."""
    micro = _times(run.training.micro_batch_size, factor)
    if micro is not None:
        yield _with_batch(run, Change(f"--mbs {micro}", {"training": {"micro_batch_size": micro}}))


def recompute_change(kind: str) -> Change:
    """Recompute activations in another way."""
    settings: Table = {"recompute": kind, "recompute_modules": LEFT_OPEN, "recompute_layers": LEFT_OPEN}
    return Change(f"--recompute {kind}", {"training": settings})


def zero_change(zero: int) -> Change:
    """Shard more, or less."""
    return Change(f"--zero {zero}", {"parallelism": {"zero": zero}})


def offload_change() -> Change:
    """Keep the optimizer's states in host memory."""
    settings: Table = {"training": {"optimizer_offload_fraction": 1.0}}
    return Change("--set training.optimizer_offload_fraction=1", settings)


def node_change(run: RunSpec, factor: int) -> Change:
    """Use more nodes for data parallelism, and as many more sequences."""
    nodes, dp = run.cluster.nodes * factor, run.parallelism.dp * factor
    batch, zero = run.training.global_batch_size * factor, max(1, run.parallelism.zero)
    flags = f"--set cluster.nodes={nodes} --dp {dp} --gbs {batch} --zero {zero}"
    degrees: Table = {"dp": dp, "zero": zero}
    settings: Table = {"cluster": {"nodes": nodes}, "parallelism": degrees, "training": {"global_batch_size": batch}}
    return Change(flags, settings)


def nic_change(run: RunSpec, factor: float, words: str) -> Change:
    """Buy NICs that are faster or slower by a factor."""
    rate = factor * run.cluster.fabric.nic_bandwidth_bytes_per_s
    return Change(f"NICs {words} as fast", {"cluster": {"fabric": {"nic_bandwidth_bytes_per_s": rate}}}, factor >= 1)


def warmer_settings(run: RunSpec, more_k: float) -> Table:
    """Return the settings of warmer air, or coolant, in every node."""
    inlet_c = run.cluster.cooling.inlet_c
    warmer = [each_c + more_k for each_c in inlet_c] if isinstance(inlet_c, tuple) else inlet_c + more_k
    return {"cluster": {"cooling": {"inlet_c": warmer}}}


def preheat_settings(run: RunSpec, factor: float) -> Table:
    """Return the settings of other preheating of rear GPUs by upstream ones."""
    return {"cluster": {"node": {"preheat_k_per_w": factor * run.cluster.node.preheat_k_per_w}}}


def both(first: Change, second: Change) -> Change:
    """Make two changes at once."""
    return Change(f"{first.asked} {second.asked}", merge(first.settings, second.settings))


def _times(value: int, factor: float) -> int | None:
    """Return a whole multiple, or None."""
    scaled = value * factor
    return int(scaled) if scaled == int(scaled) and scaled >= 1 else None


def _with_batch(run: RunSpec, change: Change) -> Change:
    """State the batch where a command that leaves it open would take another one."""
    batch = run.training.global_batch_size
    dp = change.settings.get("parallelism", {}).get("dp", run.parallelism.dp)
    micro = change.settings.get("training", {}).get("micro_batch_size", run.training.micro_batch_size)
    return change if default_batch(dp, micro) == batch else Change(f"{change.asked} --gbs {batch}", change.settings)
