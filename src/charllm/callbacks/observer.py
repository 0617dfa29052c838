"""What all callbacks do: mark steps and phases, measure where asked, and tell the energy of a step.

Energy is the growth of the energy counter of the process's own GPU, read when figures are asked for: a reading takes
milliseconds, so it belongs to lines of a log and not to steps.
"""

import os
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from charllm import mark
from charllm.measure.device import telemetry_identities
from charllm.measure.telemetry import open_source
from charllm.measure.telemetry.source import Source

ENERGY, POWER, STEP = "charllm/gpu_energy_per_step_j", "charllm/gpu_power_w", "charllm/step_time_s"


class Observer:
    """Marks one training in this process."""

    def __init__(self, out: str | None = None, profile: str | int | None = None, telemetry: str = "auto") -> None:
        self._out, self._profile, self._telemetry = out, profile, telemetry
        self._open = ExitStack()
        self._phase: str | None = None
        self._steps = self._told_steps = 0
        self._told_s = self._told_j = 0.0
        self._source: Source | None = None
        self._gpu: int | None = None

    def begin(self) -> None:
        """Begin: measure where this was asked for, and read the energy counter for the first time."""
        local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        if self._out is not None and local_rank == 0:
            from charllm.api.measurement import measure

            node = os.environ.get("GROUP_RANK", "0")
            folder = self._out if node == "0" else f"{self._out}-node{node}"
            settings = {"profile": str(self._profile)} if self._profile is not None else {}
            self._open.enter_context(
                measure(folder, telemetry=self._telemetry, idle=0.0, cooldown=0.0, **settings)  # type: ignore[arg-type]
            )
        mine = telemetry_identities(self._telemetry, os.environ)
        if mine:
            self._source = open_source(self._telemetry)
            self._open.callback(self._source.close)
            uuid = mine[local_rank % len(mine)].uuid
            self._gpu = [one.uuid for one in self._source.facts.gpus].index(uuid)
        self._told_s, self._told_j = time.monotonic(), self._read_j() or 0.0
        self._told_steps = self._steps

    def enter(self, phase: str | None) -> None:
        """End the phase that was open, and begin another; None: none."""
        if phase == self._phase:
            return
        if self._phase is not None:
            mark.write("end", self._phase, "")
        if phase is not None:
            mark.write("begin", phase, "")
        self._phase = phase

    def end_step(self, number: int | None = None, tokens: int | None = None) -> None:
        """Mark the end of a step."""
        self.enter(None)
        self._steps += 1
        mark.step(number, tokens=tokens)

    def tell_loss(self, loss: Any) -> None:
        """Keep a loss among the marks."""
        if isinstance(loss, int | float):
            mark.point("loss", loss)

    def figures(self) -> Mapping[str, float]:
        """Return step time, energy and power since they were last asked for; energy where the GPU has a counter."""
        now_s, steps = time.monotonic(), self._steps - self._told_steps
        spent_s = now_s - self._told_s
        if steps < 1 or spent_s <= 0:
            return {}
        found = {STEP: spent_s / steps}
        now_j = self._read_j()
        if now_j is not None and now_j > self._told_j:
            found |= {ENERGY: (now_j - self._told_j) / steps, POWER: (now_j - self._told_j) / spent_s}
        self._told_s, self._told_j, self._told_steps = now_s, now_j or 0.0, self._steps
        return found

    def end(self) -> None:
        """End: the run that was measured is summarised."""
        self.enter(None)
        self._source, self._gpu = None, None
        self._open.close()

    def _read_j(self) -> float | None:
        if self._source is None or self._gpu is None:
            return None
        (reading,) = self._source.read(self._gpu, ("energy_j",))
        return None if isinstance(reading, str) else reading
