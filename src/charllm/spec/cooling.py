"""What carries the heat of a cluster away: air or coolant, as it enters each rack, and the fans that move it."""

from dataclasses import dataclass, replace

from charllm.errors import SpecError
from charllm.spec.fields import check_fields, choice, count, number, number_or_list

COOLINGS = ("air", "liquid", "immersion")
READ_AT = ("dc", "wall")
FANS = ("fixed", "following")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cooling:
    """What carries the heat away."""

    kind: str = choice("Air, cold plates or immersion.", COOLINGS, "air")
    inlet_c: float | tuple[float, ...] = number_or_list(
        "Temperature of the air or coolant that enters the nodes: one for all, or one for each rack.", -20.0, 80.0, 25.0
    )
    flow_fraction: float | tuple[float, ...] = number_or_list(
        "Flow of air or coolant relative to normal: one for all, or one for each rack.", 0.1, 4.0, 1.0
    )
    rack_nodes: int = count("Nodes of a rack: 1 for lists with an entry for each node.", 1, 1_048_576, 1)
    fans: str = choice(
        "Fans of a node: fixed (flow_fraction), or following its hottest GPU from there up to fan_most_fraction.",
        FANS, "fixed",
    )  # fmt: skip
    fan_start_c: float = number("Temperature of a node's hottest GPU at which following fans speed up.", 20, 120, 70.0)
    fan_most_fraction: float = number(
        "Highest flow of following fans, reached at the operating limit of the GPU.", 0.1, 4.0, 1.25
    )
    read_at: str = choice("Side of the power supplies on which node power is read.", READ_AT, "dc")

    def __post_init__(self) -> None:
        check_fields(self)
        if self.fans == "fixed":
            return
        if self.kind != "air":
            raise SpecError("fans", self.fans, f"fixed: fans do not cool GPUs under {self.kind} cooling")
        least = max(self.flow_fraction) if isinstance(self.flow_fraction, tuple) else self.flow_fraction
        if self.fan_most_fraction < least:
            raise SpecError("fan_most_fraction", self.fan_most_fraction, f"at least flow_fraction ({least:g})")

    @property
    def warmest_c(self) -> float:
        """What enters the node with the warmest inlet."""
        return max(self.inlet_c) if isinstance(self.inlet_c, tuple) else self.inlet_c

    @property
    def same_for_all(self) -> bool:
        """Whether air or coolant enters all racks alike."""
        return not isinstance(self.inlet_c, tuple) and not isinstance(self.flow_fraction, tuple)

    def inlet_of(self, node: int) -> float:
        """Return what enters one node, in degrees Celsius."""
        return self.inlet_c[node // self.rack_nodes] if isinstance(self.inlet_c, tuple) else self.inlet_c

    def flow_of(self, node: int) -> float:
        """Return the flow through one node, the least of following fans, relative to normal."""
        flows = self.flow_fraction
        return flows[node // self.rack_nodes] if isinstance(flows, tuple) else flows

    def of(self, node: int) -> "Cooling":
        """Return the cooling of one node alone."""
        return replace(self, inlet_c=self.inlet_of(node), flow_fraction=self.flow_of(node))

    def at_flow(self, flow_fraction: float) -> "Cooling":
        """Return the same cooling of all nodes at one flow."""
        return replace(self, flow_fraction=flow_fraction, fan_most_fraction=max(flow_fraction, self.fan_most_fraction))
