"""What only NVIDIA's driver tells of a GPU that is at rest: limits, links, repairs of its memory, other processes."""

from collections.abc import Callable
from typing import Any

from charllm.measure.telemetry.nvml import load_binding
from charllm.units import KILO, MEGA

Facts = dict[str, Any]
MOST_LINKS = 18
CAPPED_REASON = 0x2
"""Clock event reason: clocks that a user has set."""


def describe_gpus(binding: Any = None) -> dict[str, Facts]:
    """Return what the driver tells of each GPU, by UUID; what it does not tell is left out."""
    binding = binding or load_binding()
    try:
        binding.nvmlInit()
    except binding.NVMLError:
        return {}
    try:
        handles = [_try(binding, binding.nvmlDeviceGetHandleByIndex, n) for n in range(binding.nvmlDeviceGetCount())]
        found = {}
        for handle in handles:
            uuid = None if handle is None else _try(binding, binding.nvmlDeviceGetUUID, handle)
            if uuid is not None:
                found[uuid.decode() if isinstance(uuid, bytes) else str(uuid)] = _describe(binding, handle)
        return found
    finally:
        _try(binding, binding.nvmlShutdown)


def _try(nvml: Any, call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except nvml.NVMLError:
        return None


def _describe(nvml: Any, handle: Any) -> Facts:
    def ask(name: str, *arguments: Any) -> Any:
        call = getattr(nvml, name, None)
        return None if call is None else _try(nvml, call, handle, *arguments)

    sm = getattr(nvml, "NVML_CLOCK_SM", 1)
    target = getattr(nvml, "NVML_CLOCK_ID_APP_CLOCK_TARGET", 1)
    reasons = ask("nvmlDeviceGetCurrentClocksEventReasons")
    rows = ask("nvmlDeviceGetRemappedRows")
    processes = ask("nvmlDeviceGetComputeRunningProcesses")
    facts: Facts = {
        "power_default_w": _scaled(ask("nvmlDeviceGetPowerManagementDefaultLimit"), 1 / KILO),
        "clock_max_hz": _scaled(ask("nvmlDeviceGetMaxClockInfo", sm), MEGA),
        "clock_set_hz": _scaled(ask("nvmlDeviceGetClock", sm, target), MEGA),
        "clock_capped": None if reasons is None else bool(int(reasons) & CAPPED_REASON),
        "persistence": _flag(ask("nvmlDeviceGetPersistenceMode")),
        "rows_pending": None if rows is None else bool(rows[2]),
        "rows_failed": None if rows is None else bool(rows[3]),
        "processes": None if processes is None else len(processes),
        "pcie_width": ask("nvmlDeviceGetCurrPcieLinkWidth"),
        "pcie_width_max": ask("nvmlDeviceGetMaxPcieLinkWidth"),
        "pcie_generation_max": ask("nvmlDeviceGetMaxPcieLinkGeneration"),
        **_links(ask),
    }
    return {name: value for name, value in facts.items() if value is not None}


def _links(ask: Callable[..., Any]) -> Facts:
    """Return how many NVLinks are up and down; a GPU without any tells neither."""
    states = [
        state for state in (ask("nvmlDeviceGetNvLinkState", link) for link in range(MOST_LINKS)) if state is not None
    ]
    return {"links_up": sum(map(bool, states)), "links_down": sum(not state for state in states)} if states else {}


def _scaled(value: Any, factor: float) -> float | None:
    return None if value is None else float(value) * factor


def _flag(value: Any) -> bool | None:
    return None if value is None else bool(value)
