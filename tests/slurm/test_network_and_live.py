"""On a real Slurm cluster of two nodes: a run is watched and scraped as one, collectives are measured across nodes."""

import re
import subprocess
import sys
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from charllm.measure.bench.nccl_table import read_header, read_rows
from tests.ports import free_port
from tests.slurm.cluster import NODES
from tests.slurm.test_slurm import Charllm, await_steps, charllm, ended, measure, steps

__all__ = ["charllm"]


def test_all_nodes_of_a_run_are_watched_and_scraped_from_where_it_was_started(charllm: Charllm, replay: str) -> None:
    process = charllm.start(*measure(replay, "--watch", "--prometheus", "0", *steps(100)))
    assert process.stderr is not None
    first = process.stderr.readline()
    address = re.search(r"http://\S+", first)
    assert address is not None, first
    await_steps(charllm.place / "run", 30)
    with urllib.request.urlopen(address[0], timeout=10) as answer:
        families = {family.name: family for family in text_string_to_metric_families(answer.read().decode())}
    power = families["charllm_gpu_power_watts"].samples
    assert [(sample.labels["node"], sample.labels["gpu"]) for sample in power] == [
        (node, gpu) for node in NODES for gpu in ("0", "1")
    ]
    assert len({sample.labels["node"] for sample in families["charllm_reading_age_seconds"].samples}) == 2
    (done,) = [sample for sample in families["charllm_job_steps"].samples if sample.name.endswith("_total")]
    assert done.value >= 25
    code, _out, shown = ended(process)
    assert code == 0, shown
    assert ": running" in shown
    assert "4 GPUs on 2 nodes" in shown


def test_srun_and_torchrun_measure_collectives_between_nodes(charllm: Charllm) -> None:
    out = charllm.place / "nccl"
    launch = ["srun", "-N2", "--ntasks-per-node=1", sys.executable, "-m", "torch.distributed.run"]
    meet = [
        "--nnodes=2",
        "--nproc-per-node=1",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint=127.0.0.1:{free_port()}",
        "--rdzv-id=7",
    ]
    words = ["--device", "cpu", "--sizes", "1KiB:2KiB", "--collectives", "all_reduce,send", "--case-seconds", "0.2"]
    done = subprocess.run(
        [*launch, *meet, "-m", "charllm", "bench", "nccl", *words, "--out", str(out)],
        env=charllm.environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sorted(read_header(out)["node_of_rank"]) == list(NODES)
    assert read_header(out)["layout"]["dp"] == 2
    rows = read_rows(out)
    assert [(row.group, row.ranks, row.ranks_per_node) for row in rows] == [("dp", 2, 1)] * 4
    assert all(row.seconds_s for row in rows)
    assert "Collectives as measured" in done.stdout
