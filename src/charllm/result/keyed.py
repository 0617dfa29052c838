"""Metrics that hold a table, and the keys of each."""

from charllm.layout.grid import ENDS as ENDS
from charllm.result.metrics import AXES, CAUSES, LINKS
from charllm.timeline.step_time import LABELS as LABELS
from charllm.workload.memory import KINDS as KINDS

KEYED: dict[str, tuple[str, ...]] = {
    "memory_breakdown_bytes": KINDS,
    "throttled_time_fraction": CAUSES,
    "clock_loss_fraction": CAUSES,
    "breakdown_s": LABELS,
    "hidden_communication_s": AXES,
    "link_bytes": LINKS,
    "axis_bytes": AXES,
    "link_utilization_fraction": LINKS,
    "message_bytes_median": AXES,
    "messages": AXES,
}
