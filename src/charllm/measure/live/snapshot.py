"""A run at one moment: the newest readings of every GPU and host, and what the job's marks tell."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Readings:
    """The newest readings of one thing, by quantity; rates of counters; and why others are missing."""

    values: dict[str, float] = field(default_factory=dict)
    rates_per_s: dict[str, float] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GpuNow:
    """One GPU."""

    node: str
    gpu: int
    uuid: str
    rank: int | None
    readings: Readings
    limited_by: tuple[str, ...]
    """Causes that hold the clock down; empty: none, or not known."""
    power_w: float | None
    """Of this moment, or of the last second where the board has no other."""
    power_mean_w: float | None
    energy_used_j: float | None
    """Both since the recording began, from the energy counter."""


@dataclass(frozen=True, slots=True)
class NodeNow:
    """One node."""

    name: str
    age_s: float | None
    """How old its newest reading is; None: there is none."""
    gpus: tuple[GpuNow, ...]
    host: Readings


@dataclass(frozen=True, slots=True)
class JobNow:
    """What the job says of itself."""

    steps: int | None = None
    step_time_s: float | None = None
    tokens_per_s: float | None = None
    loss: float | None = None
    tokens_per_j: float | None = None
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run at one moment."""

    folder: str
    wall_s: float
    state: str
    """waiting (nothing was read yet), running, silent (readings have stopped), ended."""
    elapsed_s: float | None
    """Since the command began."""
    nodes: tuple[NodeNow, ...]
    power_w: float | None
    energy_used_j: float | None
    job: JobNow
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def gpus(self) -> list[GpuNow]:
        """All GPUs, node by node."""
        return [gpu for node in self.nodes for gpu in node.gpus]
