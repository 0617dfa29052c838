"""The settings of the commands that need a machine: preflight, smoke, emulate, bench and train."""

from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from charllm.measure.settings import TELEMETRY_FLAG
from charllm.profile import DEFAULT_FIRST
from charllm.spec.fields import choice, count, flag, line, number, path

MOST_NODES, MOST_RANKS, MOST_STEPS = 65_536, 10_000_000, 100_000_000
SHORTEST_S, LONGEST_S = 0.001, 86_400.0
DEVICES = ("cuda", "cpu")
NCCL_SIZES, TRAINED_STEPS = "1KiB:1GiB", 10


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightSettings:
    """What is checked before a measurement."""

    nodes: int | None = count("nodes of the Slurm allocation (default those of the run, or 1)", 1, MOST_NODES, None)
    telemetry: str = line("source of GPU readings", "auto", flag=TELEMETRY_FLAG)
    out: Path = path("folder in which runs will be stored", Path())
    reach: bool = flag("skip the all-reduce over all ranks", True)


class PreflightKeywords(TypedDict, total=False):
    """Keywords of `PreflightSettings`, with the types of their values."""

    nodes: int | str | None
    telemetry: str
    out: str | Path | None
    reach: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SmokeSettings:
    """What is tried on a machine, and where."""

    nodes: int = count("nodes of the Slurm allocation", 1, MOST_NODES, 1)
    device: str = choice("device to train on", DEVICES, "cuda")
    telemetry: str = line("source of GPU readings", "auto", flag=TELEMETRY_FLAG)
    quick: bool = flag("few steps and short benchmarks: seconds instead of minutes", False)
    out: Path | None = path("folder for all results (default charllm-runs/smoke-TIME)")


class SmokeKeywords(TypedDict, total=False):
    """Keywords of `SmokeSettings`, with the types of their values."""

    nodes: int | str | None
    device: str
    telemetry: str
    quick: bool
    out: str | Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulationSettings:
    """Which rank is emulated, and for how long."""

    rank: int = count("the rank to emulate", 0, MOST_RANKS, 0)
    timeline: Path | None = path("emulate this timeline instead of the simulated one", flag="--timeline FILE")
    seconds_s: float = number("emulate whole steps for this long", SHORTEST_S, LONGEST_S, 60.0)


class EmulationKeywords(TypedDict, total=False):
    """Keywords of `EmulationSettings`, with the types of their values."""

    rank: int
    timeline: str | Path | None
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatorSettings:
    """On which device a rank is emulated, and where its readings are stored."""

    out: Path | None = path("folder for the recording (default charllm-runs/rank-TIME)")
    telemetry: str = line("source of the readings", "auto", flag=TELEMETRY_FLAG)
    device: str = choice("cpu: only to test the command itself", DEVICES, "cuda")


class EmulatorKeywords(TypedDict, total=False):
    """Keywords of `EmulatorSettings`, with the types of their values."""

    out: str | Path | None
    telemetry: str
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpsSettings:
    """Which ops of the calibration benchmark are run."""

    out: Path | None = path("folder for the recording (default charllm-runs/ops-TIME)")
    suite: str = choice("short: only the ops that are run twice", ("full", "short"), "full")
    only: str = line("run only ops whose group or name contains one of these", "", flag="--only TEXT,...")
    skip: str = line("skip ops whose group or name contains one of these", "", flag="--skip TEXT,...")
    seed: int = count("seed of the order in which ops run", 0, 2**63 - 1, 0)
    telemetry: str = line("source of the readings", "auto", flag=TELEMETRY_FLAG)
    device: str = choice("cpu: only to test the benchmark itself", DEVICES, "cuda")
    scale: float = number("multiply the duration of every op by X", SHORTEST_S, 100.0, 1.0, flag="--scale X")


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclSettings:
    """Which collectives are measured, on which groups and for how long."""

    groups: str = line("kinds of groups (default all of the layout)", "", flag="--groups tp,dp,...")
    collectives: str = line("collectives to measure (default all)", "", flag="--collectives NAME,...")
    sizes: str = line("message sizes, doubling", NCCL_SIZES, flag="--sizes FROM:TO")
    out: Path | None = path("folder for the table (default charllm-runs/nccl-TIME)")
    ranks: int | None = count("ranks to start here (default one for each GPU)", 1, MOST_RANKS, None)
    device: str = choice("cpu: over gloo instead of NCCL", DEVICES, "cuda")
    seconds_s: float = number("time for all cases", SHORTEST_S, LONGEST_S, 600.0)
    case_seconds_s: float = number("time for one case", SHORTEST_S, LONGEST_S, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """How long a model is trained, on what, and what is recorded of it."""

    steps: int | None = count(f"steps to train (default {TRAINED_STEPS})", 1, MOST_STEPS, None)
    seconds_s: float | None = number("train for this many seconds instead", SHORTEST_S, 366 * LONGEST_S, None)
    data: Path | None = path("memory-mapped 16-bit tokens instead of synthetic ones", flag="--data FILE")
    device: str = choice("device to train on", DEVICES, "cuda")
    timeout_s: float = number("longest wait for another rank, in seconds", SHORTEST_S, LONGEST_S, 600.0)
    execution_trace: Path | None = path(
        "write PyTorch execution traces of steps 2 and 3, one file per rank, for `charllm messages`"
    )
    profile: str | None = line(
        f"record a Kineto trace of this many steps, after the first FIRST (default {DEFAULT_FIRST})",
        None, flag="--profile STEPS[@FIRST]",
    )  # fmt: skip
    profile_out: Path = path(
        "folder for traces and marks; under charllm measure, the run's folder", Path("charllm-traces")
    )
    zbv: bool = flag("with --schedule zero-bubble: use the V-shaped schedule, ZB-V", False)
