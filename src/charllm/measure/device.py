"""Whether torch is here, and which GPU it works on: ROCm builds of torch call an AMD GPU ``cuda`` too."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from charllm.catalog.tables import find_name
from charllm.errors import MissingExtra, SpecError
from charllm.measure.launch import visible_gpus
from charllm.measure.launchers.plan import Plan
from charllm.measure.telemetry import open_source
from charllm.measure.telemetry.source import GpuIdentity


def require_device(device: str) -> None:
    """Refuse a device that torch cannot use."""
    try:
        import torch
    except ImportError:
        raise MissingExtra("running kernels needs torch", "torch") from None
    if device == "cuda" and not torch.cuda.is_available():
        build = {"cuda": "built for CUDA", "hip": "built for ROCm", "cpu": "built for CPUs only"}[platform()]
        raise SpecError("--device", device, f"cpu: torch finds no GPU here (it is {build})")


def platform() -> str:
    """Return what this torch runs kernels with: cuda, hip, or cpu alone."""
    import torch

    if getattr(torch.version, "hip", None):
        return "hip"
    return "cuda" if torch.version.cuda else "cpu"


@cache
def fp8_type() -> Any:
    """Return the 8-bit type that the GPU multiplies: MI300's has no negative zero, all others' is OCP's."""
    import torch

    if platform() == "hip" and torch.cuda.get_device_properties(0).gcnArchName.startswith("gfx94"):
        return torch.float8_e4m3fnuz
    return torch.float8_e4m3fn


def telemetry_gpus(telemetry: str, environment: Mapping[str, str]) -> list[str]:
    """Return the GPUs, by UUID, that a source reads and a job may see."""
    return [identity.uuid for identity in telemetry_identities(telemetry, environment)]


def telemetry_identities(telemetry: str, environment: Mapping[str, str]) -> list[GpuIdentity]:
    """Return the GPUs that a source reads and a job may see, in the order in which it sees them."""
    source = open_source(telemetry)
    try:
        found = {identity.uuid: identity for identity in source.facts.gpus}
        vendor = source.facts.details.get("replayed", source.facts.name)
        return [found[uuid] for uuid in visible_gpus(environment, list(found), vendor)]
    finally:
        source.close()


def judge_gpus(plan: Plan, names: Mapping[str, Sequence[str]]) -> str:
    """Return why the GPUs of nodes, by their names, cannot run a plan together; nothing where they can."""
    shown = "; ".join(f"{node} has {', '.join(dict.fromkeys(found)) or 'none'}" for node, found in names.items())
    every = [name for found in names.values() for name in found]
    if plan.gpu is not None and any(find_name("gpus", name) != plan.gpu for name in every):
        return f"{'mixed GPU types' if len({*every}) > 1 else 'another GPU'}: the spec names {plan.gpu}; {shown}"
    for node, found in names.items():
        if plan.gpus_per_node is not None and found and len(found) != plan.gpus_per_node:
            return f"--gpus-per-node: got {plan.gpus_per_node}; expected {len(found)}, which {node} shows to this job"
    return ""
