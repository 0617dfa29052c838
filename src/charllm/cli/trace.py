"""Break down the step time of profiler traces by kernel and rank.

PATH is a file, or a folder with one file per rank: traces of torch.profiler (Kineto; .json or .json.gz, of NVIDIA or
AMD GPUs or of CPUs), Chakra (.et, .json), Nsight Systems (.sqlite), rocprofv3 (.json, .csv, .pftrace), JAX
(.xplane.pb, trace.json.gz), and the pictures that --perfetto writes. Every event is classified by its collective's
arguments, its name and its stream; each process group is named by its axis. Flags that describe the run make these
names certain and add MFU. Notes list what could not be read or determined. Exit codes: 0 done, 1 no step could be
read, 2 the request is wrong.
"""

import argparse
from pathlib import Path

from charllm.cli.output import add_format_flags, print_as
from charllm.cli.progress import track
from charllm.cli.spec_flags import add_spec_flags, request_from
from charllm.errors import SpecError

UNREADABLE = 1
EXAMPLES = (
    "charllm trace traces",
    "charllm trace traces/rank-0.json --json",
    "charllm trace traces --perfetto view.json --out runs/traced-kernels --csv",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this command."""
    parser.add_argument("paths", type=Path, nargs="*", metavar="PATH", help="trace files, or folders with them")
    parser.add_argument(
        "--memory", type=Path, nargs="+", default=[], metavar="FILE",
        help="memory snapshots of PyTorch (torch.cuda.memory._dump_snapshot), beside the memory that is predicted",
    )  # fmt: skip
    parser.add_argument(
        "--classes", type=Path, metavar="FILE", help="TOML file of kernel patterns, tried before the built-in ones"
    )
    parser.add_argument("--perfetto", type=Path, metavar="FILE", help="write all ranks as one view for ui.perfetto.dev")
    parser.add_argument("--out", type=Path, metavar="DIR", help="store the run for `charllm report` and `compare`")
    add_format_flags(parser, table="a row for each rank and kernel")
    add_spec_flags(parser, spec_flag=True)


def run(arguments: argparse.Namespace) -> int:
    """Read, summarise and print."""
    from charllm.api.trace import run_trace

    if not arguments.paths and not arguments.memory:
        raise SpecError("PATH", "no file", "trace files or folders, or --memory FILE")
    files = {name: getattr(arguments, name) for name in ("classes", "perfetto", "out")}
    found = run_trace(arguments.paths, request_from(arguments), **files, memory=arguments.memory, track=track)
    print_as(arguments, found.as_table(), lambda: str(found), found.kernels)
    return 0 if found["step_time_s"] or not arguments.paths else UNREADABLE
