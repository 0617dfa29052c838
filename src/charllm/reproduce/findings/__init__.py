"""What the paper found: one file a subject; a finding is a function, so that nothing is read before it is asked for."""

from collections.abc import Callable

from charllm.reproduce.finding import Finding
from charllm.reproduce.findings.airflow import inside_packages, lost_to_heat, rear_front
from charllm.reproduce.findings.experts import locality
from charllm.reproduce.findings.faults import braked_node, one_straggler
from charllm.reproduce.findings.hardware import more_hardware, scale_up
from charllm.reproduce.findings.links import small_messages
from charllm.reproduce.findings.lora import efficiency
from charllm.reproduce.findings.microbatch import peak_power
from charllm.reproduce.findings.microbatch import throttling as microbatch_throttling
from charllm.reproduce.findings.overlap import temperature as overlap_temperature
from charllm.reproduce.findings.overlap import throttling as overlap_throttling
from charllm.reproduce.findings.pipelines import deep_pipelines
from charllm.reproduce.findings.placement import thermal_placement
from charllm.reproduce.findings.projections import datacenter, faster_network
from charllm.reproduce.findings.recompute import two_signs

FINDINGS: dict[str, Callable[[], Finding]] = {
    "more-hardware": more_hardware,
    "scale-up": scale_up,
    "small-messages": small_messages,
    "microbatch-peaks": peak_power,
    "microbatch-throttling": microbatch_throttling,
    "overlap-temperature": overlap_temperature,
    "overlap-throttling": overlap_throttling,
    "recompute": two_signs,
    "deep-pipelines": deep_pipelines,
    "rear-front": rear_front,
    "package-gap": inside_packages,
    "throttling-by-heat": lost_to_heat,
    "expert-locality": locality,
    "lora": efficiency,
    "braked-node": braked_node,
    "one-straggler": one_straggler,
    "thermal-placement": thermal_placement,
    "faster-network": faster_network,
    "datacenter": datacenter,
}
"""Name: finding; those of the paper's abstract first."""
