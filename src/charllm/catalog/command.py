"""The command that simulates a run, in as few words as describe it."""

import shlex
from functools import lru_cache, reduce
from itertools import groupby
from typing import Any, NamedTuple

from charllm.catalog.resolve import DEFAULT_FRAMEWORK, resolve_run
from charllm.errors import SpecError
from charllm.spec.request import Table, merge, nest, parse_layer_split, parse_recompute
from charllm.spec.run import RunSpec
from charllm.units import MEGA


class Word(NamedTuple):
    """A flag of a command, and what it sets."""

    flag: str
    value: str
    settings: Table

    @property
    def text(self) -> str:
        """The flag as one would type it."""
        return f"{self.flag} {shlex.quote(self.value)}" if self.value else self.flag


def write_command(run: RunSpec) -> str | None:
    """Return the shortest command that gives a run; None where names and flags alone do not describe it."""
    words = _shortest(run)
    return " ".join(["charllm simulate", *(word.text for word in words)]) if words else None


def write_plan_command(run: RunSpec) -> str | None:
    """Return the command that searches the strategies of a run's job; None where names and flags do not describe it."""
    strategy = {word.flag for word in strategy_words(run)} - {"--gbs"}
    words = [word for word in _shortest(run) if word.flag not in strategy]
    return " ".join(["charllm plan", *(word.text for word in words)]) if words else None


@lru_cache(maxsize=16)
def _shortest(run: RunSpec) -> list[Word]:
    """Return the flags that give a run, none of which may be left out; none where no flags do."""
    parts = {part: getattr(run, part).name for part in ("model", "cluster")}
    parts |= {} if run.framework.name == DEFAULT_FRAMEWORK else {"framework": run.framework.name}
    named = [Word(f"--{part}", name, {part: name}) for part, name in parts.items()]
    words = [*named, *strategy_words(run), *_job_words(run)]
    if not _gives(words, run):
        return []
    for word in words[len(named) :]:
        # A flag without which the run is the same says nothing.
        if word.flag != "--gbs" and _gives(rest := [each for each in words if each is not word], run):
            words = rest
    return words


def _gives(words: list[Word], run: RunSpec) -> bool:
    try:
        found = resolve_run(reduce(merge, (word.settings for word in words), {}))
    except SpecError:
        return False
    mine, theirs = ({**each.as_table(), "defaults_taken": (), "notes": ()} for each in (found, run))
    return mine == theirs


def strategy_words(run: RunSpec) -> list[Word]:
    """Return the flags of a strategy on its model and cluster."""
    degrees, training, asked = run.parallelism, run.training, run.conditions
    split = degrees.layers_per_stage
    names = ("tp", "pp", "vpp", "cp", "ep", "dp", "zero", "schedule")
    words = [_field(f"--{name}", f"parallelism.{name}", getattr(degrees, name)) for name in names]
    words.append(Word("--sp" if degrees.sp else "--no-sp", "", nest("parallelism.sp", degrees.sp)))
    words.append(
        Word("--overlap", ",".join(degrees.overlap) or "none", nest("parallelism.overlap", [*degrees.overlap]))
    )
    words.append(_field("--gbs", "training.global_batch_size", training.global_batch_size))
    words.append(_field("--mbs", "training.micro_batch_size", training.micro_batch_size))
    recompute = _recompute(run)
    words.append(Word("--recompute", recompute, {"training": parse_recompute(recompute)}))
    words += [_field("--etp", "parallelism.etp", degrees.etp)] if run.model.experts else []
    words += [_field("--shard-size", "parallelism.shard_size", degrees.shard_size)] if degrees.shard_size else []
    if len(set(split)) > 1:
        text = _layer_split(split)
        words.append(Word("--layers-per-stage", text, nest("parallelism.layers_per_stage", parse_layer_split(text))))
    if asked.power_cap_w is not None:
        words.append(_field("--power-cap", "conditions.power_cap_w", asked.power_cap_w))
    if asked.clock_cap_hz is not None:
        words.append(_field("--clock-cap", "conditions.clock_cap_mhz", asked.clock_cap_hz / MEGA))
    return words


def strategy_flags(run: RunSpec) -> dict[str, str]:
    """Return the flags of a strategy with their values."""
    return {word.flag: word.value for word in strategy_words(run)}


def _job_words(run: RunSpec) -> list[Word]:
    """Return the flags of what a job is beside its strategy, where they may differ from defaults."""
    training, conditions, cooling = run.training, run.conditions, run.cluster.cooling
    words = [
        _field("--seq-length", "training.seq_length", training.seq_length),
        _field("--precision", "training.precision", training.precision),
        _field("--lora", "training.lora_rank", training.lora_rank),
        _field("--seed", "conditions.seed", conditions.seed),
    ]
    if not isinstance(cooling.inlet_c, tuple):
        words.append(_field("--inlet", "cluster.cooling.inlet_c", cooling.inlet_c))
    words += [_set(f"training.{name}", getattr(training, name)) for name in ("optimizer", "optimizer_offload_fraction")]
    words.append(_field("--network", "cluster.fabric", run.cluster.fabric.name))
    return [*words, _set("framework.tuning", run.framework.tuning)]


def _field(flag: str, path: str, value: Any) -> Word:
    return Word(flag, f"{value:g}" if isinstance(value, float) else str(value), nest(path, value))


def _set(path: str, value: Any) -> Word:
    return Word("--set", f"{path}={_field('', path, value).value}", nest(path, value))


def _recompute(run: RunSpec) -> str:
    training = run.training
    if training.recompute_layers is not None:
        return f"{training.recompute}:{training.recompute_layers}"
    modules = ",".join(training.recompute_modules)
    return f"{training.recompute}:{modules}" if modules else training.recompute


def _layer_split(layers: tuple[int, ...]) -> str:
    runs = [(each, len(list(alike))) for each, alike in groupby(layers)]
    return ",".join(f"{each}x{times}" if times > 1 else str(each) for each, times in runs)
