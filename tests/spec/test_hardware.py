from dataclasses import replace

import pytest

from charllm.catalog.resolve import resolve_cluster
from charllm.errors import SpecError

CLUSTER = resolve_cluster("charllm-ppt-h200")


def test_a_cluster_counts_its_gpus() -> None:
    assert CLUSTER.gpus == 32
    assert resolve_cluster("charllm-ppt-mi250").gpus == 32


def test_heat_reaches_a_slot_from_those_the_air_passed_before() -> None:
    node = replace(CLUSTER.node, gpus=4, upstream=(-1, 0, 1, -1))
    assert node.upstream_slots(2) == (1, 0)
    assert node.upstream_slots(3) == ()


def test_a_ring_of_air_ends() -> None:
    node = replace(CLUSTER.node, gpus=2, upstream=(1, 0))
    assert node.upstream_slots(0) == (1, 0)


def test_a_package_shares_its_cap() -> None:
    gpu = resolve_cluster("charllm-ppt-mi250").gpu
    assert (gpu.package_gpus, gpu.power_cap_w) == (2, 500)


def test_precisions_without_hardware_have_no_peak() -> None:
    assert resolve_cluster("a100x8").gpu.peak_flop_per_s("fp8") == 0
    assert CLUSTER.gpu.peak_flop_per_s("mxfp8") == CLUSTER.gpu.peak_flop_per_s("fp8") > 0


@pytest.mark.parametrize("upstream", [(0,), (0, 0), (9, -1)])
def test_airflow_must_name_other_slots(upstream: tuple[int, ...]) -> None:
    with pytest.raises(SpecError):
        replace(CLUSTER.node, gpus=2, upstream=upstream)


def test_several_nodes_need_a_network() -> None:
    with pytest.raises(SpecError, match="NICs"):
        replace(CLUSTER, fabric=replace(CLUSTER.fabric, nics_per_node=0))


@pytest.mark.parametrize(
    ("part", "changes", "field"),
    [
        ("gpu", {"power_cap_w": 60.0, "power_cap_min_w": 0.0}, "power_cap_w"),
        ("gpu", {"power_cap_min_w": 900.0}, "power_cap_min_w"),
        ("gpu", {"clock_idle_hz": 0.0}, "clock_idle_hz"),
        ("gpu", {"clock_idle_hz": 3e9}, "clock_idle_hz"),
        ("gpu", {"slowdown_temperature_c": 60.0}, "max_operating_temperature_c"),
        ("gpu", {"peak_bf16_flop_per_s": 0.0, "peak_fp16_flop_per_s": 0.0}, "peak_bf16_flop_per_s"),
        ("gpu", {"peak_fp8_flop_per_s": 5.0}, "peak_fp8_flop_per_s"),
        ("gpu", {"peak_bf16_flop_per_s": 9e15, "peak_fp16_flop_per_s": 9e15}, "peak_bf16_flop_per_s"),
        ("gpu", {"peak_fp8_flop_per_s": 4e15}, "peak_fp8_flop_per_s"),
        ("gpu", {"peak_tf32_flop_per_s": 9e14}, "peak_tf32_flop_per_s"),
        ("gpu", {"peak_fp32_flop_per_s": 9e14}, "peak_fp32_flop_per_s"),
        ("gpu", {"memory_bytes": 1.0}, "memory_bytes"),
        ("gpu", {"memory_bandwidth_bytes_per_s": -1.0}, "memory_bandwidth_bytes_per_s"),
        ("node", {"link_bandwidth_bytes_per_s": 3.0}, "link_bandwidth_bytes_per_s"),
        ("node", {"sink_resistance_k_per_w": 9.0}, "sink_resistance_k_per_w"),
        ("fabric", {"nic_bandwidth_bytes_per_s": 0.0}, "nic_bandwidth_bytes_per_s"),
        ("fabric", {"nic_bandwidth_bytes_per_s": 1.0}, "nic_bandwidth_bytes_per_s"),
        ("fabric", {"port_bandwidth_bytes_per_s": 1e9}, "nic_bandwidth_bytes_per_s"),
        ("cooling", {"inlet_c": 1e9}, "inlet_c"),
    ],
)
def test_a_figure_that_cannot_be_is_refused(part: str, changes: dict[str, float], field: str) -> None:
    with pytest.raises(SpecError) as caught:
        replace(getattr(CLUSTER, part), **changes)
    assert caught.value.field == field
