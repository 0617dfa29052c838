"""A run in the format of another program, read back by that format's own reader: what got lost is named."""

import shlex
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from charllm.catalog.foreign import complete_request
from charllm.catalog.resolve import resolve_run
from charllm.errors import CharllmError, SpecError, unknown_name
from charllm.spec.readers.megatron import read_megatron
from charllm.spec.readers.nemo import read_nemo
from charllm.spec.readers.reading import Reading
from charllm.spec.readers.torchtitan import read_torchtitan
from charllm.spec.request import merge
from charllm.spec.run import RunSpec
from charllm.spec.writers.megatron import write_megatron
from charllm.spec.writers.nemo import write_nemo
from charllm.spec.writers.torchtitan import write_torchtitan


class Format(NamedTuple):
    """A foreign format: its writer and its reader."""

    write: Callable[[RunSpec], str]
    read: Callable[[str, str], Reading]
    frameworks: tuple[str, ...]
    """Software profiles of the program that reads it."""
    suffix: str


FORMATS = {
    "megatron": Format(lambda run: shlex.join(write_megatron(run)), read_megatron, ("megatron",), ".sh"),
    "nemo": Format(write_nemo, read_nemo, ("nemo",), ".yaml"),
    "torchtitan": Format(write_torchtitan, read_torchtitan, ("torchtitan", "fsdp"), ".toml"),
}
"""Program: the format that starts it."""
NOT_WRITTEN = {"model.name", "model.stated_params", "model.stated_active_params", "framework.name"}
"""Fields that describe a run and change nothing of it."""


def export_run(run: RunSpec, program: str) -> str:
    """Return a run as the arguments or the file of a program; SpecError where its format cannot say all of it."""
    if program not in FORMATS:
        raise unknown_name("program", program, FORMATS)
    format_ = FORMATS[program]
    if run.framework.name not in format_.frameworks and run.framework.profile not in format_.frameworks:
        raise SpecError("framework", run.framework.name, f"{' or '.join(format_.frameworks)} for {program}")
    text = format_.write(run)
    lost = lost_fields(run, format_.read(text, f"{run.model.name}{format_.suffix}"))
    if lost:
        field, (asked, kept) = next(iter(lost.items()))
        more = f" (as well as {', '.join(list(lost)[1:6])})" if len(lost) > 1 else ""
        raise SpecError(field, asked, f"{kept}, as the settings of {program} that charllm writes say it{more}")
    return text


def lost_fields(run: RunSpec, reading: Reading) -> dict[str, tuple[Any, Any]]:
    """Return the fields in which a run differs from the one that a reading of it makes: asked, and read back."""
    table = run.as_table()
    request = merge(reading.request, {"cluster": table["cluster"], "conditions": table["conditions"]})
    try:
        back = resolve_run(complete_request(reading, request))
    except CharllmError as error:
        return {"settings": ("this run", f"settings that can be read back ({error})")}
    ours, theirs = _effective(run), _effective(back)
    free = NOT_WRITTEN if run.model.position == "learned" else NOT_WRITTEN | {"model.seq_length"}
    names = [name for name in {**ours, **theirs} if name not in free]
    return {name: (ours.get(name), theirs.get(name)) for name in names if ours.get(name) != theirs.get(name)}


def _effective(run: RunSpec) -> dict[str, Any]:
    """Return the fields of a run with what its framework supplies, and without overlaps that have no effect."""
    parts = {name: part for name, part in run.as_table().items() if name not in ("cluster", "conditions")}
    fields = dict(_leaves(parts))
    for name in ("reduce_precision", "grouped_gemm"):
        fields.setdefault(f"training.{name}", getattr(run.framework, name))
    degrees = run.parallelism
    sizes = {"tp": degrees.tp, "dp": degrees.data_ranks, "pp": degrees.vpp, "ep": degrees.ep, "cp": 1}
    fields["parallelism.overlap"] = [axis for axis in degrees.overlap if sizes[axis] > 1]
    return fields


def _leaves(table: Mapping[str, Any], above: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in table.items():
        found += _leaves(value, f"{above}{key}.") if isinstance(value, Mapping) else [(f"{above}{key}", value)]
    return found
