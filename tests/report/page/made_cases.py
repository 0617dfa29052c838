"""Cases with round numbers, whose best, slowest and hottest ones are plain to see."""

from typing import Any

from charllm.report.page.cases import StudiedCase
from charllm.report.page.view import RunView
from charllm.result.metrics import Metrics
from charllm.result.result import RunResult
from charllm.timeline.labels import LABELS
from charllm.units import GIB, MIB

TOKENS, GPUS = 32_000.0, 32
MACHINE = {"memory_bytes": 80 * GIB, "power_cap_w": 700.0, "inlet_c": 25.0, "gpu": "h200", "slowdown_c": 89.0,
           "link_bytes_per_s": 450e9, "nic_bytes_per_s": 12.5e9, "nics_per_node": 1, "gpus_per_node": 8}  # fmt: skip


def make_case(name: str, step_s: float, number: int = 0, **changes: Any) -> StudiedCase:
    """Return a simulated case: half of its step is compute, the rest exposed tensor-parallel communication."""
    rate = TOKENS / step_s
    values: dict[str, Any] = {
        "model": name.split(" ")[0],
        "tp": 4,
        "pp": 2,
        "step_time_s": step_s,
        "tokens_per_s": rate,
        "tokens_per_s_per_gpu": rate / GPUS,
        "tokens_per_j": 1.0,
        "power_mean_w": 600.0,
        "temperature_peak_c": 70.0,
        "margin_to_slowdown_k": 19.0,
        "clock_mean_hz": 1.7e9,
        "memory_peak_bytes": 60 * GIB,
        "fits": True,
        **{f"clock_loss_fraction.{cause}": 0.1 if cause == "power" else 0.0 for cause in ("power", "thermal", "brake")},
        **{f"breakdown_s.{label}": 0.0 for label in LABELS},
        "breakdown_s.compute": 5.0,
        "breakdown_s.tp_exposed": step_s - 5.0,
        "memory_breakdown_bytes.weights": 40 * GIB,
        "memory_breakdown_bytes.activations": 20 * GIB,
        "message_bytes_median.tp": 64 * MIB,
        "axis_bytes.tp": 1e12,
        "hidden_communication_s.tp": 1.0,
    }
    settings = {"model": values["model"], "parallelism.tp": 4}
    given = {key: changes.pop(key) for key in list(changes) if key in StudiedCase.__dataclass_fields__}
    values.update(changes)
    fields: dict[str, Any] = {"settings": settings, "machine": MACHINE, "number": number, **given}
    return StudiedCase(name, fields.pop("exit_code", 0), fields.pop("message", ""), values, **fields)


def reject(name: str, message: str, exit_code: int = 3, **values: Any) -> StudiedCase:
    """Return a case without a result."""
    return StudiedCase(name, exit_code, message, {"model": name.split(" ")[0], **values}, machine=MACHINE)


def view(origin: str = "simulated", **metrics: Any) -> RunView:
    """Return a run that knows some metrics."""
    return RunView(RunResult(origin, {}, Metrics(metrics)))
