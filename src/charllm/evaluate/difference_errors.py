"""Derive how wrong predicted differences are, and write it where results read it (result/data/difference_errors.json).

    python -m charllm.evaluate.difference_errors

Equation: nine in ten errors of an effect e are below w = sqrt(floor^2 + (slope x e)^2). floor and slope are those of
least pinball loss of ln |error| at 90 % for each kind of change and quantity, held weakly near START. `reach` is the
90th percentile of |error| / w where a source was left out; for kinds without pairs, where a kind was left out.
A pair weighs as much as makes the pairs of n runs of one source count n - 1, the number of independent differences.
Source: pairs of evaluate/differences.py: published step times with their model family left out, ranks predicted before
they were read, runs on H200 boards and V100 nodes, H100 under power limits. Runs that were not tuned are left out.
Ignores: biases of one sign; that widths may depend on the model or on the number of GPUs. V100 nodes without a clock
limit slow down by heat, of which a part is predicted: that kind has its own errors, and is in no others.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.evaluate.differences import Pair, list_pairs, noise_levels, read_all
from charllm.result.differences import ANY, FILE, FREED, LEVEL, TEMPERATURES

START = {False: (0.03, 0.3), True: (1.0, 0.5)}
"""Floor and slope before any pair is looked at, of ratios and of kelvin. Assumed."""
PRIOR = 0.5
"""Loss of a floor or slope that is off its prior by a factor of e. Assumed."""
LEAST_ERROR = 1e-6
LEAST_RUNS = 4
"""A kind of change with pairs of fewer runs counts as one without pairs."""
SAME = 20.0
"""Pairs that every kind counts as in what stands for kinds without pairs, however many it has. Assumed."""
LEAST_SOURCE_PAIRS = 20
"""A source with as many pairs of a quantity is scored by itself."""
UNTUNED = "published, untuned hosts"
DIGITS = 3


class Effects(NamedTuple):
    """Pairs of one quantity as arrays."""

    pairs: Sequence[Pair]
    predicted: Floats
    errors: Floats
    weights: Floats

    @property
    def kinds(self) -> Any:
        """Kind of change of each pair."""
        return np.array([pair.change for pair in self.pairs])

    @property
    def sources(self) -> Any:
        """Source of each pair."""
        return np.array([source_of(pair) for pair in self.pairs])

    def part(self, chosen: Any) -> "Effects":
        """Return some of the pairs, by a mask."""
        return Effects([pair for pair, is_chosen in zip(self.pairs, chosen, strict=True) if is_chosen],
                       self.predicted[chosen], self.errors[chosen], self.weights[chosen])  # fmt: skip


Widths = Mapping[str, tuple[float, float]]
"""Kind of change, or ANY: floor and slope."""


def source_of(pair: Pair) -> str:
    """Return the source that is held out together with a pair."""
    return f"{pair.data}: {pair.board.split()[0] if pair.data == 'published' else pair.board}"


def gather(pairs: Iterable[Pair]) -> dict[str, Effects]:
    """Return all pairs that count, by quantity, with their weights."""
    groups: dict[tuple[str, str, str], list[Pair]] = defaultdict(list)
    for pair in pairs:
        if pair.change and pair.data != UNTUNED:
            groups[pair.quantity, pair.change, source_of(pair)].append(pair)
    found: dict[str, list[tuple[Pair, float]]] = defaultdict(list)
    for (quantity, _change, _source), members in groups.items():
        weight = (_count_runs(members) - 1) / len(members)
        found[quantity] += [(pair, min(1.0, weight)) for pair in members]
    return {quantity: _effects(members) for quantity, members in sorted(found.items())}


def _count_runs(pairs: Iterable[Pair]) -> int:
    return len({(pair.data, pair.board, name) for pair in pairs for name in (pair.first, pair.second)})


def _effects(members: Sequence[tuple[Pair, float]]) -> Effects:
    pairs, weights = zip(*members, strict=True)
    return Effects(pairs, *(np.array(one) for one in ([pair.predicted for pair in pairs],
                                                      [pair.error for pair in pairs], weights)))  # fmt: skip


def fit_widths(effects: Effects) -> dict[str, tuple[float, float]]:
    """Return floor and slope of all kinds together, and of each kind."""
    kinds = effects.kinds
    every = {str(kind): effects.part(kinds == kind) for kind in np.unique(kinds)}
    own = {kind: part for kind, part in every.items() if _count_runs(part.pairs) >= LEAST_RUNS}
    general = {kind: part for kind, part in every.items() if kind != FREED}
    together = [part._replace(weights=part.weights / part.weights.sum() * SAME) for part in general.values()]
    start = START[effects.pairs[0].quantity in TEMPERATURES]
    all_kinds = _fit(_join(together), start) if together else start
    return {ANY: all_kinds, **{kind: _fit(part, start) for kind, part in own.items()}}


def _join(parts: Sequence[Effects]) -> Effects:
    arrays = (np.concatenate(one) for one in zip(*(part[1:] for part in parts), strict=True))
    return Effects([pair for part in parts for pair in part.pairs], *arrays)


def _fit(effects: Effects, prior: Sequence[float]) -> tuple[float, float]:
    from scipy.optimize import minimize

    logs, sizes = np.log(prior), np.log(np.maximum(np.abs(effects.errors), LEAST_ERROR))

    def loss(at: Floats) -> float:
        beyond = sizes - np.log(np.hypot(np.exp(at[0]), np.exp(at[1]) * effects.predicted))
        pinball = np.maximum(LEVEL * beyond, (LEVEL - 1) * beyond)
        return float(PRIOR * np.sum((at - logs) ** 2) + np.sum(effects.weights * pinball))

    floor, slope = np.exp(minimize(loss, logs, method="Nelder-Mead", options={"xatol": 1e-4, "fatol": 1e-6}).x)
    return _round(floor), _round(slope)


def _round(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _ratios(effects: Effects, widths: Widths) -> Floats:
    """Return each |error| in widths."""
    each = [widths.get(pair.change, widths[ANY]) for pair in effects.pairs]
    floors, slopes = (np.array(one) for one in zip(*each, strict=True))
    return np.asarray(np.abs(effects.errors) / np.hypot(floors, slopes * effects.predicted))


def ratios_without(effects: Effects, groups: Floats) -> Floats:
    """Return each |error| in widths that are fitted without the pair's group; with one group alone, as fitted."""
    found = np.zeros(len(effects.pairs))
    for group in np.unique(groups):
        own = groups == group
        others = effects if own.all() else effects.part(~own)
        found[own] = _ratios(effects.part(own), fit_widths(others))
    return found


def percentile(ratios: Floats, weights: Floats) -> float:
    """Return the weighted percentile of LEVEL."""
    order = np.argsort(ratios)
    passed = np.cumsum(weights[order]) / weights.sum()
    return _round(float(ratios[order][np.searchsorted(passed, LEVEL)]))


def derive(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Return the errors of differences by kind of change and quantity, and how intervals do on held-out sources."""
    noise = noise_levels(pairs)
    rows, held = [], []
    for quantity, effects in gather(pairs).items():
        reaches = _reaches(effects)
        held += _score_sources(quantity, effects)
        for change, (floor, slope) in fit_widths(effects).items():
            own = [pair for pair in effects.pairs if change == pair.change or (change == ANY and pair.change != FREED)]
            rows.append({
                "change": change, "quantity": quantity, "floor": floor, "slope": slope,
                "reach": reaches[change == ANY],
                "median_error": _round(float(np.median([abs(pair.error) for pair in own]))),
                "noise": _round(float(np.median([noise[pair.data, quantity] for pair in own]))),
                "pairs": len(own), "runs": _count_runs(own), "sources": len({source_of(pair) for pair in own}),
                "data": sorted({pair.data for pair in own}),
            })  # fmt: skip
    return {"level": LEVEL, "errors": rows, "held_out": held}


def _reaches(effects: Effects) -> tuple[float, float]:
    """Return how far intervals reach in widths: of kinds with pairs, and of those without."""
    general = effects.part(effects.kinds != FREED)
    shared = general.part(_is_shared(general))
    with_pairs = shared if len(shared.pairs) else general
    return (percentile(ratios_without(with_pairs, with_pairs.sources), with_pairs.weights),
            percentile(ratios_without(general, general.kinds), general.weights))  # fmt: skip


def _is_shared(effects: Effects) -> Any:
    """Tell of each pair whether other sources have pairs of its kind."""
    kinds, sources = effects.kinds, effects.sources
    return np.array([len(np.unique(sources[kinds == kind])) > 1 for kind in kinds], bool)


def _score_sources(quantity: str, effects: Effects) -> list[dict[str, Any]]:
    """Return for each large source, and all together, how many pairs lie in intervals that the other sources give."""
    shared = effects.part(_is_shared(effects) & (effects.kinds != FREED))
    ratios, sources = ratios_without(shared, shared.sources), shared.sources
    inside, found = np.zeros(len(ratios), bool), []
    for source in dict.fromkeys(sources.tolist()):
        own = sources == source
        inside[own] = ratios[own] <= percentile(ratios[~own], shared.weights[~own])
        if own.sum() >= LEAST_SOURCE_PAIRS:
            found.append(_covered(quantity, source, inside[own], shared.weights[own]))
    return [_covered(quantity, "all", inside, shared.weights), *found]


def _covered(quantity: str, source: str, inside: Any, weights: Floats) -> dict[str, Any]:
    return {"quantity": quantity, "source": source, "pairs": len(inside),
            "covered_fraction": _round(float(np.average(inside, weights=weights)))}  # fmt: skip


def write(path: Path = FILE) -> None:
    """Write the table that results read."""
    rows = derive(list_pairs(read_all()))
    path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
