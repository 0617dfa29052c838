"""The best strategies, tried in the program that is to run them: what it refuses is set aside, and counted."""

from collections.abc import Sequence
from typing import NamedTuple

from charllm.errors import MissingExtra, SpecError, Words
from charllm.plan.axes import FIELDS
from charllm.plan.rank import Ranked
from charllm.plan.space import Space
from charllm.spec.programs import SCHEDULES as RULED
from charllm.spec.run import RunSpec

AXES = {field: axis for axis, field in FIELDS.items()}


class Runnable(NamedTuple):
    """Strategies that are left."""

    kept: list[Ranked]
    refused: int
    warnings: list[str]
    """What the program cannot run of what the user asks for, which is kept as a what-if."""


def set_aside_refused(space: Space, wanted: Sequence[Ranked]) -> Runnable:
    """Set aside what the program of the software profile would not run, unless the user asks for just that."""
    kept, faults = list[Ranked](), list[SpecError]()
    warnings: dict[str, None] = {}
    for place, one in enumerate(wanted):
        try:
            fault = find_refusal(space.program, one.run)
        except MissingExtra as error:
            # Not for one strategy alone: the first shows it.
            told = (
                f"not checked: whether {space.program} accepts these strategies (pip install 'charllm[{error.extra}]')"
            )
            return Runnable([*kept, *wanted[place:]], len(faults), [*warnings, told])
        axis = AXES.get(fault.field) if fault else None
        if fault and axis and axis not in space.stated:
            faults.append(fault)
            continue
        kept.append(one)
        if fault:
            warnings[f"{space.program} cannot run it: {fault}"] = None
    if wanted and not kept:
        raise SpecError(faults[0].field, faults[0].asked, Words(faults[0].possible))
    return Runnable(kept, len(faults), list(warnings))


def find_refusal(program: str | None, run: RunSpec) -> SpecError | None:
    """Return why a program would not train a run; None where it does, or where charllm has no rules of the program."""
    from charllm.catalog.export import export_run

    if program not in RULED:
        return None
    try:
        export_run(run, program)
    except SpecError as error:
        return error
    return None
