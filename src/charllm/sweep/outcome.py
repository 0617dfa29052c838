"""What became of one case of a study."""

import json
from typing import Any, NamedTuple

from charllm.result.result import RunResult


class Outcome(NamedTuple):
    """One case after it was tried: 0 simulated, 2 the request is wrong, 3 it does not fit."""

    case: str
    exit_code: int
    message: str
    summary: dict[str, Any]
    """The numbers a table of cases shows."""

    def to_line(self) -> str:
        """Write it as one line of JSON."""
        return json.dumps(self._asdict(), allow_nan=False)


def from_line(line: str) -> Outcome | None:
    """Read it back; a line cut short by a crash gives None."""
    try:
        return Outcome(**json.loads(line))
    except (ValueError, TypeError):
        return None


DRAWN = ("power_mean_w", "power_peak_sensor_w", "temperature_peak_c", "clock_mean_hz", "tokens_per_j")


def _total(parts: dict[str, float] | None) -> float | None:
    return None if parts is None else sum(parts.values())


def summarise(result: RunResult) -> dict[str, Any]:
    """Pick what a table of cases shows out of a result."""
    metrics, degrees = result.metrics, result.spec["parallelism"]
    return {
        "model": result.spec["model"]["name"],
        **{axis: degrees[axis] for axis in ("tp", "pp", "dp", "ep", "zero")},
        "microbatches": metrics["microbatches"],
        "fits": metrics["fits"],
        "step_time_s": metrics["step_time_s"],
        "tokens_per_s_per_gpu": metrics["tokens_per_s_per_gpu"],
        "mfu": metrics["mfu"],
        **{name: metrics[name] for name in DRAWN},
        "clock_loss_fraction": _total(metrics["clock_loss_fraction"]),
        "memory_peak_bytes": metrics["memory_peak_bytes"],
        "executed_flop": metrics["executed_flop"],
        "nvlink_bytes": metrics["link_bytes"]["nvlink"],
        "nic_bytes": metrics["link_bytes"]["nic"],
        "pp_message_bytes": metrics["message_bytes_median"]["pp"],
        "tp_message_bytes": metrics["message_bytes_median"]["tp"],
    }
