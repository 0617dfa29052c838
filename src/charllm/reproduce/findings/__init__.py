"""What the paper found: one file a subject; a finding is a function, so that nothing is read before it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from charllm.reproduce.finding import Finding


def _of(file: str, function: str) -> Callable[[], Finding]:
    def find() -> Finding:
        found: Finding = getattr(import_module(f"{__name__}.{file}"), function)()
        return found

    return find


FINDINGS: dict[str, Callable[[], Finding]] = {
    "more-hardware": _of("hardware", "more_hardware"),
    "scale-up": _of("hardware", "scale_up"),
    "scale-out": _of("hardware", "scale_out"),
    "small-messages": _of("links", "small_messages"),
    "microbatch-bursts": _of("microbatch", "bursts"),
    "microbatch-peaks": _of("microbatch", "peak_power"),
    "microbatch-throttling": _of("microbatch", "throttling"),
    "overlap-temperature": _of("overlap", "temperature"),
    "overlap-throttling": _of("overlap", "throttling"),
    "recompute": _of("recompute", "two_signs"),
    "deep-pipelines": _of("pipelines", "deep_pipelines"),
    "rear-front": _of("airflow", "rear_front"),
    "package-gap": _of("airflow", "inside_packages"),
    "throttling-by-heat": _of("airflow", "lost_to_heat"),
    "expert-locality": _of("experts", "locality"),
    "lora": _of("lora", "efficiency"),
    "braked-node": _of("faults", "braked_node"),
    "one-straggler": _of("faults", "one_straggler"),
    "thermal-placement": _of("placement", "thermal_placement"),
    "faster-network": _of("projections", "faster_network"),
    "datacenter": _of("projections", "datacenter"),
}
"""Name: finding; first those of the sentences of the paper's abstract (arXiv:2509.10371), in their order."""
