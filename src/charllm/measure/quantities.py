"""What can be read of a GPU, in words that hold for every vendor."""

from typing import NamedTuple


class Quantity(NamedTuple):
    """One thing a telemetry source may read."""

    meaning: str
    beat: str = "slow"
    """How often it is read: a key of BEATS."""


QUANTITIES: dict[str, Quantity] = {
    "power_instant_w": Quantity("Board power, mean over the sensor's box.", beat="fast"),
    "power_average_w": Quantity("Board power, mean over the last second.", beat="fast"),
    "energy_j": Quantity("Energy since the driver was loaded.", beat="energy"),
    "temperature_c": Quantity("Temperature the vendor's tool shows.", beat="fast"),
    "clock_hz": Quantity("Clock of the multiprocessors.", beat="fast"),
    "limits": Quantity("Causes of throttling: bits of LIMITS.", beat="fast"),
    "memory_temperature_c": Quantity("Temperature of the memory."),
    "hotspot_c": Quantity("Hottest place of the die, where the vendor shows it beside temperature_c."),
    "margin_k": Quantity("Kelvins to the nearest slowdown."),
    "memory_clock_hz": Quantity("Clock of the memory."),
    "memory_power_w": Quantity("Power of the memory."),
    "utilization_fraction": Quantity("Share of time a kernel was resident."),
    "memory_utilization_fraction": Quantity("Share of time the memory was busy."),
    "memory_used_bytes": Quantity("Device memory in use."),
    "power_limit_w": Quantity("Power limit in force."),
    "power_limited_s": Quantity("Time throttled by the power limit, from any start."),
    "thermally_limited_s": Quantity("Time throttled by temperature."),
    "board_limited_s": Quantity("Time throttled by a limit of the board (peak current, brake)."),
    "pcie_sent_bytes": Quantity("Bytes sent over PCIe."),
    "pcie_received_bytes": Quantity("Bytes received over PCIe."),
    "link_sent_bytes": Quantity("Bytes sent over all scale-up links."),
    "link_received_bytes": Quantity("Bytes received over all scale-up links."),
    "sm_active_fraction": Quantity("Share of multiprocessor cycles with work."),
    "tensor_active_fraction": Quantity("Share of cycles the matrix units were busy."),
    "dram_active_fraction": Quantity("Share of cycles memory moved data."),
    "ecc_errors": Quantity("Uncorrected memory errors since the driver was loaded."),
    "faults": Quantity("Faults the driver has reported since sampling began (Xid, resets, memory faults)."),
}
"""Name (with its unit): what it is."""

BEATS: dict[str, tuple[str, ...]] = {
    beat: tuple(name for name, quantity in QUANTITIES.items() if quantity.beat == beat)
    for beat in ("fast", "energy", "slow")
}
"""fast: on every beat. energy: when the board shows new readings, as often as the call's cost allows (milliseconds on
an H200). slow: once a second."""
COUNTERS = (
    "energy_j", "power_limited_s", "thermally_limited_s", "board_limited_s", "pcie_sent_bytes", "pcie_received_bytes",
    "link_sent_bytes", "link_received_bytes", "ecc_errors", "faults",
)  # fmt: skip
"""Quantities that only grow."""
