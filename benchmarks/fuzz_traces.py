"""Damaged traces through the reader: no exception, no invalid JSON, bounded memory.

    python -m benchmarks.fuzz_traces [--seconds 600] [--seed 0] [--gigabytes 0] [TRACES ...]

Each case takes a trace (the examples, made ones, and those given), cuts, repeats, overwrites and inserts bytes, packs
it or not, and reads it with chunks of several sizes. `--gigabytes` then writes one trace with that much garbage inside
an event and reads it within 1 GiB. Exit code 1 when anything is wrong; the case is kept and named.
"""

import argparse
import gzip
import json
import resource
import sys
import tempfile
import time
import traceback
from pathlib import Path
from random import Random

from charllm.report.trace import render_trace
from charllm.trace import json_events
from charllm.trace.run import read_run
from charllm.trace.summary import summarize

EXAMPLES = Path(__file__).parent.parent / "examples" / "traces"
INSERTED = (b"{", b"}", b"[", b"]", b",", b'"', b"\\", b"null", b"-1", b"1e999", b"NaN", b"\xff\xfe", b'"x"', b"{}",
            b"9" * 30, b"true", b'"ts"', b'"dur"', b'"args": 3', b"[" * 2000)  # fmt: skip
NAMES = ("rank-0.json", "rank-0.json", "rank-0.json.gz", "trace.et")
CHUNKS = (64, 500, 1 << 20)
MADE = b"""{"traceEvents": [
{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 0, "tid": 1, "ts": 0, "dur": 90, "args": {}},
{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 0, "tid": 1, "ts": 1, "dur": 2,
 "args": {"correlation": 5, "External id": 9}},
{"ph": "X", "cat": "kernel", "name": "nvjet_gemm", "pid": 0, "tid": 7, "ts": 5, "dur": 30,
 "args": {"stream": 7, "device": 0, "correlation": 5, "grid": [2, 1, 1], "block": [128, 1, 1]}},
{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": 0, "tid": 9, "ts": 20, "dur": 30,
 "args": {"stream": 9, "device": 0, "Collective name": "allreduce", "In msg nelems": 4096, "Out msg nelems": 4096,
 "dtype": "BFloat16", "Group size": 2, "Process Group Name": "1", "Process Group Ranks": "[0, 1]"}}]}"""
CHAKRA = b"""{"workload_graph": [{"Id": 1, "Name": "mm", "NodeType": 4, "runtime": 30, "data_deps": []},
{"Id": 2, "Name": "nccl", "NodeType": 7, "runtime": 20, "data_deps": [1], "comm_type": 0, "comm_size": 64}]}"""


def damage(original: bytes, random: Random) -> bytes:
    """Return a trace with some bytes changed."""
    data = bytearray(original)
    for _ in range(random.choice((1, 1, 2, 5, 30))):
        at = random.randrange(len(data) + 1)
        match random.randrange(5):
            case 0:
                del data[at : at + random.randrange(1, 50)]
            case 1:
                data[at:at] = random.choice(INSERTED)
            case 2:
                del data[at:]
            case 3:
                data[at : at + 1] = bytes([random.randrange(256)])
            case _:
                data[at:at] = data[at // 2 : at // 2 + random.randrange(200)]
    return bytes(data)


def pack(data: bytes, random: Random) -> bytes:
    """Pack a trace, and cut it in half of the cases."""
    packed = gzip.compress(data, 1)
    return packed[: random.randrange(len(packed) + 1)] if random.random() < 0.5 else packed


def read(path: Path) -> None:
    """Do all that `charllm trace` does with a file."""
    found = summarize(read_run([path]))
    json.dumps(found, allow_nan=False)
    render_trace(found)


def fuzz(originals: list[bytes], seconds: float, seed: int, folder: Path) -> int:
    """Read damaged traces for some time; returns how many were read, or ends at the first fault."""
    random, cases, until_s = Random(seed), 0, time.monotonic() + seconds
    while time.monotonic() < until_s:
        path = folder / random.choice(NAMES)
        data = damage(random.choice(originals), random)
        path.write_bytes(pack(data, random) if path.suffix == ".gz" else data)
        json_events.CHUNK_BYTES = random.choice(CHUNKS)
        try:
            read(path)
        except Exception:
            traceback.print_exc()
            kept = Path(tempfile.mkdtemp()) / path.name
            path.rename(kept)
            raise SystemExit(f"case {cases} with chunks of {json_events.CHUNK_BYTES}: {kept}") from None
        cases += 1
    return cases


def read_garbage(gigabytes: float, path: Path) -> None:
    """Read a trace whose second event never ends."""
    with path.open("wb") as file:
        file.write(MADE[: MADE.index(b"cudaLaunchKernel")])
        for _ in range(int(gigabytes * 1024)):
            file.write(b"a{[}]," * (2**20 // 6))
    json_events.CHUNK_BYTES = 1 << 20
    read(path)
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"{gigabytes:g} GB inside an event: peak {peak_bytes / 2**20:.0f} MiB, {time.process_time():.0f} s")
    if peak_bytes > 2**30:
        raise SystemExit("more than 1 GiB of memory")


def main() -> int:
    """Fuzz for the time that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path, nargs="*")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gigabytes", type=float, default=0.0)
    arguments = parser.parse_args()
    paths = [*EXAMPLES.glob("*.gz"), *arguments.traces]
    originals = [gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes() for path in paths]
    with tempfile.TemporaryDirectory() as scratch:
        cases = fuzz([*originals, MADE, MADE, CHAKRA], arguments.seconds, arguments.seed, Path(scratch))
        print(f"{cases:,} damaged traces were read")
        if arguments.gigabytes:
            read_garbage(arguments.gigabytes, Path(scratch) / "rank-0.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
