"""Fill in what is not known of a GPU's power and heat, scaled from the H200 that was measured.

Equation: watts scale with the power cap, voltage with the clock over the highest, resistances with 1 / cap (a sink is
chosen for a temperature). The energy of a matrix operation is what the cap leaves at the clock and rate at which large
products are known to run: flop_j = ((hold cap - static - memory) / v^2 - context f / f_max) / rate.

Source: evaluate/h200/readings for the H200; the scaling itself is assumed.
Ignores: process nodes, packaging, memory generations.
"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from charllm.gpu.physics import voltage

CAP_W = 700.0
CLOCK_HZ = 1.98e9
WATTS = {
    "idle_w": 76.0,
    "static_w": 76.0,
    "context_w": 45.0,
    "active_w": 10.5,
    "leakage_w_per_k": 0.725,
    "polling_w": 130.0,
}
"""Of an H200; scale with the cap."""
VOLTAGE = {"voltage_slope_per_hz": 0.4427e-9, "voltage_reference_hz": 1.5e9}
ENERGIES = {
    "softmax_flop_fraction": 0.0826,
    "softmax_backward_flop_fraction": 0.276,
    "instruction_j": 14.16e-12,
    "cache_byte_j": 31.4e-12,
    "memory_byte_j": 58.1e-12,
    "link_byte_j": 10e-12,
    "voltage_floor_fraction": 0.95,
}
"""Of an H200; taken over as they are."""
RESISTANCES = {
    "die_resistance_k_per_w": 0.0299,
    "base_resistance_k_per_w": 0.0171,
    "sink_resistance_k_per_w": 0.0091,
    "memory_board_resistance_k_per_w": 0.025,
    "memory_resistance_k_per_w": 0.094,
}
"""Of a GPU of 700 W in an air-cooled node of eight (benchmarks/fit_heat.py); scale with 1 / cap."""
TIMES = {"die_time_s": 0.31, "base_time_s": 10.6, "sink_time_s": 46.3, "memory_byte_heat_j": 47e-12}
PRODUCT_RATE_FRACTION = 0.7
"""Derived: sustained rate of large products over the peak, as on an H200."""
PRODUCT_CLOCK_FRACTION = 0.74
"""Clock over the highest that the cap leaves large products on an H200; taken over."""
PRODUCT_BYTES_PER_FLOP = 1.1e-3
"""Memory traffic of large products over their arithmetic, on an H200."""
FORMAT_ENERGY = {"fp8_flop_j": 0.5, "fp4_flop_j": 0.25, "fp32_flop_j": 11.9}
"""Energy of an operation over a 16-bit one where its own is not known; that of fp32: 699 W at 43 TFLOP/s on an H200."""


def fill_board(gpu: Mapping[str, Any], given: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return the tables inside a GPU's table, complete."""
    cap_w = gpu["power_cap_w"] / gpu.get("package_gpus", 1) if "power_cap_w" in gpu else CAP_W
    watts, clock = cap_w / CAP_W, gpu.get("clock_max_hz", CLOCK_HZ) / CLOCK_HZ
    power: dict[str, Any] = {
        **{name: value * watts for name, value in WATTS.items()},
        "voltage_slope_per_hz": VOLTAGE["voltage_slope_per_hz"] / clock,
        "voltage_reference_hz": VOLTAGE["voltage_reference_hz"] * clock,
        **ENERGIES,
        **given["power"],
    }
    resistances = {name: value / watts for name, value in RESISTANCES.items()}
    # A package has one sink, chosen for the watts of all its GPUs.
    resistances["sink_resistance_k_per_w"] /= gpu.get("package_gpus", 1)
    heat = {**resistances, **TIMES, **given["heat"]}
    governor = dict(given["governor"])
    if "flop_j" not in power:
        power["flop_j"] = _product_energy_j(gpu, power, cap_w * governor.get("hold_fraction", 0.987))
    for name, factor in FORMAT_ENERGY.items():
        power.setdefault(name, power["flop_j"] * factor)
    return {**given, "power": power, "governor": governor, "heat": heat}


def _product_energy_j(gpu: Mapping[str, Any], power: Mapping[str, Any], held_w: float) -> float:
    """Return the energy of a matrix operation with which large products draw the cap at their known clock."""
    clock_max = gpu.get("clock_max_hz", CLOCK_HZ)
    peak = gpu.get("peak_bf16_flop_per_s") or gpu.get("peak_fp16_flop_per_s") or 1e15
    rate = PRODUCT_RATE_FRACTION * peak
    constants: Any = SimpleNamespace(**power)
    volts = float(voltage(constants, PRODUCT_CLOCK_FRACTION * clock_max))
    traffic = PRODUCT_BYTES_PER_FLOP * rate
    left_w = held_w - power["static_w"] - power["active_w"] - power["memory_byte_j"] * traffic
    on_die_w = left_w / volts**2 - power["context_w"] * PRODUCT_CLOCK_FRACTION - power["cache_byte_j"] * traffic
    return float(max(1e-14, on_die_w / rate))
