"""A replayed trace as text."""

from charllm.report.tables import render_table, wrap
from charllm.trace.replay import Edits, Replay
from charllm.units import format_change, format_percent, format_seconds


def render_replay(found: Replay, edits: Edits) -> str:
    """Return the step times of a trace, its replay and what was changed."""
    rows = [
        ["traced", f"{found.traced_s:.5f}", ""],
        ["replayed unchanged", f"{found.unchanged_s:.5f}", format_change(found.error_fraction, 2)],
        ["replayed, changed", f"{found.changed_s:.5f}", format_change(found.change_fraction, 2)],
    ]
    title = f"Step time, mean of {found.steps} step{'s' if found.steps > 1 else ''}"
    told = wrap(f"Changed: {describe_edits(edits) or 'nothing'}.")
    if found.kept:
        plural = "s" if found.kept > 1 else ""
        told += wrap(
            f"{found.kept} collective{plural} of a step ({format_seconds(found.kept_s)}) have ranks without a trace "
            "here: they keep their traced time, in which they also wait for those ranks. Give the traces of all ranks "
            "to tell waits from transfers."
        )
    return "\n\n".join([render_table(title, ["", "s", "difference"], rows), "\n".join(told)])


def describe_edits(edits: Edits) -> str:
    """Say what was changed."""
    parts = []
    if edits.nic != 1.0:
        parts.append(f"collectives between nodes of {edits.gpus_per_node} GPUs {edits.nic:g} times as fast")
    parts += [f"{name} takes no time" for name in edits.hide]
    for rank, fraction in edits.clock_full.items():
        parts.append(f"rank {rank} at full clock instead of {format_percent(fraction)} of it")
    parts += [f"{name} x {factor:g}" for name, factor in edits.scale.items()]
    if edits.launch != 1.0:
        parts.append(f"host time of launches x {edits.launch:g}")
    return "; ".join(parts)
