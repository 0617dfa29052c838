"""Emulate one rank of a large job on this GPU: its kernels run, its communication and waits last as long as simulated.

Time, power, clock and temperature are predicted first and stored with the recording; `--predict` stops there and
needs no GPU. If the output is not a terminal, and no other format is requested, the metrics are printed as JSON.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from charllm.cli.flags import add_flags, given
from charllm.cli.output import add_format_flags, print_as
from charllm.cli.plots import add_plot_flags, draw_stored, wants_plots
from charllm.cli.spec_flags import add_spec_flags, request_from
from charllm.measure.command_settings import EmulationSettings, EmulatorSettings
from charllm.report.tables import render_table
from charllm.spec.flags import read_keywords
from charllm.units import format_figure

if TYPE_CHECKING:
    from charllm.result.result import RunResult

EXAMPLES = (
    "charllm emulate --model gpt3-175b --cluster h200x32 --tp 8 --pp 4 --gbs 128 --rank 8 --seconds 60",
    "charllm emulate --model gpt3-175b --cluster h200x32 --tp 8 --pp 4 --gbs 128 --rank 8 --predict",
    "charllm emulate --model llama3-8b --cluster h200x8 --tp 2 --gbs 8 --print-timeline",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    add_spec_flags(parser)
    add_flags(parser, EmulationSettings)
    add_flags(parser, EmulatorSettings)
    parser.add_argument("--print-timeline", action="store_true", help="print the timeline and stop")
    parser.add_argument("--predict", action="store_true", help="print the prediction and stop")
    add_format_flags(parser, table="a row for each metric, predicted and emulated,")
    add_plot_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Emulate the rank under the sampler and print the result."""
    from charllm.api.emulation import predict_readings, run_emulation, timeline_of
    from charllm.measure.device import require_device
    from charllm.measure.finish import urgent_warnings
    from charllm.result.metrics import numbers_of
    from charllm.timeline.rank_timeline import to_text

    request = request_from(arguments)
    settings = read_keywords(EmulationSettings, given(arguments, EmulationSettings))
    emulator = read_keywords(EmulatorSettings, given(arguments, EmulatorSettings))
    if not (arguments.print_timeline or arguments.predict):
        require_device(emulator.device)
    timeline = timeline_of(request, settings)
    if arguments.print_timeline:
        print(to_text(timeline))
        return 0
    if arguments.predict:
        predicted = predict_readings(timeline, request, settings.seconds_s)
        arguments.json |= _is_piped(arguments)
        print_as(arguments, predicted, lambda: _render_prediction(predicted), lambda: _rows(predicted, {}))
        return 0
    result, predicted, folder = run_emulation(timeline, request, settings.seconds_s, emulator)
    for warning in urgent_warnings(result.warnings):
        print(f"charllm: {warning}", file=sys.stderr)
    metrics, whole = numbers_of(result.metrics), result.as_table() if arguments.json else dict(result.metrics)
    arguments.json |= _is_piped(arguments)
    print_as(
        arguments,
        whole,
        lambda: _render(result, folder, arguments),
        lambda: _rows(predicted, metrics),
    )
    print(f"charllm: recorded in {folder}", file=sys.stderr)
    return 0


def _is_piped(arguments: argparse.Namespace) -> bool:
    """Tell whether a program reads the output, and asked for nothing else than the metrics."""
    return not (sys.stdout.isatty() or arguments.csv or wants_plots(arguments))


def _render(result: RunResult, folder: Path, arguments: argparse.Namespace) -> str:
    """Return what was emulated beside its prediction, as tables or as figures."""
    from charllm.report.run import render_answer, render_run

    if not wants_plots(arguments):
        return render_run(result)
    return "\n\n".join([render_answer(result), draw_stored(arguments, result, folder)])


def _render_prediction(predicted: Mapping[str, float]) -> str:
    cells = [[name, format_figure(name, value)] for name, value in predicted.items()]
    return render_table("Predicted of one emulated rank", ["metric", "predicted"], cells)


def _rows(predicted: Mapping[str, float], read: Mapping[str, Any]) -> list[dict[str, Any]]:
    names = [*predicted, *(name for name, value in read.items() if name not in predicted and value is not None)]
    return [{"metric": name, "predicted": predicted.get(name), "emulated": read.get(name)} for name in names]
