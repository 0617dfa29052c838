"""Convert a recording of another tool into a run: a folder that show, compare, calibrate and doctor open.

FORMAT is dcgm (`dcgmi dmon`, scrapes of dcgm-exporter, DCGM tables), prometheus (answers of query_range as JSON,
text, `promtool tsdb dump`), nvidia-smi (`--query-gpu` logs, `dmon`, `-q`, `-x`), amd-smi (amd-smi and rocm-smi CSV),
megatron-log, nemo-log or log (steps of a training program), charllm-ppt (the paper's `{metric}_{rank}.csv`), csv (any
table of time, GPU, power, temperature or clock, long or wide), or auto, which detects the format of each file.
Quantities that a source does not contain are missing in the run, with the reason.
"""

import argparse
import sys
from pathlib import Path
from textwrap import shorten

EXAMPLES = (
    "charllm convert nvidia-smi gpu.csv -o runs/converted",
    "charllm convert prometheus power.json temperature.json -o runs/cluster --log train.log",
    "charllm convert csv trace.csv -o runs/trace --column power_w=power_instant_w --gpu h100",
    "charllm show runs/converted",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    from charllm.measure.convert.formats import FORMATS

    parser.add_argument("format", metavar="FORMAT", help="|".join(FORMATS))
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="files, or folders with files")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="DIR", help="new folder for the run")
    parser.add_argument(
        "--log", type=Path, action="append", default=[], metavar="FILE", help="training log to read steps from"
    )
    parser.add_argument(
        "--column", action="append", default=[], metavar="NAME=QUANTITY",
        help="read a column as this quantity: time, gpu, node, power_mw, temperature_c, clock_mhz ...",
    )  # fmt: skip
    parser.add_argument(
        "--header", default="", metavar="NAMES", help="names of the columns, if the table has no header"
    )
    parser.add_argument("--period", type=float, metavar="S", help="seconds between readings without timestamps")
    parser.add_argument("--gpu", default="", metavar="NAME", help="type of the GPUs, if the files do not name it")
    parser.add_argument("--gpus", default="", metavar="LIST", help="GPUs to keep: numbers, UUIDs or a type")
    parser.add_argument(
        "--from", dest="from_", type=float, metavar="S", help="start, in seconds after the first reading"
    )
    parser.add_argument("--to", type=float, metavar="S", help="end, in seconds after the first reading")
    parser.add_argument("--spec", metavar="FILE", help="spec of the run; adds MFU")


def run(arguments: argparse.Namespace) -> int:
    """Convert, and say to stderr what was found and what to know."""
    from charllm.api.conversion import build_wish
    from charllm.measure.convert.run import convert_files

    flags = {**vars(arguments), "gpus": [word.strip() for word in arguments.gpus.split(",") if word.strip()]}
    result = convert_files(build_wish(**flags))
    for note in result.provenance["measurement"]["notes"]:
        print(f"charllm: {shorten(note, 400, placeholder=' ...')}", file=sys.stderr)
    metrics = result.metrics
    parts = [
        f"{len(result.gpus)} GPU{'' if len(result.gpus) == 1 else 's'}",
        f"{result.provenance['measurement']['window_s']:.0f} s",
    ]
    parts += [
        f"{metrics[name]:.4g} {unit}"
        for name, unit in (("step_time_s", "s per step"), ("power_mean_w", "W"), ("temperature_peak_c", "C peak"))
        if metrics[name] is not None
    ]
    print(f"charllm: {', '.join(parts)}; written to {arguments.out}", file=sys.stderr)
    return 0
