"""Fit the few constants that only published step times can tell, and score them on what they were not fitted on.

Equation: minimise sum over rows of rho((ln predicted - ln measured) / ROW_ERROR) + sum over constants of
((x - prior) / spread)^2, x in logarithms, rho soft (a row far off counts little). Predictions are those of the one
clock at which a run settles (simulate/one_clock.py), solved again for every derivative.
Source: priors and spreads stand beside each constant; measured and datasheet values are not fitted.
Ignores: errors that rows of one source share.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from charllm.arrays import Bools, Floats
from charllm.simulate.one_clock import solve_step
from charllm.spec.run import RunSpec
from charllm.timeline.constants import TIMELINE, TimelineConstants
from charllm.workload.step import Step

ROW_ERROR = 0.08
STEP = 0.03
"""Change of a logarithm for a derivative."""
ROUNDS, BATCH = 4, 16


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


HOPPER = ("h100", "h100-hbm2e-500w", "h100-nvl", "h800")
"""GPUs of whose early libraries the rate is fitted."""
UNDESCRIBED = {
    "megatron": "tuned", "nemo": "tuned", "megatron-bridge": "tuned", "megatron-2020": "tuned", "llm-foundry": "tuned",
    "fsdp": "tuned", "megatron-deepspeed": "plain", "deepspeed": "plain", "jax": "plain",
}  # fmt: skip
"""Profile of software whose small kernels are not all described: how well its vendor fuses them."""
CONSTANTS = (
    Constant("library.h100", "rate of GEMMs in libraries of 2023 on Hopper over later ones", 0.85, "assumed", 0.1,
             "library"),
    Constant("timeline.uneven_host_fraction", "spread of hosts' time to launch a sparse layer over that time", 0.1,
             "assumed", 0.3, "uneven"),
    Constant("undescribed.tuned", "traffic of small kernels not described over those that are, tuned software", 0.6,
             "assumed", 0.5, "undescribed"),
    Constant("undescribed.plain", "the same, software that fuses little", 1.2, "assumed", 0.5, "undescribed"),
)  # fmt: skip


class FitRow(NamedTuple):
    """A row with a time, and what it may be left out by."""

    id: str
    source: str
    family: str
    """Model family."""
    run: RunSpec
    step: Step
    measured_s: float


Values = Mapping[str, float]
FOLDS: dict[str, Callable[[FitRow], str]] = {
    "family": lambda row: row.family,
    "source": lambda row: row.source,
    "gpu": lambda row: row.run.cluster.gpu.name,
}
"""What rows are left out by, and the group of a row."""


def default_values() -> dict[str, float]:
    """Return every constant at its prior."""
    return {constant.name: constant.prior for constant in CONSTANTS}


def with_values(run: RunSpec, values: Values) -> RunSpec:
    """Return a run with the fitted constants of its framework."""
    framework = run.framework
    profile = profile_of(run)
    if profile in UNDESCRIBED and framework.name != "fsdp-compiled":
        framework = replace(framework, undescribed_fraction=values[f"undescribed.{UNDESCRIBED[profile]}"])
    if moves_library(run):
        framework = replace(framework, library_fraction=values["library.h100"])
    return replace(run, framework=framework)


def moves_library(run: RunSpec) -> bool:
    """Tell whether a run's libraries are early for its GPU, at a rate that is fitted."""
    return run.framework.library_fraction < 1 and run.cluster.gpu.name in HOPPER


def profile_of(run: RunSpec) -> str:
    """Return the catalog's profile that a run's software is built on."""
    return run.framework.profile


def timeline_of(values: Values) -> TimelineConstants:
    """Return the timeline's constants with the fitted one among them."""
    return replace(TIMELINE, uneven_host_fraction=values["timeline.uneven_host_fraction"])


def predicted_s(values: Values, row: FitRow) -> float:
    """Return the step time of a row at the one clock it settles at."""
    step = replace(row.step, run=with_values(row.run, values))
    return solve_step(step, timeline=timeline_of(values)).step_time_s


_ROWS: list[FitRow] = []
"""Rows of this process; filled once when a pool of processes starts."""


def _keep(rows: list[FitRow]) -> None:
    _ROWS[:] = rows


def _predict_kept(values: Values, places: Sequence[int]) -> list[float]:
    return [predicted_s(values, _ROWS[place]) for place in places]


class Fitter:
    """Rows kept by some processes, so that all of them are predicted quickly for any values."""

    def __init__(self, rows: Sequence[FitRow], workers: int = 2) -> None:
        self.rows = list(rows)
        self.pool = ProcessPoolExecutor(workers, initializer=_keep, initargs=(self.rows,))

    def predict(self, values: Values, places: Sequence[int] | None = None) -> Floats:
        """Return the predicted step times of rows."""
        chosen = list(range(len(self.rows)) if places is None else places)
        parts = [chosen[start : start + BATCH] for start in range(0, len(chosen), BATCH)]
        found = self.pool.map(partial(_predict_kept, values), parts)
        return np.array([seconds for part in found for seconds in part])

    def fit(self, chosen: Bools, start: Values | None = None) -> dict[str, float]:
        """Return the constants that fit the chosen rows best, held near their priors."""
        places = np.flatnonzero(chosen).tolist()
        measured = np.log([self.rows[place].measured_s for place in places])
        spreads = np.array([constant.spread for constant in CONSTANTS])
        at = np.log([{**default_values(), **(start or {})}[constant.name] for constant in CONSTANTS])
        for _ in range(ROUNDS):
            base = np.log(self.predict(_named(at), places))
            slopes = self._slopes(at, places, base)
            moved = _solve(base - measured, slopes, at)
            change, at = float(np.max(np.abs(moved - at) / spreads)), moved
            if change < 0.05:
                break
        return _named(at)

    def folds(
        self, values: Values, keys: Mapping[str, Callable[[FitRow], str]]
    ) -> dict[str, dict[str, dict[str, float]]]:
        """Return the constants fitted without each group of rows, linearised around those of all rows.

        Equation: x + (solution without the group - solution of all rows), both of the same linearised problem, so that
        what `values` still lack of their optimum does not count as an effect of the group.
        """
        at = np.log([values[constant.name] for constant in CONSTANTS])
        base = np.log(self.predict(values))
        errors = base - np.log([row.measured_s for row in self.rows])
        slopes = self._slopes(at, list(range(len(self.rows))), base)
        everything, priors = _solve(errors, slopes, at), np.log([constant.prior for constant in CONSTANTS])
        found: dict[str, dict[str, dict[str, float]]] = {}
        for name, key in keys.items():
            groups = np.array([key(row) for row in self.rows])
            for group in sorted(set(groups)):
                kept = groups != group
                moved = at + _solve(errors[kept], slopes[kept], at) - everything
                # What no row is left for keeps its prior.
                known = np.any(slopes[kept] != 0, axis=0)
                found.setdefault(name, {})[str(group)] = _named(np.where(known, moved, priors))
        return found

    def _slopes(self, at: Floats, places: list[int], base: Floats) -> Floats:
        """Return the derivative of each row's logarithm, constants that move different rows together."""
        slopes = np.zeros((len(places), len(CONSTANTS)))
        for group in dict.fromkeys(constant.group for constant in CONSTANTS):
            members = [number for number, constant in enumerate(CONSTANTS) if constant.group == group]
            moving = np.array([any(moves(CONSTANTS[number].name, self.rows[place].run) for number in members)
                               for place in places])  # fmt: skip
            moved = at.copy()
            moved[members] += STEP
            there = [place for place, is_moving in zip(places, moving, strict=True) if is_moving]
            change = np.zeros(len(places))
            change[moving] = (np.log(self.predict(_named(moved), there)) - base[moving]) / STEP
            for number in members:
                mine = np.array([moves(CONSTANTS[number].name, self.rows[place].run) for place in places])
                slopes[mine, number] = change[mine]
        return slopes


def moves(name: str, run: RunSpec) -> bool:
    """Tell whether a constant is one of a run's."""
    kind, what = name.split(".", 1)
    profile = profile_of(run)
    if name == "timeline.uneven_host_fraction":
        return run.parallelism.ep > 1 and run.framework.graphs != "full"
    tests: dict[str, Callable[[], bool]] = {
        "undescribed": lambda: UNDESCRIBED.get(profile) == what,
        "library": lambda: moves_library(run),
    }
    return tests.get(kind, lambda: True)()


def _named(logarithms: Floats) -> dict[str, float]:
    return {constant.name: float(np.exp(x)) for constant, x in zip(CONSTANTS, logarithms, strict=True)}


def _solve(errors: Floats, slopes: Floats, start: Floats) -> Floats:
    """Return the logarithms that fit linearised rows best, not far from where they were linearised."""
    from scipy.optimize import least_squares

    priors = np.log([constant.prior for constant in CONSTANTS])
    spreads = np.array([constant.spread for constant in CONSTANTS])
    residuals = partial(_residuals, base=errors, slopes=slopes, start=start, priors=priors, spreads=spreads)
    return np.asarray(least_squares(residuals, start, bounds=(start - 0.35, start + 0.35)).x)


def _residuals(x: Floats, base: Floats, slopes: Floats, start: Floats, priors: Floats, spreads: Floats) -> Floats:
    """Return rows' errors, softened (as a soft L1 loss), and constants' distances from their priors."""
    errors = (base + slopes @ (x - start)) / ROW_ERROR
    soft = np.sign(errors) * np.sqrt(2 * (np.sqrt(1 + errors**2) - 1))
    return np.concatenate([soft, (x - priors) / spreads])


def main() -> None:
    """Fit on the rows that ship with charllm, without untuned runs, and write the constants of every fold.

    Those of all rows are written where the model reads them (evaluate/ship_fit.py).
    `--folds` keeps the constants of all rows as they are, and finds those of the folds again.
    """
    from charllm.evaluate.held_out import load_rows
    from charllm.evaluate.ship_fit import ship
    from charllm.spec.grades import is_untuned

    rows = load_rows()
    tuned = [row for row in rows if not is_untuned(row.run)]
    fitter = Fitter(tuned)
    path = Path(__file__).parent / "data" / "fit.json"
    start: Any = json.loads(path.read_text(encoding="utf-8"))["all"] if path.exists() else None
    keep = "--folds" in sys.argv[1:] and start is not None
    values: dict[str, float] = start if keep else fitter.fit(np.ones(len(tuned), dtype=np.bool_), start)
    found: dict[str, Any] = {"all": values, **fitter.folds(values, FOLDS)}
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    ship(values)
    print(json.dumps(values, indent=1))


if __name__ == "__main__":
    main()
