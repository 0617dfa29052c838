"""What the columns, fields and metrics of known tools are. Adding one: a line here."""

import re

from charllm.measure.convert.foreign import POWER, Meaning
from charllm.units import MEGA, MIB, MICRO, MILLI

PERCENT = 0.01

NVIDIA_SMI: dict[str, Meaning] = {
    "power.draw": Meaning(POWER, rank=2),
    "power.draw.average": Meaning("power_average_w"),
    "power.draw.instant": Meaning("power_instant_w"),
    "enforced.power.limit": Meaning("power_limit_w"),
    "power.limit": Meaning("power_limit_w", rank=1),
    "total_energy_consumption": Meaning("energy_j", MILLI),
    "temperature.gpu": Meaning("temperature_c"),
    "temperature.memory": Meaning("memory_temperature_c"),
    "temperature.gpu.tlimit": Meaning("margin_k"),
    "clocks.current.sm": Meaning("clock_hz", MEGA),
    "clocks.sm": Meaning("clock_hz", MEGA),
    "clocks.current.graphics": Meaning("clock_hz", MEGA, rank=1),
    "clocks.gr": Meaning("clock_hz", MEGA, rank=1),
    "clocks.current.memory": Meaning("memory_clock_hz", MEGA),
    "clocks.mem": Meaning("memory_clock_hz", MEGA),
    "utilization.gpu": Meaning("utilization_fraction", PERCENT),
    "utilization.memory": Meaning("memory_utilization_fraction", PERCENT),
    "memory.used": Meaning("memory_used_bytes", MIB),
    "ecc.errors.uncorrected.volatile.total": Meaning("ecc_errors"),
    "clocks_event_reasons.active": Meaning("limits", how="reasons"),
    "clocks_event_reasons.gpu_idle": Meaning("limits", 0x1, "reason"),
    "clocks_event_reasons.applications_clocks_setting": Meaning("limits", 0x2, "reason"),
    "clocks_event_reasons.sw_power_cap": Meaning("limits", 0x4, "reason"),
    "clocks_event_reasons.hw_slowdown": Meaning("limits", 0x8, "reason"),
    "clocks_event_reasons.sync_boost": Meaning("limits", 0x10, "reason"),
    "clocks_event_reasons.sw_thermal_slowdown": Meaning("limits", 0x20, "reason"),
    "clocks_event_reasons.hw_thermal_slowdown": Meaning("limits", 0x40, "reason"),
    "clocks_event_reasons.hw_power_brake_slowdown": Meaning("limits", 0x80, "reason"),
}
"""A field of ``nvidia-smi --query-gpu``, in the unit of ``nounits``; older drivers say throttle for event."""
DMON: dict[str, Meaning] = {
    "pwr": Meaning(POWER, rank=2),
    "gtemp": Meaning("temperature_c"),
    "temp": Meaning("temperature_c"),
    "mtemp": Meaning("memory_temperature_c"),
    "sm": Meaning("utilization_fraction", PERCENT),
    "mem": Meaning("memory_utilization_fraction", PERCENT),
    "mclk": Meaning("memory_clock_hz", MEGA),
    "pclk": Meaning("clock_hz", MEGA),
    "fb": Meaning("memory_used_bytes", MIB),
}
"""A heading of ``nvidia-smi dmon``."""
DCGM: dict[str, Meaning] = {
    "DEV_SM_CLOCK": Meaning("clock_hz", MEGA),
    "DEV_MEM_CLOCK": Meaning("memory_clock_hz", MEGA),
    "DEV_CLOCK_THROTTLE_REASONS": Meaning("limits", how="reasons"),
    "DEV_CLOCKS_EVENT_REASONS": Meaning("limits", how="reasons"),
    "DEV_MEMORY_TEMP": Meaning("memory_temperature_c"),
    "DEV_GPU_TEMP": Meaning("temperature_c"),
    "DEV_GPU_TEMP_LIMIT": Meaning("margin_k"),
    "DEV_POWER_USAGE": Meaning(POWER, rank=2),
    "DEV_POWER_USAGE_INSTANT": Meaning("power_instant_w"),
    "DEV_TOTAL_ENERGY_CONSUMPTION": Meaning("energy_j", MILLI),
    "DEV_POWER_MGMT_LIMIT": Meaning("power_limit_w", rank=1),
    "DEV_ENFORCED_POWER_LIMIT": Meaning("power_limit_w"),
    "DEV_GPU_UTIL": Meaning("utilization_fraction", PERCENT),
    "DEV_MEM_COPY_UTIL": Meaning("memory_utilization_fraction", PERCENT),
    "DEV_FB_USED": Meaning("memory_used_bytes", MIB),
    "DEV_ECC_DBE_VOL_TOTAL": Meaning("ecc_errors"),
    "DEV_POWER_VIOLATION": Meaning("power_limited_s", MICRO),
    "DEV_THERMAL_VIOLATION": Meaning("thermally_limited_s", MICRO),
    "DEV_BOARD_LIMIT_VIOLATION": Meaning("board_limited_s", MICRO),
    "PROF_SM_ACTIVE": Meaning("sm_active_fraction"),
    "PROF_PIPE_TENSOR_ACTIVE": Meaning("tensor_active_fraction"),
    "PROF_DRAM_ACTIVE": Meaning("dram_active_fraction"),
    "PROF_PCIE_TX_BYTES": Meaning("pcie_sent_bytes", how="rate"),
    "PROF_PCIE_RX_BYTES": Meaning("pcie_received_bytes", how="rate"),
    "PROF_NVLINK_TX_BYTES": Meaning("link_sent_bytes", how="rate"),
    "PROF_NVLINK_RX_BYTES": Meaning("link_received_bytes", how="rate"),
}
"""A field of DCGM, without DCGM_FI_."""
DCGM_TAGS: dict[str, str] = {
    "SMCLK": "DEV_SM_CLOCK", "MMCLK": "DEV_MEM_CLOCK", "DVCCTR": "DEV_CLOCK_THROTTLE_REASONS",
    "MMTMP": "DEV_MEMORY_TEMP", "TMPTR": "DEV_GPU_TEMP", "POWER": "DEV_POWER_USAGE", "POWR": "DEV_POWER_USAGE",
    "GTEMP": "DEV_GPU_TEMP", "GPUT": "DEV_GPU_TEMP", "TOTEC": "DEV_TOTAL_ENERGY_CONSUMPTION",
    "GPUTL": "DEV_GPU_UTIL", "MCUTL": "DEV_MEM_COPY_UTIL", "FBUSD": "DEV_FB_USED", "SMACT": "PROF_SM_ACTIVE",
    "TENSO": "PROF_PIPE_TENSOR_ACTIVE", "DRAMA": "PROF_DRAM_ACTIVE", "PCITX": "PROF_PCIE_TX_BYTES",
    "PCIRX": "PROF_PCIE_RX_BYTES", "NVLTX": "PROF_NVLINK_TX_BYTES", "NVLRX": "PROF_NVLINK_RX_BYTES",
    "PVIOL": "DEV_POWER_VIOLATION", "TVIOL": "DEV_THERMAL_VIOLATION", "PWRIN": "DEV_POWER_USAGE_INSTANT",
    "PWINST": "DEV_POWER_USAGE_INSTANT", "EDVTX": "DEV_ECC_DBE_VOL_TOTAL", "EDVTL": "DEV_ECC_DBE_VOL_TOTAL",
    "PMLMT": "DEV_POWER_MGMT_LIMIT", "EFPLM": "DEV_ENFORCED_POWER_LIMIT",
}  # fmt: skip
"""A heading of ``dcgmi dmon``: the field it is of."""
DCGM_IDS: dict[str, str] = {
    "100": "DEV_SM_CLOCK", "101": "DEV_MEM_CLOCK", "112": "DEV_CLOCK_THROTTLE_REASONS", "140": "DEV_MEMORY_TEMP",
    "150": "DEV_GPU_TEMP", "155": "DEV_POWER_USAGE", "156": "DEV_TOTAL_ENERGY_CONSUMPTION",
    "157": "DEV_POWER_USAGE_INSTANT", "160": "DEV_POWER_MGMT_LIMIT", "164": "DEV_ENFORCED_POWER_LIMIT",
    "203": "DEV_GPU_UTIL", "204": "DEV_MEM_COPY_UTIL", "240": "DEV_POWER_VIOLATION", "241": "DEV_THERMAL_VIOLATION",
    "252": "DEV_FB_USED", "1002": "PROF_SM_ACTIVE", "1004": "PROF_PIPE_TENSOR_ACTIVE", "1005": "PROF_DRAM_ACTIVE",
    "1009": "PROF_PCIE_TX_BYTES", "1010": "PROF_PCIE_RX_BYTES", "1011": "PROF_NVLINK_TX_BYTES",
    "1012": "PROF_NVLINK_RX_BYTES",
}  # fmt: skip
"""Number of a field of DCGM."""
EXPORTERS: dict[str, Meaning] = {
    # nvidia_gpu_exporter
    "nvidia_smi_power_draw_watts": Meaning(POWER, rank=2),
    "nvidia_smi_power_draw_average_watts": Meaning("power_average_w"),
    "nvidia_smi_power_draw_instant_watts": Meaning("power_instant_w"),
    "nvidia_smi_enforced_power_limit_watts": Meaning("power_limit_w"),
    "nvidia_smi_power_limit_watts": Meaning("power_limit_w", rank=1),
    "nvidia_smi_temperature_gpu": Meaning("temperature_c"),
    "nvidia_smi_temperature_memory": Meaning("memory_temperature_c"),
    "nvidia_smi_clocks_current_sm_clock_hz": Meaning("clock_hz"),
    "nvidia_smi_clocks_current_graphics_clock_hz": Meaning("clock_hz", rank=1),
    "nvidia_smi_clocks_current_memory_clock_hz": Meaning("memory_clock_hz"),
    "nvidia_smi_utilization_gpu_ratio": Meaning("utilization_fraction"),
    "nvidia_smi_utilization_memory_ratio": Meaning("memory_utilization_fraction"),
    "nvidia_smi_memory_used_bytes": Meaning("memory_used_bytes"),
    "nvidia_smi_clocks_throttle_reasons_active": Meaning("limits", how="reasons"),
    "nvidia_smi_clocks_event_reasons_active": Meaning("limits", how="reasons"),
    "nvidia_smi_ecc_errors_uncorrected_volatile_total": Meaning("ecc_errors"),
    # nvidia_gpu_prometheus_exporter
    "nvidia_gpu_power_usage_milliwatts": Meaning(POWER, MILLI, rank=2),
    "nvidia_gpu_temperature_celsius": Meaning("temperature_c"),
    "nvidia_gpu_duty_cycle": Meaning("utilization_fraction", PERCENT),
    "nvidia_gpu_memory_used_bytes": Meaning("memory_used_bytes"),
    # dcgm-exporter 1
    "dcgm_power_usage": Meaning(POWER, rank=2),
    "dcgm_gpu_temp": Meaning("temperature_c"),
    "dcgm_memory_temp": Meaning("memory_temperature_c"),
    "dcgm_sm_clock": Meaning("clock_hz", MEGA),
    "dcgm_memory_clock": Meaning("memory_clock_hz", MEGA),
    "dcgm_gpu_utilization": Meaning("utilization_fraction", PERCENT),
    "dcgm_mem_copy_utilization": Meaning("memory_utilization_fraction", PERCENT),
    "dcgm_fb_used": Meaning("memory_used_bytes", MIB),
    "dcgm_total_energy_consumption": Meaning("energy_j", MILLI),
    # Triton
    "nv_gpu_power_usage": Meaning(POWER, rank=2),
    "nv_gpu_power_limit": Meaning("power_limit_w"),
    "nv_gpu_utilization": Meaning("utilization_fraction"),
    "nv_gpu_memory_used_bytes": Meaning("memory_used_bytes"),
    "nv_energy_consumption": Meaning("energy_j"),
    # AMD device-metrics-exporter
    "gpu_power_usage": Meaning("power_instant_w"),
    "gpu_package_power": Meaning("power_instant_w", rank=1),
    "gpu_average_package_power": Meaning("power_average_w"),
    "gpu_energy_consumed": Meaning("energy_j", MICRO),
    "gpu_junction_temperature": Meaning("hotspot_c"),
    "gpu_edge_temperature": Meaning("temperature_c"),
    "gpu_memory_temperature": Meaning("memory_temperature_c"),
    "gpu_gfx_activity": Meaning("utilization_fraction", PERCENT),
    "gpu_umc_activity": Meaning("memory_utilization_fraction", PERCENT),
    "gpu_used_vram": Meaning("memory_used_bytes", MIB),
    "gpu_ecc_uncorrect_total": Meaning("ecc_errors"),
}
"""A metric of an exporter for Prometheus."""
AMD_SMI: dict[str, Meaning] = {
    "socket_power": Meaning("power_instant_w"),
    "average_socket_power": Meaning("power_average_w"),
    "current_socket_power": Meaning("power_instant_w"),
    "average graphics package power": Meaning("power_average_w"),
    "current socket graphics package power": Meaning("power_instant_w"),
    "power": Meaning("power_instant_w", rank=1),
    "power_usage": Meaning("power_instant_w", rank=1),
    "hotspot": Meaning("hotspot_c"),
    "hotspot_temperature": Meaning("hotspot_c"),
    "gpu_t": Meaning("temperature_c"),
    "temperature sensor junction": Meaning("hotspot_c"),
    "edge": Meaning("temperature_c"),
    "edge_temperature": Meaning("temperature_c"),
    "temperature sensor edge": Meaning("temperature_c"),
    "memory_temperature": Meaning("memory_temperature_c"),
    "mem_t": Meaning("memory_temperature_c"),
    "temperature sensor memory": Meaning("memory_temperature_c"),
    "gfx_clk": Meaning("clock_hz", MEGA),
    "gfx_clock": Meaning("clock_hz", MEGA),
    "sclk clock speed": Meaning("clock_hz", MEGA),
    "sclk clock speed:": Meaning("clock_hz", MEGA),
    "mclk clock speed": Meaning("memory_clock_hz", MEGA),
    "mclk clock speed:": Meaning("memory_clock_hz", MEGA),
    "mem_clock": Meaning("memory_clock_hz", MEGA),
    "mem_0_clk": Meaning("memory_clock_hz", MEGA),
    "gfx_activity": Meaning("utilization_fraction", PERCENT),
    "gfx": Meaning("utilization_fraction", PERCENT),
    "gpu use": Meaning("utilization_fraction", PERCENT),
    "umc_activity": Meaning("memory_utilization_fraction", PERCENT),
    "gpu memory use": Meaning("memory_utilization_fraction", PERCENT),
    "used_vram": Meaning("memory_used_bytes", MIB),
    "vram_used": Meaning("memory_used_bytes", MIB),
    "vram total used memory": Meaning("memory_used_bytes"),
    "total_energy_consumption": Meaning("energy_j"),
    "energy_accumulator": Meaning("energy_j"),
}
"""A column of ``amd-smi metric --csv``, ``amd-smi monitor --csv`` or ``rocm-smi --csv``, in small letters."""
WANDB: dict[str, Meaning] = {
    "powerwatts": Meaning(POWER, rank=2),
    "enforcedpowerlimitwatts": Meaning("power_limit_w"),
    "temp": Meaning("temperature_c"),
    "gpu": Meaning("utilization_fraction", PERCENT),
    "memory": Meaning("memory_utilization_fraction", PERCENT),
    "memoryallocatedbytes": Meaning("memory_used_bytes"),
    "smclock": Meaning("clock_hz", MEGA),
    "memoryclock": Meaning("memory_clock_hz", MEGA),
    "memorytemp": Meaning("memory_temperature_c"),
}
"""A system metric of a GPU in Weights & Biases (wandb-events.jsonl, or an export of its charts), in small letters."""
CHARLLM_PPT: dict[str, Meaning] = {
    "gpu_power": Meaning("power_instant_w"),
    "mem_power": Meaning("memory_power_w"),
    "gpu_thermal": Meaning("temperature_c"),
    "mem_thermal": Meaning("memory_temperature_c"),
    "gpu_util": Meaning("utilization_fraction", PERCENT),
    "mem_util": Meaning("memory_utilization_fraction", PERCENT),
    "sm_clock": Meaning("clock_hz", MEGA),
    "mem_clock": Meaning("memory_clock_hz", MEGA),
    "pcie_tx_bytes": Meaning("pcie_sent_bytes", how="wrapped"),
    "pcie_rx_bytes": Meaning("pcie_received_bytes", how="wrapped"),
}
"""A metric of the paper's artifact; its NVLink counters are of link 0 alone and stay out."""

LATER_NAMES = {"clocks_throttle_reasons.": "clocks_event_reasons."}
EXPORTED_REASON = re.compile(r"^nvidia_smi_clocks_(?:throttle|event)_reasons_(\w+)$")


def smi_meaning(field: str) -> Meaning | None:
    """Return what a field of nvidia-smi is, whatever driver wrote it."""
    name = field.strip().lower()
    for old, new in LATER_NAMES.items():
        name = name.replace(old, new)
    return NVIDIA_SMI.get(name)


def dcgm_meaning(field: str) -> Meaning | None:
    """Return what a field of DCGM is: by name, by the heading of dmon, or by number."""
    name = field.strip().upper().removeprefix("DCGM_FI_").removesuffix("_TOTAL") if field else ""
    full = field.strip().upper().removeprefix("DCGM_FI_")
    return DCGM.get(full) or DCGM.get(name) or DCGM.get(DCGM_TAGS.get(full, DCGM_IDS.get(full, "")))


def metric_meaning(metric: str) -> Meaning | None:
    """Return what a metric of Prometheus is."""
    if metric.upper().startswith("DCGM_FI_"):
        return dcgm_meaning(metric)
    name = metric.lower()
    reason = EXPORTED_REASON.match(name)
    if reason and name not in EXPORTERS:
        return smi_meaning(f"clocks_event_reasons.{reason[1]}")
    return EXPORTERS.get(name) or EXPORTERS.get(name.removeprefix("amd_")) or EXPORTERS.get(name.removesuffix("_total"))
