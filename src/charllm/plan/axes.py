"""The axes of a plan: which values of each setting are tried, unless a flag pins it or `--axis` lists others."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from charllm.errors import SpecError, unknown_name
from charllm.spec.fields import read_field
from charllm.spec.parallelism import OVERLAPS, Parallelism
from charllm.spec.programs import program_of, schedule_fault
from charllm.spec.request import parse_recompute, parse_value
from charllm.spec.run import Conditions, RunSpec
from charllm.spec.training import RECOMPUTES, Training
from charllm.units import MEGA

LEAST_TOKENS = 1024
"""Tokens of a sequence on one cp rank, at least; shorter pieces are tried only where they are asked for."""
MOST_SEQUENCES = 16
"""Sequences of a microbatch, at most, unless more are asked for."""
SCHEDULES = ("1f1b", "interleaved", "zero-bubble", "gpipe")
CAP_FRACTIONS = (0.9, 0.8, 0.7, 0.6)
"""Power caps and clock caps that are tried, over the delivered one and the highest clock."""
DEPTHS = 8
"""Depths of full recomputation that are tried, at most, evenly from one layer of a chunk to all of them."""
FIELDS = {
    "tp": "parallelism.tp",
    "cp": "parallelism.cp",
    "pp": "parallelism.pp",
    "dp": "parallelism.dp",
    "vpp": "parallelism.vpp",
    "ep": "parallelism.ep",
    "etp": "parallelism.etp",
    "zero": "parallelism.zero",
    "shard_size": "parallelism.shard_size",
    "sp": "parallelism.sp",
    "schedule": "parallelism.schedule",
    "overlap": "parallelism.overlap",
    "mbs": "training.micro_batch_size",
    "recompute": "training.recompute",
    "power_cap": "conditions.power_cap_w",
    "clock_cap": "conditions.clock_cap_hz",
}
"""Axis: the field of a spec that it sets."""
SETTINGS: dict[str, type] = {"parallelism": Parallelism, "training": Training, "conditions": Conditions}
"""Part of a spec: its class."""
SPELLINGS = {"micro_batch_size": "mbs"}
"""Another spelling of an axis: its name."""
NONE = "none"


class Axes(NamedTuple):
    """The values tried of each setting; None where they follow from the other settings."""

    tp: tuple[int, ...]
    cp: tuple[int, ...]
    pp: tuple[int, ...]
    dp: tuple[int, ...] | None
    vpp: tuple[int, ...]
    ep: tuple[int, ...]
    etp: tuple[int, ...] | None
    """None: 1 and tp."""
    zero: tuple[int, ...]
    shard_size: tuple[int, ...] | None
    """None: all of dp x cp, and as many as share a scale-up domain."""
    sp: tuple[bool, ...]
    schedule: tuple[str, ...]
    overlap: tuple[frozenset[str], ...]
    """Sets of axes; one that has nothing to hide is left out of them."""
    mbs: tuple[int, ...]
    recompute: tuple[str, ...]
    """`full:some` stands for several depths."""
    power_cap: tuple[float | None, ...]
    clock_cap: tuple[float | None, ...]


def default_axes(run: RunSpec) -> Axes:
    """Return the values that are tried on a model, a batch and a cluster: those that the profile's program runs."""
    model, training, gpu = run.model, run.training, run.cluster.gpu
    degrees = divisors(run.cluster.gpus)
    longest = max(1, training.seq_length // LEAST_TOKENS)
    most = min(MOST_SEQUENCES, training.global_batch_size)
    able = [axis for axis in OVERLAPS if axis != "cp" and (axis != "ep" or model.experts)]
    caps = [fraction * gpu.power_cap_w for fraction in CAP_FRACTIONS]
    least_w = max(gpu.power_cap_min_w, 1.01 * gpu.idle_draw_w)
    return Axes(
        tp=degrees,
        cp=tuple(cp for cp in degrees if cp <= longest),
        pp=tuple(pp for pp in degrees if pp <= model.layers),
        dp=None,
        vpp=tuple(range(1, model.layers + 1)),
        ep=divisors(model.experts) if model.experts else (1,),
        etp=None if model.experts else (1,),
        zero=(0, 1, 2, 3),
        shard_size=None,
        sp=(False, True),
        schedule=tuple(one for one in SCHEDULES if schedule_fault(program_of(run), one) is None),
        overlap=tuple(frozenset(some) for size in range(len(able) + 1) for some in combinations(able, size)),
        mbs=tuple(2**power for power in range(most.bit_length()) if 2**power <= most),
        recompute=(*RECOMPUTES, "full:some"),
        power_cap=(None, *(cap for cap in caps if cap >= least_w)),
        clock_cap=(
            None,
            *(share * gpu.clock_max_hz for share in CAP_FRACTIONS if share * gpu.clock_max_hz >= gpu.clock_idle_hz),
        ),
    )


def pinned_axes(request: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Return the one value of each axis that a request states; each is checked as the field it sets is."""
    found: dict[str, Any] = {}
    for axis, field in FIELDS.items():
        part, _dot, name = field.partition(".")
        settings = request.get(part, {})
        value = settings.get(name)
        if value is None:
            continue
        value = read_field(SETTINGS[part], name, value, part)
        if axis == "overlap":
            value = frozenset(value)
        elif axis == "recompute" and settings.get("recompute_layers") is not None:
            value = f"full:{settings['recompute_layers']}"
        found[axis] = (value,)
    return found


def read_axes(asked: Mapping[str, Sequence[Any]]) -> dict[str, tuple[Any, ...]]:
    """Return the values of the axes that are named; each is checked as the field it sets is."""
    found: dict[str, Any] = {}
    for word, values in asked.items():
        axis = SPELLINGS.get(word.replace("-", "_"), word.replace("-", "_"))
        if axis not in FIELDS:
            raise unknown_name("--axis", word, FIELDS)
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise SpecError("--axis", f"{word}={values!r}", f"a list of values, e.g. {word}=1,2,4")
        found[axis] = tuple(dict.fromkeys(_value(axis, value) for value in values))
    return found


def parse_axis(text: str) -> tuple[str, list[Any]]:
    """Read ``tp=1,2,4``; the sets of `overlap` are written with plus signs: ``overlap=none,dp,tp+dp``."""
    name, equals, listed = text.partition("=")
    if not equals or not name.strip() or not listed.strip():
        raise SpecError("--axis", text, "AXIS=VALUE,VALUE,..., e.g. tp=1,2,4")
    return name.strip(), [parse_value(value.strip()) for value in listed.split(",")]


def _value(axis: str, value: Any) -> Any:
    if axis == "overlap":
        names = [] if value == NONE else value.split("+") if isinstance(value, str) else list(value)
        for name in names:
            if name not in OVERLAPS:
                raise SpecError("parallelism.overlap", name, f"none, or any of {', '.join(OVERLAPS)} joined by +")
        return frozenset(names)
    if axis == "recompute":
        parse_recompute(str(value))
        return str(value)
    if axis in ("power_cap", "clock_cap"):
        return None if value == NONE else _number(axis, value) * (MEGA if axis == "clock_cap" else 1.0)
    if axis == "schedule":
        return str(value)
    if axis == "sp" and isinstance(value, bool):
        return value
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise SpecError(FIELDS[axis], value, "true or false" if axis == "sp" else "a whole number")
    return value


def _number(axis: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SpecError(FIELDS[axis], value, "a number, or none")
    return float(value)


def divisors(number: int) -> tuple[int, ...]:
    """List the divisors of a number."""
    small = [one for one in range(1, int(number**0.5) + 1) if number % one == 0]
    return tuple(sorted({*small, *(number // one for one in small)}))
