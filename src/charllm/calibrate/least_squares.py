"""Fit positive parameters to readings, held near what was known before, and say which of them the readings tell.

Equation: minimise sum soft(r_i)^2 + sum (ln(p_k / prior_k) / spread_k)^2 over ln p within bounds, by Levenberg and
Marquardt with a Jacobian of differences; soft(r) grows as r while small and as its root when far beyond 3, so that odd
readings count little. Errors are the roots of the diagonal of (J'J)^-1, times the misfit where that is above 1.
A parameter is identified if the readings narrow it to less than 0.8 of its prior spread, and if they alone, all others
known, would tell it better than the prior does.
Source: Marquardt 1963; Charbonnier 1997 for the soft square.
Ignores: several minima, errors that rows share, curvature of the fit in the errors it states.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SOFT_FROM = 3.0
STEP = 1e-4
LARGEST_MOVE = 0.3
ROUNDS, TRIES = 20, 8
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


def soften(residuals: Floats) -> Floats:
    """Shrink what is far off."""
    return np.asarray(np.sign(residuals) * SOFT_FROM * np.sqrt(2 * (np.sqrt(1 + (residuals / SOFT_FROM) ** 2) - 1)))


def fit(residuals: Callable[[dict[str, float]], Floats], parameters: Sequence[Parameter], rounds: int = ROUNDS) -> Fit:
    """Fit parameters; `residuals` returns how far each reading is off, over its error."""
    prior = np.log([each.prior for each in parameters])
    spread = np.array([each.spread for each in parameters])
    low, high = (np.log([getattr(each, end) for each in parameters]) for end in ("low", "high"))

    def off(place: Floats) -> Floats:
        named = {each.name: float(value) for each, value in zip(parameters, np.exp(place), strict=True)}
        return np.concatenate([soften(residuals(named)), (place - prior) / spread])

    place = np.clip(prior, low, high)
    left = off(place)
    jacobian = _jacobian(off, place, left, high)
    damping = 1e-2
    for _ in range(rounds):
        moved = _step(off, place, left, jacobian, damping, low, high)
        if moved is None:
            break
        gain = float(left @ left - moved.left @ moved.left) / float(left @ left)
        place, left, damping = moved.place, moved.left, moved.damping
        jacobian = _jacobian(off, place, left, high)
        if gain < ENOUGH:
            break
    return _judge(parameters, place, left, jacobian, spread)


class _Moved(NamedTuple):
    place: Floats
    left: Floats
    damping: float


def _step(
    off: Callable[[Floats], Floats], place: Floats, left: Floats, jacobian: Floats, damping: float, low: Floats,
    high: Floats,
) -> _Moved | None:  # fmt: skip
    """Return a place that is better, or None."""
    square, slope = jacobian.T @ jacobian, jacobian.T @ left
    for _ in range(TRIES):
        move = -np.linalg.solve(square + damping * np.diag(np.diag(square) + 1e-9), slope)
        trial = np.clip(place + np.clip(move, -LARGEST_MOVE, LARGEST_MOVE), low, high)
        found = off(trial)
        if found @ found < left @ left:
            return _Moved(trial, found, max(damping / 4, 1e-6))
        damping *= 5
    return None


def _jacobian(off: Callable[[Floats], Floats], place: Floats, left: Floats, high: Floats) -> Floats:
    table = np.empty((len(left), len(place)))
    for axis in range(len(place)):
        trial = place.copy()
        step = STEP if place[axis] + STEP <= high[axis] else -STEP
        trial[axis] += step
        table[:, axis] = (off(trial) - left) / step
    return table


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
