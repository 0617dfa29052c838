"""Predict one step of reinforcement learning: rollouts, log-probabilities, updates and weight transfer; needs no GPU.

The flags of a run describe the update; those below the rest. With --rollout-gpus the engine has GPUs of its own. The
answer has seconds, energy, power and temperature of each phase, and the power ramps of the whole; --splits plans the
split of the GPUs between rollouts and training instead. Exit codes: 0 done, 2 the request is wrong or does not fit in
memory.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from charllm.cli.flags import add_flags, given
from charllm.cli.output import add_format_flags, print_as, print_result
from charllm.cli.spec_flags import add_spec_flags, request_from
from charllm.simulate.rl_settings import RlSettings
from charllm.spec.flags import read_keywords

if TYPE_CHECKING:
    from charllm.plan.splits import Split

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
    from charllm.api.rl import run_rl
    from charllm.plan.splits import compare_splits
    from charllm.report.phases import render_rl

    settings, request = read_keywords(RlSettings, given(arguments, RlSettings)), request_from(arguments)
    if settings.splits:
        return _print_splits(arguments, compare_splits(request, settings))
    result = run_rl(request, settings)
    print_result(arguments, result, lambda: render_rl(result), result.warnings)
    return 0


def _print_splits(arguments: argparse.Namespace, splits: list[Split]) -> int:
    """Print splits of the GPUs, the fastest first, and the flags of the fastest."""
    from charllm.report.phases import SPLIT_METRICS, render_splits

    rows = [{"gpus": split.name, "flags": split.flags, **{name: split.result.metrics[name] for name in SPLIT_METRICS}}
            for split in splits]  # fmt: skip
    text = render_splits([(split.name, split.result.metrics) for split in splits], splits[0].flags)
    print_as(arguments, {"splits": rows}, lambda: text, lambda: rows)
    return 0
