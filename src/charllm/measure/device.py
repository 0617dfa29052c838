"""Whether torch is here, and which GPU it works on."""

from collections.abc import Mapping

from charllm.errors import CharllmError, SpecError
from charllm.measure.launch import visible_gpus
from charllm.measure.telemetry import open_source
from charllm.measure.telemetry.source import GpuIdentity


def require_device(device: str) -> None:
    """Refuse a device that torch cannot use."""
    try:
        import torch
    except ImportError:
        raise CharllmError("running kernels needs torch: pip install 'charllm[torch]'") from None
    if device == "cuda" and not torch.cuda.is_available():
        raise SpecError("--device", device, "cpu: torch finds no GPU here")


def telemetry_gpus(telemetry: str, environment: Mapping[str, str]) -> list[str]:
    """Return the GPUs, by UUID, that a source reads and a job may see."""
    return [identity.uuid for identity in telemetry_identities(telemetry, environment)]


def telemetry_identities(telemetry: str, environment: Mapping[str, str]) -> list[GpuIdentity]:
    """Return the GPUs that a source reads and a job may see, in the order in which it sees them."""
    source = open_source(telemetry)
    try:
        found = {identity.uuid: identity for identity in source.facts.gpus}
        return [found[uuid] for uuid in visible_gpus(environment, list(found))]
    finally:
        source.close()
