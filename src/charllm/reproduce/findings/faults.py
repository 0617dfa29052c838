"""Faults of one part: a GPU with higher power draw, a node whose power brake is active."""

from charllm.report.claims import Accuracy, Claim
from charllm.reproduce.finding import Configuration, Finding, percent_more, times
from charllm.reproduce.paper import Request, dense_runs, with_change
from charllm.result.differences import ANY

STRATEGIES = ("gpt3-175b tp8-pp4", "gpt3-175b tp2-pp16", "llama3-70b tp4-pp4")
LOWEST_CLOCK_HZ = 345e6
"""Of an H200."""


def braked_node() -> Finding:
    """A node whose power supplies assert the power brake."""
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
        claim=Claim(
            name="braked-node",
            text="A power fault in one node slowed the job down more than four times.",
            unit="x the step time of the healthy job",
            least=1.0,
            size=4.0,
            headline="largest",
            of="some",
            accuracy=Accuracy("step time", "clock limit", "times"),
        ),
        configurations=found,
        why="a lower clock slows down only the compute-bound part of a step",
        note="The power brake usually halves the clock, which slows down only the compute-bound part of a step. A "
        "factor of four needs a clock below the lowest one, or a fault that also slows memory or links.",
    )


def one_straggler() -> Finding:
    """A GPU with higher power draw at equal work."""
    found = {}
    for name, run in _runs().items():
        for text, gpu, power in (("front, +15 %", 9, 1.15), ("rear, +15 %", 8, 1.15), ("rear, +30 %", 8, 1.3)):
            weak = with_change(run, {"conditions": {"weak_gpus": [gpu], "weak_power_fraction": power}})
            found[f"{name}, {text}"] = Configuration((weak, run), percent_more("step_time_s"))
    return Finding(
        claim=Claim(
            name="one-straggler",
            text="One GPU with higher power draw at equal work slows down the whole job.",
            unit="% longer step time than with 32 identical GPUs",
            accuracy=Accuracy("step time", ANY, "%"),
            answer="one slow GPU costs up to 6 % of performance on MI300X nodes (arXiv:2511.09861)",
        ),
        configurations=found,
        why="its group waits for it in every layer",
        is_thermal=True,
        note="One GPU of 32, in node 1, draws 15 or 30 % more power. Its tensor-parallel group waits for it in every "
        "layer; where another pipeline stage is slower, the pipeline bubble hides the delay.",
    )


def _runs() -> dict[str, Request]:
    return {name: run for name, run in dense_runs("act").items() if name in STRATEGIES}
