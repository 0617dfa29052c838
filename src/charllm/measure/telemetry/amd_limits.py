"""What holds an AMD GPU's clock down, from the driver's metrics table.

MI300 (table 1.6 on) counts, for each cause, the ticks of its accumulation counter in which it limited the clock. AMD's
header gives the share of time as the growth of a cause over the growth of that counter. `amdsmi_get_violation_status`
returns the same figures after sleeping 100 ms inside the call, so that they are taken from the table. MI200 and older
show the causes of the moment as bits (`indep_throttle_status`; Linux, drivers/gpu/drm/amd/pm/swsmu/inc/amdgpu_smu.h):
16 each for power, current, temperature and the rest.
"""

from collections.abc import Mapping

from charllm.gpu.limits import LIMITS

RESIDENCIES = {
    "power": ("ppt_residency_acc",),
    "thermal": (
        "socket_thm_residency_acc", "hbm_thm_residency_acc", "vr_thm_residency_acc", "prochot_residency_acc",
    ),
}  # fmt: skip
"""Limit: counters of the table that belong to it; more than one may count the same tick."""
TICKS = "accumulation_counter"
POWER_BITS, THERMAL_BITS = 0xFFFF, 0xFFFF << 32


def limits_from_bits(independent: int) -> float:
    """Fold throttle bits into LIMITS; limits of current count as other, as NVML's board limits do."""
    bits = LIMITS["power"] if independent & POWER_BITS else 0
    bits |= LIMITS["thermal"] if independent & THERMAL_BITS else 0
    return float(bits | (LIMITS["other"] if independent & ~(POWER_BITS | THERMAL_BITS) else 0))


class Residency:
    """Turns the counters of one GPU into seconds and into the limits of the moment."""

    def __init__(self) -> None:
        self.limited_s = dict.fromkeys(RESIDENCIES, 0.0)
        """Limit: seconds that it has held the clock down since the first reading."""
        self._last: Mapping[str, float] | None = None
        self._last_s = 0.0
        self._share = dict.fromkeys(RESIDENCIES, 0.0)
        self._owed = dict.fromkeys(RESIDENCIES, 0.0)

    def add(self, counts: Mapping[str, float], now_s: float) -> None:
        """Take the counters as they are now; ones that have not advanced leave everything as it was."""
        if self._last is not None:
            ticks = counts[TICKS] - self._last[TICKS]
            if ticks == 0:
                return
            for limit, names in RESIDENCIES.items():
                grown = max((counts[name] - self._last[name] for name in names if name in counts), default=0.0)
                # Counters that have fallen were reset with the GPU.
                self._share[limit] = min(1.0, max(0.0, grown) / ticks) if ticks > 0 else 0.0
                self.limited_s[limit] += self._share[limit] * (now_s - self._last_s)
        self._last, self._last_s = counts, now_s

    def limits(self) -> float:
        """Return the limits to show: over many readings, each is shown as often as it has held the clock down."""
        bits = 0
        for limit, share in self._share.items():
            self._owed[limit] += share
            if self._owed[limit] >= 0.5:
                self._owed[limit] -= 1.0
                bits |= LIMITS[limit]
        return float(bits)
