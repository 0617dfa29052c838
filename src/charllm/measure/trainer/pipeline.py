"""Chunks of the model on stages, and torch's pipeline schedules that pass microbatches through them.

| spec | torch | chunks of a rank |
|---|---|---|
| gpipe | ScheduleGPipe | 1 |
| 1f1b | Schedule1F1B | 1 |
| interleaved | ScheduleInterleaved1F1B | vpp: stage, stage + pp, ... |
| zero-bubble | ScheduleInterleavedZeroBubble (ZB1P) | 1 |
| dualpipe | ScheduleDualPipeV | 2: the layers of a stage in halves, down and back up the ranks |

`--zbv` takes ScheduleZBVZeroBubble in place of zero-bubble's schedule, with chunks as in dualpipe.
"""

from collections.abc import Callable
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from charllm.errors import SpecError
from charllm.measure.trainer.model import Chunk, Transformer
from charllm.measure.trainer.place import Place
from charllm.spec.run import RunSpec

SCHEDULES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "zero-bubble": "InterleavedZeroBubble",
    "dualpipe": "DualPipeV",
    "zbv": "ZBVZeroBubble",
}
"""Schedule of a spec: the name of torch's."""
V_SHAPED = ("dualpipe", "zbv")


def schedule_name(run: RunSpec, *, zbv: bool = False) -> str:
    """Return the schedule that is run."""
    asked = run.parallelism.schedule
    if zbv and asked != "zero-bubble":
        raise SpecError("--zbv", asked, "only with --schedule zero-bubble")
    return "zbv" if zbv else asked


def layers_per_chunk(run: RunSpec, schedule: str) -> tuple[int, ...]:
    """Return the layers of every chunk of the model, in its order."""
    split = run.parallelism.layers_per_stage
    if schedule in V_SHAPED:
        down = [-(-count // 2) for count in split]
        return (*down, *(count - half for count, half in zip(reversed(split), reversed(down), strict=True)))
    return split


def own_chunks(run: RunSpec, stage: int, schedule: str) -> dict[int, Chunk]:
    """Return the chunks of a stage by their number in the model."""
    split, pp = layers_per_chunk(run, schedule), run.parallelism.pp
    last = len(split) - 1
    mine = (stage, last - stage) if schedule in V_SHAPED else range(stage, len(split), pp)
    stops = list(accumulate(split))
    return {at: Chunk(stops[at] - split[at], stops[at], at == 0, at == last) for at in mine}


def make_schedule(
    run: RunSpec, place: Place, chunks: dict[int, Transformer], schedule: str, loss: Callable[[Tensor, Tensor], Tensor]
) -> Any:
    """Build torch's schedule over the chunks of this rank."""
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class

    count = len(layers_per_chunk(run, schedule))
    stages = [
        PipelineStage(chunk, number, count, torch.device(place.device), group=place["pp"].handle)
        for number, chunk in sorted(chunks.items())
    ]
    kind = get_schedule_class(SCHEDULES[schedule])
    held = stages[0] if issubclass(kind, PipelineScheduleSingle) else stages
    try:
        return kind(held, run.microbatches, loss_fn=loss, scale_grads=False)
    except ValueError as error:
        said = " ".join(str(error).split())
        raise SpecError("parallelism.schedule", run.parallelism.schedule, f"what torch can run: {said}") from None


def pass_through(schedule: Any, chunks: dict[int, Transformer], tokens: Tensor, targets: Tensor) -> list[Tensor]:
    """Pass all microbatches of a step forward and backward; returns their losses on the rank that has the head."""
    opens = any(chunk.chunk.opens for chunk in chunks.values())
    closes = any(chunk.chunk.closes for chunk in chunks.values())
    losses: list[Tensor] = []
    inputs = (tokens,) if opens else ()
    extra = {"target": targets, "losses": losses} if closes else {}
    schedule.step(*inputs, return_outputs=False, **extra)
    return losses
