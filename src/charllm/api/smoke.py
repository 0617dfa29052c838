"""Try every part of charllm that needs a machine, once, on a small run."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Unpack

from charllm.api.keywords import RunKeywords, Spec, build_request
from charllm.api.signature import public_with
from charllm.catalog.resolve import resolve_run
from charllm.catalog.sizes import Size, name_of, node_gpus, read_size, usual_machine
from charllm.catalog.tables import find_name
from charllm.errors import SpecError
from charllm.measure.command_settings import SmokeKeywords, SmokeSettings
from charllm.measure.job import prepare_folder
from charllm.measure.smoke import Trial, try_everything
from charllm.measure.telemetry import open_source
from charllm.spec.flags import take
from charllm.spec.request import Table, merge

SMALL: Table = {
    "model": {"base": "llama3-8b", "layers": 8},
    "training": {"seq_length": 4096, "micro_batch_size": 1},
    "framework": "pytorch-eager",
}
"""The run on GPUs: eight layers of Llama 3 8B."""
TINY: Table = {
    "model": {
        "name": "tiny", "layers": 2, "hidden": 64, "ffn": 128, "heads": 4, "kv_heads": 4, "vocab": 256,
        "seq_length": 64,
    },
    "training": {"seq_length": 64, "micro_batch_size": 1, "global_batch_size": 2, "precision": "fp32"},
    "framework": "pytorch-eager",
    "cluster": "h200x1",
}  # fmt: skip
"""The run on a CPU."""
QUICK: dict[str, Any] = {"train_steps": 3, "measured_steps": 6, "bench_s": 2.0, "rest_s": 0.2}


class Keywords(SmokeKeywords, RunKeywords, total=False):
    """All words of a trial."""


@public_with(SmokeSettings)
def smoke(
    spec: Spec | None = None, *, tell: Callable[[str], None] | None = None, **words: Unpack[Keywords]
) -> dict[str, Any]:
    """Run preflight, collectives, training, measurement, prediction and doctor once, on this machine or cluster.

    It takes about ten minutes, or seconds with `quick`; on several `nodes`, start it inside a Slurm allocation.
    Without a run, eight layers of Llama 3 8B are trained on the GPUs found, or a tiny model with `device` cpu.
    Returns the summary, which is stored in `out` with the logs of all parts.

    >>> import charllm
    >>> charllm.smoke(device="phone")
    Traceback (most recent call last):
    charllm.errors.SpecError: device: got 'phone'; expected one of cpu, cuda
    """
    run: dict[str, Any] = dict(words)
    settings = take(SmokeSettings, run)
    request = merge(TINY if settings.device == "cpu" else SMALL, build_request(spec, run))
    if "cluster" not in request:
        request["cluster"] = cluster_at_hand(settings.telemetry, settings.nodes)
    described = resolve_run(request)
    folder = settings.out or Path("charllm-runs") / time.strftime("smoke-%Y%m%d-%H%M%S")
    prepare_folder(folder)
    trial = Trial(
        run=described,
        folder=folder.absolute(),
        telemetry=settings.telemetry,
        device=settings.device,
        node_list=os.environ.get("SLURM_JOB_NODELIST", ""),
        **(QUICK if settings.quick else {}),
    )
    return try_everything(trial, tell or (lambda _words: None))


def cluster_at_hand(telemetry: str, nodes: int) -> str:
    """Return the cluster of the catalog that has the GPUs of this machine, so many nodes of it."""
    source = open_source(telemetry)
    try:
        names = {find_name("gpus", identity.name) or identity.name for identity in source.facts.gpus}
        count = len(source.facts.gpus)
    finally:
        source.close()
    if len(names) != 1:
        found = ", ".join(sorted(names)) or "no GPU"
        raise SpecError("--cluster", None, f"the name of a cluster: this machine has {found}")
    gpu = names.pop()
    name = name_of(Size(gpu, count * nodes))
    if read_size(name) is None or (nodes > 1 and count != node_gpus(usual_machine(gpu, "--cluster"))):
        raise SpecError("--cluster", None, f"the name of a cluster: the catalog has no {nodes} nodes of {count} {gpu}")
    return name
