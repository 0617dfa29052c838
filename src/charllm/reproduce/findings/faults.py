"""One bad part of a machine slows all: a GPU that draws more, a node under its power brake."""

from charllm.reproduce.finding import Configuration, Finding, percent_more, times
from charllm.reproduce.paper import Request, dense_runs, with_change

STRATEGIES = ("gpt3-175b tp8-pp4", "gpt3-175b tp2-pp16", "llama3-70b tp4-pp4")
LOWEST_CLOCK_HZ = 345e6
"""Of an H200."""


def braked_node() -> Finding:
    """A node whose supplies hold the power brake."""
    brakes: dict[str, Request] = {
        "half clock": {"braked_nodes": [1]},
        "lowest clock": {"braked_nodes": [1], "brake_clock_hz": LOWEST_CLOCK_HZ},
    }
    found = {
        f"{name}, {text}": Configuration((with_change(run, {"conditions": brake}), run), times("step_time_s"))
        for name, run in _runs().items()
        for text, brake in brakes.items()
    }
    return Finding(
        name="braked-node",
        claim="A power fault of one node made the job more than four times as slow.",
        unit="times the step time of the healthy job",
        configurations=found,
        least=1.1,
        size=4.0,
        headline="largest",
        note="Half the clock is the usual brake. It costs what computing takes of a step; four times needs a brake "
        "near or below the lowest clock, or a fault that also slows memory or links.",
    )


def one_straggler() -> Finding:
    """A GPU that draws more than others at equal work."""
    found = {}
    for name, run in _runs().items():
        for text, gpu, power in (("front, +15 %", 9, 1.15), ("rear, +15 %", 8, 1.15), ("rear, +30 %", 8, 1.3)):
            weak = with_change(run, {"conditions": {"weak_gpus": [gpu], "weak_power_fraction": power}})
            found[f"{name}, {text}"] = Configuration((weak, run), percent_more("step_time_s"))
    return Finding(
        name="one-straggler",
        claim="One GPU that draws more than others at equal work slows all.",
        unit="% longer steps than without it",
        configurations=found,
        least=0.5,
        is_thermal=True,
        note="One GPU of 32, in node 1. In a group that meets after every layer all wait for it; where the pipeline's "
        "slowest stage is another one, it hides in the bubble.",
    )


def _runs() -> dict[str, Request]:
    return {name: run for name, run in dense_runs("act").items() if name in STRATEGIES}
