"""Check a machine before a run is measured on it."""

import os
from os import PathLike
from pathlib import Path
from typing import Unpack

from charllm.api.keywords import RunKeywords, Spec, as_path, build_request
from charllm.api.signature import public
from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.measure.preflight.run import Asked, Preflight, check_machine

MOST_NODES = 65_536


@public
def preflight(
    spec: Spec | None = None,
    *,
    nodes: int | None = None,
    telemetry: str = "auto",
    out: str | PathLike[str] | None = None,
    reach: bool = True,
    **run: Unpack[RunKeywords],
) -> Preflight:
    """Check this machine, or `nodes` nodes of a Slurm allocation, before a measurement.

    Driver, clocks, power limits, links, network, idle GPUs, temperatures, memory, disk and time are checked, and all
    ranks run an all-reduce unless `reach` is False. With a `spec` or keywords of a run (``model=..., cluster=...``),
    GPUs and nodes are compared with it. ``result.checks`` lists the checks, ``result.failed`` says whether one failed.

    >>> import charllm
    >>> found = charllm.preflight(telemetry="none", reach=False)
    >>> {check.state for check in found.checks} <= {"ok", "warning", "failure", "not readable"}
    True
    """
    described = resolve_run(build_request(spec, run)) if spec is not None or run else None
    if nodes is not None and (isinstance(nodes, bool) or not isinstance(nodes, int) or not 1 <= nodes <= MOST_NODES):
        raise SpecError("--nodes", nodes, f"a whole number from 1 to {MOST_NODES}")
    count = nodes or (1 if described is None else described.cluster.nodes)
    folder = Path() if out is None else as_path(out, "--out")
    return check_machine(Asked(described, count, telemetry, folder, reach, allocated="SLURM_JOB_ID" in os.environ))
