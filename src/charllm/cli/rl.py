"""Predict one step of reinforcement learning: rollouts, log-probabilities, updates and weight transfer; needs no GPU.

The flags of a run describe the update; those below the rest. With --rollout-gpus the engine has GPUs of its own. The
answer has seconds, energy, power and temperature of each phase, and the power ramps of the whole. Exit codes: 0 done,
2 the request is wrong or does not fit in memory.
"""

import argparse

from charllm.cli.flags import add_flags, given
from charllm.cli.output import add_format_flags, print_result, show
from charllm.cli.spec_flags import add_spec_flags, request_from
from charllm.simulate.rl_settings import RlSettings
from charllm.spec.flags import read_keywords

EXAMPLES = (
    "charllm rl --model llama3-8b --cluster h100x16 --tp 2 --gbs 512 --samples 2048 --response-length 800",
    "charllm rl --model llama3-8b --cluster h100x32 --gbs 256 --rollout-gpus 16 --policy one-step-off --json",
    "charllm rl --model llama3-8b --cluster h100x32 --gbs 256 --splits",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    add_spec_flags(parser)
    add_flags(parser.add_argument_group("reinforcement learning"), RlSettings)
    add_format_flags(parser, table="a row for each GPU")


def run(arguments: argparse.Namespace) -> int:
    """Predict and print."""
    from charllm.api.rl import compare_splits
    from charllm.report.phases import render_rl, render_splits
    from charllm.simulate.rl import predict_rl
    from charllm.simulate.rl_step import describe_rl

    settings, request = read_keywords(RlSettings, given(arguments, RlSettings)), request_from(arguments)
    if settings.splits:
        show(render_splits(compare_splits(request, settings)))
        return 0
    result = predict_rl(describe_rl(request, settings))
    if settings.out is not None:
        result.save(settings.out)
    print_result(arguments, result, lambda: render_rl(result), result.warnings)
    return 0
