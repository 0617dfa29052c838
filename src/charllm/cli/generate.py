"""Predict generation: prefill and decode of a static batch, with time, memory, power and temperature; needs no GPU.

All sequences of the batch have equal prompts and lengths and run from begin to end. Continuous batching, arrival of
requests and queueing are not simulated: Vidur, LLMServingSim and AIConfigurator do that. Exit codes: 0 done, 2 the
request is wrong, 3 the batch does not fit in memory; the largest batch and length that fit are named.
"""

import argparse

from charllm.cli.flags import add_flags, given
from charllm.cli.output import add_format_flags, add_full_flag, print_result
from charllm.cli.spec_flags import add_spec_flags, request_from
from charllm.errors import DoesNotFit
from charllm.simulate.generation_settings import GenerateSettings
from charllm.spec.flags import read_keywords

EXAMPLES = (
    "charllm generate --model llama3-70b --cluster h200x8 --tp 4 --batch 64 --prompt 1024 --new-tokens 256",
    "charllm generate --model llama3-8b --cluster h100x8 --batch 256 --power-cap 500 --json",
    "charllm generate --model mixtral-8x7b --cluster h200x8 --tp 8 --batch 32 --engine tensorrt-llm --csv",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    add_spec_flags(parser)
    add_flags(parser.add_argument_group("generation"), GenerateSettings)
    add_format_flags(parser, table="a row for each GPU")
    add_full_flag(parser)


def run(arguments: argparse.Namespace) -> int:
    """Predict, print, store; exit 3 when the batch does not fit."""
    from charllm.api.generation import run_generation
    from charllm.report.phases import render_generation

    settings = read_keywords(GenerateSettings, given(arguments, GenerateSettings))
    result = run_generation(request_from(arguments), settings).result
    print_result(arguments, result, lambda: render_generation(result, full=arguments.full), result.warnings)
    return 0 if result.metrics.fits or settings.ignore_memory else DoesNotFit.exit_code
