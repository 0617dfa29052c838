"""Check a machine before a run is measured on it."""

import os
from typing import Any, Unpack

from charllm.api.keywords import RunKeywords, Spec, build_request
from charllm.api.signature import public_with
from charllm.catalog.resolve import resolve_run
from charllm.measure.command_settings import PreflightKeywords, PreflightSettings
from charllm.measure.preflight.run import Preflight, check_machine
from charllm.spec.flags import take


class Keywords(PreflightKeywords, RunKeywords, total=False):
    """All words of a preflight."""


@public_with(PreflightSettings)
def preflight(spec: Spec | None = None, **words: Unpack[Keywords]) -> Preflight:
    """Check this machine, or `nodes` nodes of a Slurm allocation, before a measurement.

    Driver, clocks, power limits, links, network, idle GPUs, temperatures, memory, disk and time are checked, and all
    ranks run an all-reduce unless `reach` is False. With a `spec` or keywords of a run (``model=..., cluster=...``),
    GPUs and nodes are compared with it. ``result.checks`` lists the checks, ``result.failed`` says whether one failed.

    >>> import charllm
    >>> found = charllm.preflight(telemetry="none", reach=False)
    >>> {check.state for check in found.checks} <= {"ok", "warning", "failure", "not readable"}
    True
    """
    run: dict[str, Any] = dict(words)
    settings = take(PreflightSettings, run)
    described = resolve_run(build_request(spec, run)) if spec is not None or run else None
    return check_machine(settings, described, allocated="SLURM_JOB_ID" in os.environ)
