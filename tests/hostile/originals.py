"""Sound files of every kind that charllm reads, made once into a folder; each case damages a copy of some of them."""

import contextlib
import gzip
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

from charllm.cli import main
from tests.cli.test_reading import few_collectives, few_degrees, few_ops
from tests.measure.convert import texts
from tests.measure.logs.test_read import ARGUMENTS, OTHERS, megatron
from tests.random_specs.inputs import CONFIGS, SCRIPT, STUDY, YAML
from tests.trace.test_chakra import protobuf

ROOT = Path(__file__).parent.parent.parent
RUN = ["--model", "llama3-8b", "--cluster", "h200x8", "--tp", "2", "--gbs", "8"]
PLAN = [
    "--model",
    "gpt2",
    "--cluster",
    "h200x1",
    "--gbs",
    "8",
    "--pareto",
    "--sensitivity",
    "--limit",
    "power_mean_w<600",
]
FOREIGN: dict[str, Callable[[], str]] = {
    "nvidia-smi.csv": texts.nvidia_smi,
    "plain.csv": lambda: texts.nvidia_smi(units=False),
    "dmon.txt": texts.smi_dmon,
    "dcgm.txt": texts.dcgm_dmon,
    "scrapes.txt": texts.scrapes,
    "power.json": lambda: json.dumps(texts.query_range("DCGM_FI_DEV_POWER_USAGE", texts.power_w)),
    "tsdb.txt": texts.tsdb_dump,
    "amd.csv": texts.amd_smi,
    "wide.csv": texts.wide,
    "query.txt": texts.smi_query,
    "boxes.txt": texts.smi_boxes,
    "long.csv": texts.long_table,
    "heat.csv": few_degrees,
}
"""Files of other tools that hold readings."""
LOGS: dict[str, Callable[[], str]] = {
    "iterations.log": texts.megatron_log,
    "megatron.log": lambda: ARGUMENTS + "".join(megatron(number) for number in range(1, 20)),
    **{f"{kind}.log": lambda text=text: text * 4 for kind, (text, _) in OTHERS.items()},  # type: ignore[misc]
}
SPECS: dict[str, str] = {
    "script.sh": SCRIPT,
    "nemo.yaml": YAML,
    "study.toml": STUDY,
    **{f"config{number}.json": json.dumps(config) for number, config in enumerate(CONFIGS)},
    **{name: (ROOT / "examples" / name).read_text() for name in ("spec.toml", "gpu.toml", "model.toml")},
    "cluster.toml": (ROOT / "examples" / "cluster.toml").read_text().replace("examples/node.toml", "hgx-h200"),
    "node.toml": (ROOT / "examples" / "node.toml").read_text().replace("examples/gpu.toml", "h200"),
}


EVENTS = 600
"""Of a recorded trace."""
MADE = b"""{"distributedInfo": {"rank": PLACE, "world_size": 2, "backend": "nccl",
 "pg_config": [{"pg_name": "1", "pg_desc": "default_pg", "pg_size": 2, "ranks": [0, 1]}]},
"baseTimeNanoseconds": 1700000000000000000, "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}], "traceEvents": [
{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 0, "tid": 1, "ts": 0, "dur": 90, "args": {}},
{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 0, "tid": 1, "ts": 1, "dur": 3,
 "args": {"External id": 9, "Input Dims": [[8, 16], [16, 32]], "Input type": ["float", "float"]}},
{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 0, "tid": 1, "ts": 1, "dur": 2,
 "args": {"correlation": 5, "External id": 9}},
{"ph": "X", "cat": "kernel", "name": "nvjet_gemm", "pid": 0, "tid": 7, "ts": 5, "dur": 30,
 "args": {"stream": 7, "device": 0, "correlation": 5, "External id": 9, "grid": [2, 1, 1], "block": [128, 1, 1]}},
{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": 0, "tid": 9, "ts": 20, "dur": 30,
 "args": {"stream": 9, "device": 0, "Collective name": "allreduce", "In msg nelems": 4096, "Out msg nelems": 4096,
 "dtype": "BFloat16", "Group size": 2, "Process Group Name": "1", "Process Group Ranks": "[0, 1]"}},
{"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "pid": 0, "tid": 7, "ts": 60, "dur": 10,
 "args": {"stream": 7, "device": 0, "bytes": 4096}},
{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#2", "pid": 0, "tid": 1, "ts": 91, "dur": 90, "args": {}},
{"ph": "X", "cat": "kernel", "name": "elementwise", "pid": 0, "tid": 7, "ts": 95, "dur": 30,
 "args": {"stream": 7, "device": 0, "correlation": 6}}]}"""
"""A trace of two steps with all that a reader looks at."""


def make_originals(folder: Path) -> None:
    """Write sound files of every kind below a folder."""
    for name, write in {**FOREIGN, **LOGS}.items():
        _write(folder / ("logs" if name in LOGS else "foreign") / name, write().encode())
    for name, text in SPECS.items():
        _write(folder / "specs" / name, text.encode())
    _write(folder / "tables" / "ops.csv", few_ops().encode())
    _write(folder / "tables" / "nccl.csv", few_collectives().encode())
    _write(folder / "tables" / "heat.csv", few_degrees().encode())
    _make_traces(folder / "traces")
    shutil.copytree(
        ROOT / "examples" / "h200-moe", folder / "recording", ignore=shutil.ignore_patterns("result.json", "*.parquet")
    )
    _make_runs(folder)


def _make_traces(folder: Path) -> None:
    for path in (ROOT / "examples" / "traces").iterdir():
        _write(folder / "gloo" / path.name, gzip.compress(_first_events(path), 1))
    traced = ROOT / "examples" / "h200-moe" / "kineto-rank-0.json.gz"
    _write(folder / "kineto" / "rank-0.json", _first_events(traced))
    for rank in (0, 1):
        _write(folder / "made" / f"rank-{rank}.json", MADE.replace(b"PLACE", b"%d" % rank))
    _write(folder / "one" / "rank-0.json", (ROOT / "tests" / "trace" / "nccl_one_rank.json").read_bytes())
    _write(folder / "chakra" / "rank-0.et", protobuf())


def _first_events(path: Path) -> bytes:
    """Return a trace with the events of its first part, so that reading it takes little time."""
    trace = json.loads(gzip.decompress(path.read_bytes()))
    trace["traceEvents"] = sorted(trace["traceEvents"], key=lambda event: event.get("ts", 0))[:EVENTS]
    return json.dumps(trace).encode()


def _make_runs(folder: Path) -> None:
    def ask(*words: str | Path) -> str:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
            code = main([str(word) for word in words])
        if code != 0:
            raise RuntimeError(f"charllm {words}: exit code {code}")
        return printed.getvalue()

    ask("simulate", *RUN, "--pp", "2", "--out", folder / "runs" / "a", "--chakra", folder / "traces" / "execution")
    ask("simulate", *RUN, "--out", folder / "runs" / "b")
    ask(
        "convert",
        "nvidia-smi",
        folder / "foreign" / "nvidia-smi.csv",
        "--log",
        folder / "logs" / "iterations.log",
        "-o",
        folder / "runs" / "converted",
    )
    shutil.copytree(folder / "recording", folder / "runs" / "measured")
    ask("show", folder / "runs" / "measured")
    ask("sweep", folder / "specs" / "study.toml", "--out", folder / "study")
    _write(
        folder / "plans" / "plan.json",
        ask("plan", *PLAN, "--json").encode(),
    )
    _write(folder / "timelines" / "timeline.json", ask("emulate", *RUN, "--print-timeline").encode())


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
