"""Faults of one part: a GPU with higher power draw, a node whose power brake is active."""

from charllm.report.claims import read_claims
from charllm.reproduce.finding import Configuration, Finding, percent_more, times
from charllm.reproduce.paper import Request, dense_runs, with_change

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
        claim=read_claims()["braked-node"],
        configurations=found,
    )


def one_straggler() -> Finding:
    """A GPU with higher power draw at equal work."""
    found = {}
    for name, run in _runs().items():
        for text, gpu, power in (("front, +15 %", 9, 1.15), ("rear, +15 %", 8, 1.15), ("rear, +30 %", 8, 1.3)):
            weak = with_change(run, {"conditions": {"weak_gpus": [gpu], "weak_power_fraction": power}})
            found[f"{name}, {text}"] = Configuration((weak, run), percent_more("step_time_s"))
    return Finding(
        claim=read_claims()["one-straggler"],
        configurations=found,
    )


def _runs() -> dict[str, Request]:
    return {name: run for name, run in dense_runs("act").items() if name in STRATEGIES}
