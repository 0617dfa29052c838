"""A step as if nothing held the clock down."""

from charllm.timeline.costs import cost_step, read_step
from charllm.timeline.step_time import StepTime, time_step
from charllm.workload.step import Step


def time_at_highest_clock(step: Step) -> StepTime:
    return time_step(step, cost_step(step, read_step(step), step.run.cluster.gpu.clock_max_hz))
