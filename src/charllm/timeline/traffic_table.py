"""What ranks send in a step, axis by axis: how much, over which links, in which messages, sharing NICs with whom."""

from typing import Any

from charllm.layout.links import LINKS, group_links, nic_sharers
from charllm.network.collectives import algorithms_taken
from charllm.workload.step import Step
from charllm.workload.totals import Traffic

AXIS_GROUPS = {"tp": "tp", "cp": "cp", "ep": "ep", "dp": "data", "pp": "pp"}


def tabulate_traffic(step: Step, traffic: Traffic) -> dict[str, list[Any]]:
    """Return a row for each axis that sends: all GPUs together, counted once at the sender."""
    run, algorithms = step.run, algorithms_taken(step)
    sending = {group: axis for axis, group in AXIS_GROUPS.items() if traffic.axis_bytes[axis]}
    links = {axis: group_links(run, group) for group, axis in sending.items()}
    return {
        "axis": list(links),
        "ranks": [one.degree for one in links.values()],
        "sent_bytes": [traffic.axis_bytes[axis] for axis in links],
        **{f"{link}_bytes": [traffic.axis_link_bytes[axis][link] for axis in links] for link in LINKS},
        "messages": [traffic.messages[axis] for axis in links],
        "message_bytes_median": [traffic.message_bytes_median[axis] for axis in links],
        "algorithms": [", ".join(algorithms[axis]) for axis in links],
        "hops": [", ".join(f"{count} {name}" for name, count in one.ring_hops.items()) for one in links.values()],
        "flows_per_nic": [one.ring_flows_per_nic for one in links.values()],
        "nic_shared_with": [
            ", ".join(sending[other] for other in nic_sharers(run, group, tuple(sending))) for group in sending
        ],
    }
