"""Fit the few constants that only published step times can tell, and score them on what they were not fitted on.

Equation: minimise sum over rows of rho((ln predicted - ln measured) / ROW_ERROR) + sum over constants of
((x - prior) / spread)^2, x in logarithms, rho soft (a row far off counts little). Predictions are those of the one
clock at which a run settles (simulate/one_clock.py), solved again for every derivative.
Source: priors and spreads stand beside each constant; measured and datasheet values are not fitted.
Ignores: errors that rows of one source share.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from charllm.network.constants import NETWORK
from charllm.simulate.one_clock import solve_step
from charllm.spec.hardware import Gpu
from charllm.spec.run import RunSpec
from charllm.timeline.constants import TIMELINE
from charllm.workload.step import build_step

Floats = NDArray[np.float64]

ROW_ERROR = 0.08
STEP = 0.03
"""Change of a logarithm for a derivative."""
ROUNDS = 3


class Constant(NamedTuple):
    """One constant to be fitted."""

    name: str
    meaning: str
    prior: float
    source: str
    spread: float
    """Of its logarithm, before any row is looked at."""
    group: str
    """Constants of one group move different rows, so that their derivatives are found together."""


GPU_FAMILIES = {
    "a100-40gb": "a100", "a100-80gb": "a100", "a800": "a100", "h100": "h100", "h100-hbm2e-500w": "h100",
    "h100-nvl": "h100", "h800": "h100", "b200": "b200", "b300": "b300", "gb200": "gb200", "gb300": "gb300",
}  # fmt: skip
"""GPU: the family whose factors it shares; others have none."""
UNFUSED = ("megatron-2020", "megatron-deepspeed", "fsdp", "llm-foundry", "deepspeed")
"""Profiles of software whose small kernels are not all described."""

CONSTANTS = (
    *(
        Constant(f"energy.{family}", f"energy of work on a {family.upper()} over what its power figures give", 1.0,
                 "power tables and published clocks of the GPU", 0.10, "energy")
        for family in ("h100", "b200", "b300", "gb200", "gb300")
    ),
    *(
        Constant(f"rate.{family}", f"rate of GEMMs and attention on {family.upper()} over operator tables", 1.0,
                 "operator tables of the GPU", 0.05, "rate")
        for family in ("a100", "h100", "b200", "b300", "gb200", "gb300")
    ),
    Constant("timeline.contention_fraction", "compute time added per second of hidden communication", 0.3,
             "emulated ranks on an H200: 0.28 to 0.7", 0.4, "contention"),
    Constant("timeline.straggler_fraction", "standard deviation of a GPU's pace", 0.011,
             "energy of three H200 boards", 0.15, "straggler"),
    Constant("timeline.exposed_factor", "time of a collective in a step over that in a benchmark", 1.1,
             "assumed: members arrive unevenly", 0.15, "exposed"),
    Constant("network.nic_fraction", "share of NICs that a ring sustains", 0.91,
             "ml-engineering 0.95, published 0.85 to 0.90", 0.08, "nic"),
    Constant("launch.megatron", "host time to launch a kernel, Megatron", 10e-6,
             "assumed: tuned host; 24 to 44 us on virtual machines", 0.35, "launch"),
    Constant("launch.fsdp", "host time to launch a kernel, FSDP and DeepSpeed", 12e-6,
             "assumed: tuned host; 24 to 44 us on virtual machines", 0.35, "launch"),
    Constant("undescribed.unfused", "memory traffic of kernels not described over that of those that are", 0.4,
             "assumed", 0.5, "undescribed"),
    Constant("undescribed.fused", "the same with Transformer Engine", 0.15, "assumed", 0.5, "undescribed"),
)  # fmt: skip


class FitRow(NamedTuple):
    """A row with a time, and what it may be left out by."""

    id: str
    source: str
    family: str
    """Model family."""
    run: RunSpec
    measured_s: float


Values = Mapping[str, float]


def default_values() -> dict[str, float]:
    """Return every constant at its prior."""
    return {constant.name: constant.prior for constant in CONSTANTS}


def with_values(run: RunSpec, values: Values) -> RunSpec:
    """Return a run with the fitted constants of its GPU and framework."""
    gpu, framework = _with_factors(run.cluster.gpu, values), run.framework
    profile = profile_of(run)
    if profile != "pytorch-eager":
        kind = "unfused" if profile in UNFUSED else "fused"
        framework = replace(framework, undescribed_fraction=values[f"undescribed.{kind}"])
    if profile in ("megatron", "nemo", "megatron-bridge", "megatron-2020", "megatron-deepspeed"):
        framework = replace(framework, launch_s=values["launch.megatron"])
    elif profile in ("fsdp", "llm-foundry", "deepspeed"):
        framework = replace(framework, launch_s=values["launch.fsdp"])
    node = replace(run.cluster.node, gpu=gpu)
    return replace(run, cluster=replace(run.cluster, node=node), framework=framework)


def profile_of(run: RunSpec) -> str:
    """Return the catalog's profile that a run's software is built on."""
    return run.framework.profile


def _with_factors(gpu: Gpu, values: Values) -> Gpu:
    family = GPU_FAMILIES.get(gpu.name)
    if family is None:
        return gpu
    power = replace(gpu.power, energy_fraction=values.get(f"energy.{family}", 1.0))
    kernels = replace(gpu.kernels, rate_fraction=values.get(f"rate.{family}", 1.0))
    return replace(gpu, power=power, kernels=kernels)


def network_of(values: Values) -> Any:
    """Return the network's constants with the fitted ones among them."""
    fitted: dict[str, Any] = dict(_fields(values, "network"))
    return replace(NETWORK, **fitted)


def timeline_of(values: Values) -> Any:
    """Return the timeline's constants with the fitted ones among them."""
    return replace(TIMELINE, **_fields(values, "timeline"))


def _fields(values: Values, room: str) -> dict[str, float]:
    return {name.split(".")[1]: value for name, value in values.items() if name.startswith(f"{room}.")}


def predicted_s(values: Values, row: FitRow) -> float:
    """Return the step time of a row at the one clock it settles at."""
    step = build_step(with_values(row.run, values))
    return solve_step(step, network_of(values), timeline_of(values)).step_time_s


class Fitter:
    """Rows spread over processes, so that all of them are predicted quickly for any values."""

    def __init__(self, rows: Sequence[FitRow], workers: int = 2) -> None:
        self.rows = list(rows)
        self.pool = ProcessPoolExecutor(workers)

    def predict(self, values: Values, rows: Iterable[FitRow] | None = None) -> Floats:
        """Return the predicted step times of rows."""
        chosen = self.rows if rows is None else list(rows)
        return np.array(list(self.pool.map(partial(predicted_s, values), chosen, chunksize=24)))

    def fit(self, chosen: NDArray[np.bool_], start: Values | None = None) -> dict[str, float]:
        """Return the constants that fit the chosen rows best, held near their priors."""
        from scipy.optimize import least_squares

        rows = [row for row, keep in zip(self.rows, chosen, strict=True) if keep]
        measured = np.log([row.measured_s for row in rows])
        priors = np.log([constant.prior for constant in CONSTANTS])
        spreads = np.array([constant.spread for constant in CONSTANTS])
        at = np.log([{**default_values(), **(start or {})}[constant.name] for constant in CONSTANTS])
        for _ in range(ROUNDS):
            base = np.log(self.predict(_named(at), rows))
            slopes = self._slopes(at, rows, base)
            moved = least_squares(partial(_residuals, base=base - measured, slopes=slopes, start=at, priors=priors,
                                          spreads=spreads), at, bounds=(at - 0.35, at + 0.35)).x  # fmt: skip
            change, at = float(np.max(np.abs(moved - at) / spreads)), moved
            if change < 0.05:
                break
        return _named(at)

    def _slopes(self, at: Floats, rows: list[FitRow], base: Floats) -> Floats:
        """Return the derivative of each row's logarithm, constants that move different rows together."""
        slopes = np.zeros((len(rows), len(CONSTANTS)))
        for group in dict.fromkeys(constant.group for constant in CONSTANTS):
            places = [place for place, constant in enumerate(CONSTANTS) if constant.group == group]
            moved = at.copy()
            moved[places] += STEP
            change = (np.log(self.predict(_named(moved), rows)) - base) / STEP
            for place in places:
                mine = np.array([moves(CONSTANTS[place].name, row.run) for row in rows])
                slopes[mine, place] = change[mine]
        return slopes


def moves(name: str, run: RunSpec) -> bool:
    """Tell whether a constant is one of a run's."""
    kind, what = name.split(".", 1)
    profile = profile_of(run)
    tests: dict[str, Callable[[], bool]] = {
        "energy": lambda: GPU_FAMILIES.get(run.cluster.gpu.name) == what,
        "rate": lambda: GPU_FAMILIES.get(run.cluster.gpu.name) == what,
        "undescribed": lambda: profile != "pytorch-eager" and (profile in UNFUSED) == (what == "unfused"),
        "launch": lambda: (profile in ("fsdp", "llm-foundry", "deepspeed")) == (what == "fsdp"),
    }
    return tests.get(kind, lambda: True)()


def _named(logarithms: Floats) -> dict[str, float]:
    return {constant.name: float(np.exp(x)) for constant, x in zip(CONSTANTS, logarithms, strict=True)}


def _residuals(x: Floats, base: Floats, slopes: Floats, start: Floats, priors: Floats, spreads: Floats) -> Floats:
    """Return rows' errors, softened (as a soft L1 loss), and constants' distances from their priors."""
    errors = (base + slopes @ (x - start)) / ROW_ERROR
    soft = np.sign(errors) * np.sqrt(2 * (np.sqrt(1 + errors**2) - 1))
    return np.concatenate([soft, (x - priors) / spreads])
