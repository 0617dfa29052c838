"""One GPU that works through rows of slices alone: bursts of the bench, and emulated ranks.

Equation: that of simulate/step_loop.py for one GPU, its sink moving with the rest. Kernels have a line in 1 / clock for
each interval between knots (simulate/knots.py).
Source: gpu/ for kernels, power, governor, heat and sensor.
Ignores: neighbours in the node, which preheat a GPU and share its package.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.gpu.heat import SINK, Network, steady_state_k
from charllm.gpu.kernels import energy_of_kernels, read_shapes, time_kernels
from charllm.gpu.physics import board_of, decay
from charllm.gpu.sensor import HOPPER, Sensor
from charllm.gpu.shape import KernelShape
from charllm.gpu.steady import hold_clocks
from charllm.simulate import step_loop
from charllm.simulate.knots import knots_hz
from charllm.simulate.slices import DRAWN, TIMES, lay_rows, waiting_rows
from charllm.spec.hardware import Gpu
from charllm.spec.run import Conditions

WARM_C = 57.0
"""Assumed: temperature at which the bench finds how long a call takes; leakage moves its clock by 0.1 % a degree."""


def rows_of(shapes: Sequence[KernelShape], gpu: Gpu, *, in_step: bool, eager: bool = False) -> Floats:
    """Return one call of each kernel as a slice: [kernel, interval between knots, column]."""
    known, knots = read_shapes(shapes, gpu, in_step=in_step, eager=eager), knots_hz(gpu)
    times_s, drawn = np.zeros((len(knots), len(shapes), len(TIMES))), np.zeros((len(knots), len(shapes), len(DRAWN)))
    for place, clock_hz in enumerate(knots):
        times = time_kernels(known, gpu, np.full(len(shapes), clock_hz))
        times_s[place, :, 0] = times.running_s
        drawn[place, :, :3] = np.transpose(energy_of_kernels(known, gpu, times))
    return lay_rows(times_s, drawn, knots)


class SingleGpuRun(NamedTuple):
    """What one GPU did over a time."""

    seconds_s: float
    power_mean_w: float
    power_peak_sensor_w: float
    """Largest box."""
    power_peak_shown_w: float
    """Largest reading to be expected of a sensor that shows one box in four."""
    clock_mean_hz: float
    temperature_mean_c: float
    temperature_peak_c: float
    busy_s: float
    series: Floats
    """[box, (watts, degrees, hertz, cause)]"""
    box_s: float

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of a run that a board alone can read."""
        return {
            "step_time_s": self.busy_s,
            "power_mean_w": self.power_mean_w,
            "power_peak_sensor_w": self.power_peak_shown_w,
            "clock_mean_hz": self.clock_mean_hz,
            "temperature_mean_c": self.temperature_mean_c,
            "temperature_peak_c": self.temperature_peak_c,
        }


class SingleGpu:
    """One GPU's state while it works through rows; made once for a run of them."""

    def __init__(
        self, gpu: Gpu, net: Network, inlet_c: float, conditions: Conditions | None = None, *, before_w: float = 120.0,
        longest_s: float = 120.0, silicon: float = 1.0, begun: Floats | None = None,
    ) -> None:  # fmt: skip
        """Begin after `before_w` for long, or as a GPU of a simulated step began (`begun`), whose sink is held."""
        board = board_of(gpu, conditions)
        self.box_s = board.tick_s
        poles = net.resistance_k_per_w.shape[1] if begun is None else SINK
        rises = steady_state_k(np.full(net.slots, before_w), net)[0, :poles]
        state = np.zeros((1, step_loop.POLES + len(rises)))
        state[0, step_loop.CLOCK] = state[0, step_loop.BRAKE_HZ] = board.asked_clock_hz
        state[0, step_loop.MEAN_W] = before_w
        state[0, step_loop.BOX_LEFT] = self.box_s
        state[0, step_loop.SILICON] = silicon
        state[0, step_loop.POLES :] = rises
        state[0, step_loop.MEMORY] = net.memory.target_k(before_w)
        state[0, step_loop.AIR_C] = inlet_c
        state[0, step_loop.TEMPERATURE] = inlet_c + float(np.sum(rises))
        if begun is not None:
            state[0] = begun
        boxes = int(longest_s / self.box_s) + 8
        self.states = step_loop.GpuStates(
            state, np.zeros((1, step_loop.SUMS)), np.zeros(1, dtype=np.int64), knots_hz(gpu)[None],
            step_loop.board_rows([board]), np.ascontiguousarray(net.resistance_k_per_w[:1, :poles]),
            np.array([net.memory[:3]]), decay(self.box_s, np.array([[net.memory.time_s, *net.time_s[0, :poles]]])),
            np.zeros((1, boxes, step_loop.SIGNALS)), np.zeros(boxes), np.ones(1), np.zeros((0, 0, 4)), -1, np.ones(1),
        )  # fmt: skip
        self.clear()

    def clear(self) -> None:
        """Begin to add up anew."""
        self.states.sums[:] = 0.0
        self.states.sums[0, step_loop.COLD_C] = np.inf
        self.began_s = self.time_s

    def spend(self, rows: Floats, least_s: Floats | None = None) -> None:
        """Work through rows in order, each for some seconds at least."""
        step_loop.spend_rows(self.states, 0, rows[None], np.zeros(len(rows)) if least_s is None else least_s)

    def wait(self, seconds_s: float, polling_fraction: float = 0.0) -> None:
        """Do nothing for a time, or poll on some multiprocessors."""
        self.spend(waiting_rows(polling_fraction)[None], np.array([seconds_s]))

    @property
    def time_s(self) -> float:
        """Its time so far."""
        return float(self.states.state[0, step_loop.TIME])

    def seen(self) -> SingleGpuRun:
        """Return what was added up since it was last cleared."""
        sums, length_s = self.states.sums[0], self.time_s - self.began_s
        boxes = self.states.series[0, int(self.began_s / self.box_s) : int(self.time_s / self.box_s)]
        return SingleGpuRun(
            length_s,
            float(sums[step_loop.ENERGY] / length_s),
            float(sums[step_loop.SENSOR_W]),
            shown_peak_w(boxes[:, 0], self.box_s),
            float(sums[step_loop.CLOCK_S] / length_s),
            float(sums[step_loop.HEAT_S] / length_s),
            float(sums[step_loop.HOT_C]),
            float(sums[step_loop.BUSY]),
            boxes,
            self.box_s,
        )


def shown_peak_w(boxes_w: Floats, box_s: float, sensor: Sensor = HOPPER) -> float:
    """Return the largest reading to be expected: the mean over the phases that a sensor's refresh may have."""
    apart = max(1, round(sensor.refresh_s / box_s))
    phases = [boxes_w[phase::apart] for phase in range(apart)]
    return float(np.mean([phase.max() for phase in phases if len(phase)])) if len(boxes_w) else float("nan")


def simulate_burst(
    shape: KernelShape, gpu: Gpu, net: Network, inlet_c: float, on_s: float, period_s: float, seconds_s: float,
    silicon: float = 1.0,
) -> tuple[SingleGpuRun, float]:  # fmt: skip
    """Run a kernel on and off as the bench does; returns what is seen and the seconds a call."""
    row = rows_of([shape], gpu, in_step=False)[0]
    single = SingleGpu(gpu, net, inlet_c, longest_s=seconds_s + 2 * period_s, silicon=silicon)
    # The bench counts calls by the length of one after others, at the clock it is held at.
    held_s = float(hold_clocks(read_shapes([shape], gpu), gpu, np.array([WARM_C]), silicon=silicon).seconds[0])
    calls = max(1, round(on_s / held_s))
    bursts, next_s, working_s = 0, 0.0, 0.0
    while single.time_s < seconds_s:
        began_s = single.time_s
        single.spend(np.tile(row, (calls, 1, 1)))
        working_s += single.time_s - began_s
        bursts += 1
        next_s = max(next_s + period_s, single.time_s)
        single.wait(next_s - single.time_s)
    return single.seen(), working_s / (bursts * calls)
