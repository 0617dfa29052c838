"""What the log of a training program says: its steps and the settings it printed at start."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedStep:
    """One line (or block) that reports on a step; None where the log does not say."""

    number: int
    """As the program counts: some count from 0."""
    steps: int = 1
    """Steps that the line covers: programs that log every tenth step report the mean of ten."""
    time_s: float | None = None
    """Time stamp of the line, seconds since 1970; a stamp without a time zone is taken as UTC."""
    seconds: float | None = None
    """Duration of one step, the mean over the steps covered."""
    loss: float | None = None
    tokens: float | None = None
    """Tokens of one step, over all GPUs."""
    samples: float | None = None
    """Sequences of one step, over all GPUs (the global batch size)."""
    tokens_per_s: float | None = None
    """Over all GPUs."""
    gpu_tokens_per_s: float | None = None
    """Per GPU."""
    flop_per_s: float | None = None
    """Per GPU, as the program counts them."""
    mfu_fraction: float | None = None
    memory_bytes: float | None = None
    """Device memory, as the program counts it (torch's allocator, its peak where the log says so)."""
    gpu_power_w: float | None = None
    grad_norm: float | None = None
    learning_rate: float | None = None
    consumed_samples: float | None = None
    consumed_tokens: float | None = None
    rank: int | None = None
    """Rank that wrote the line, where the launcher says so."""
    end_byte: int = 0
    """Where the line ends in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A log, read. A job that was resumed from a checkpoint reports some step numbers twice; they stay in order."""

    kind: str
    steps: tuple[LoggedStep, ...] = ()
    settings: Mapping[str, int] = field(default_factory=dict)
    """Sizes that the program printed at start: seq_length, world_size, global_batch_size, tp, pp, ..."""
    stated_step_s: float | None = None
    """Mean duration of a step over the whole run, where the program sums it up."""
    warnings: tuple[str, ...] = ()
    """What was left out, a sentence each."""
