"""Fit positive parameters to measurements, held near prior values, and report which of them the data identify.

Equation: minimise sum rho(r_i) + sum rho(ln(p_k / prior_k) / spread_k) over ln p within bounds, with scipy's trust
region solver; rho(r) is r^2 while small and grows linearly far beyond 3 (soft_l1), so that outliers count little.
Standard errors are the roots of the diagonal of (J'J)^-1, times the misfit where that is above 1.
A parameter is identified if the data narrow it to less than 0.8 of its prior spread, and if they alone, all others
known, would determine it better than the prior does.
Source: Branch, Coleman and Li 1999 (scipy.optimize.least_squares, trf).
Ignores: several minima, errors that rows share, curvature of the fit in the errors it states.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.errors import MissingExtra

SOFT_FROM = 3.0
STEP = 1e-4
ROUNDS = 20
ORIGIN = 10.0
ENOUGH = 2e-4
IDENTIFIED_FRACTION = 0.8


class Parameter(NamedTuple):
    """One positive number to find: where it starts, how far off that may be (in its logarithm), and its bounds."""

    name: str
    prior: float
    spread: float
    low: float = 1e-30
    high: float = 1e30


class Found(NamedTuple):
    """One parameter as fitted."""

    name: str
    value: float
    error_fraction: float
    """Standard error over the value."""
    prior: float
    kept_fraction: float
    """What is left of the prior's spread: 1 where the readings say nothing."""
    identified: bool


class Fit(NamedTuple):
    """All parameters, and how well they explain the readings."""

    found: tuple[Found, ...]
    misfit: float
    """Root mean square of what is left, over the errors that were assumed."""

    def values(self) -> dict[str, float]:
        """Return the parameters by name."""
        return {each.name: each.value for each in self.found}


def load_optimize() -> Any:
    """Return scipy.optimize, which only fitting needs."""
    try:
        from scipy import optimize
    except ImportError:
        raise MissingExtra("fitting constants needs scipy", "fit") from None
    return optimize


def fit(residuals: Callable[[dict[str, float]], Floats], parameters: Sequence[Parameter], rounds: int = ROUNDS) -> Fit:
    """Fit parameters; `residuals` returns how far each reading is off, over its error."""
    prior = np.log([each.prior for each in parameters])
    spread = np.array([each.spread for each in parameters])
    low, high = (np.log([getattr(each, end) for each in parameters]) for end in ("low", "high"))

    # Logarithms over the prior's, moved away from 0 because scipy's steps of differences are relative.
    ends = low - prior + ORIGIN, high - prior + ORIGIN

    def off(place: Floats) -> Floats:
        values = np.exp(place - ORIGIN + prior)
        named = {each.name: float(value) for each, value in zip(parameters, values, strict=True)}
        return np.concatenate([residuals(named), (place - ORIGIN) / spread])

    found = load_optimize().least_squares(
        off, np.clip(np.full(len(prior), ORIGIN), *ends), bounds=ends, loss="soft_l1", f_scale=SOFT_FROM,
        x_scale=spread, diff_step=STEP / ORIGIN, ftol=ENOUGH, xtol=None, max_nfev=rounds,
    )  # fmt: skip
    softened = SOFT_FROM * np.sqrt(2 * (np.sqrt(1 + (found.fun / SOFT_FROM) ** 2) - 1))
    return _judge(parameters, found.x - ORIGIN + prior, softened, found.jac, spread)


def _judge(parameters: Sequence[Parameter], place: Floats, left: Floats, jacobian: Floats, spread: Floats) -> Fit:
    """Say how well each parameter is known."""
    readings = len(left) - len(place)
    data = jacobian[:readings]
    misfit = float(np.sqrt(np.mean(left[:readings] ** 2))) if readings else 0.0
    scale = max(1.0, misfit)
    # Readings that fit worse than their errors say less than they claim.
    square = data.T @ data / scale**2 + np.diag(1 / spread**2)
    error = np.sqrt(np.diag(np.linalg.inv(square)))
    alone = np.diag(data.T @ data) / scale**2 * spread**2
    found = tuple(
        Found(
            each.name,
            float(np.exp(place[axis])),
            float(error[axis]),
            each.prior,
            float(error[axis] / spread[axis]),
            bool(error[axis] < IDENTIFIED_FRACTION * spread[axis] and alone[axis] > 1),
        )
        for axis, each in enumerate(parameters)
    )
    return Fit(found, misfit)
