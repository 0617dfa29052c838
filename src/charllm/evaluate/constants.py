"""Print every fitted constant as a Markdown table, then the constants that were measured, published or assumed.

    python -m charllm.evaluate.constants > docs/constants.md

The gain of a fitted constant is the median absolute error of the step time over the rows it moves with this constant
at its prior, against the same with all constants fitted (evaluate/data/fit.json, "all"), at the one clock at which a
run settles. Every SAMPLE-th of these rows is predicted, which keeps the command below two minutes.
Ignores: that the other constants would move, too, if one of them were held at its prior.
"""

import ast
import inspect
import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from charllm.catalog.tables import entries
from charllm.evaluate.fit import CONSTANTS, Constant, FitRow, Fitter, Values, moves
from charllm.evaluate.held_out import load_folds, load_rows
from charllm.evaluate.software_columns import SLOW_LIBRARY_FRACTIONS
from charllm.evaluate.spellings import spellings
from charllm.gpu.formats import BLOCK_SCALED_FRACTION
from charllm.network.constants import NETWORK
from charllm.spec.grades import HOST_GRADES, is_untuned
from charllm.units import format_percent
from charllm.workload.routing import EXPERT_SPREAD
from charllm.workload.update import PIECE_CALLS

SAMPLE = 4
MODULES = (
    "charllm.network.constants",
    "charllm.timeline.constants",
    "charllm.gpu.formats",
    "charllm.gpu.memory_bound",
    "charllm.workload.kernel_calls",
    "charllm.workload.launches",
    "charllm.workload.expert_launches",
    "charllm.workload.routing",
    "charllm.workload.update",
    "charllm.spec.grades",
)
"""Modules whose constants are listed; a constant is described by the docstring below it."""
ORIGIN = re.compile(r"\b(measured|published|derived|counted|chosen|assumed)\b[:,.]")
"""Words by which a docstring says how a value is known."""
LONGEST_VALUE = 40
INTRODUCTION = f"""# Constants

This page is written by `python -m charllm.evaluate.constants`; edit that module, not this page.

A *fitted* constant is one that only published step times can identify. Each starts from a prior with a stated source
and is held near it (`evaluate/fit.py`); `make fit` writes the values. *Rows* is the number of published rows that the
constant moves. *Error* is the median absolute error of the step time over every {SAMPLE}th of these rows, in sample, at
one solved clock: with all constants fitted, and with this one at its prior. The gain is the difference between both.
A gain near zero, or a negative one, means that the prior would do as well on these rows.

All others are set with published step times in view, or measured, published, derived or assumed, and `make fit` does
not change them. Datasheet figures and the measured constants of each GPU are in the catalog, with their sources
(`charllm catalog gpus h200`)."""


IN_VIEW = """

## Set with published step times in view

These are not fitted by `make fit`, but their values rest on published step times that are also scored, so that they
count as free constants, too.

"""


class InView(NamedTuple):
    """A figure whose value was set with scored step times in view."""

    name: str
    value: float
    text: str


def constants_in_view() -> list[InView]:
    """List what was set with published step times in view, other than by the fit."""

    def kernel(gpu: str, field: str) -> float:
        return float(entries("gpus")[gpu].values["kernels"][field])

    late = spellings()["exchange_us"]
    return [
        InView("usual hosts", HOST_GRADES["usual"], "launch speed over a tuned host's (AWS, B300)"),
        InView("slow hosts", HOST_GRADES["slow"], "the same (AWS, H100)"),
        *(InView(f"exchange_us, {words}", us, "microseconds of an exchange that hosts forward (AWS)")
          for words, us in late.items()),
        InView("PIECE_CALLS", PIECE_CALLS, "copies of ZeRO-1's pieces on the host (nanotron on 512 GPUs)"),
        InView("nic_hop_s", NETWORK.nic_hop_s, "a round value; any from 4 to 20 us changes little"),
        InView("EXPERT_SPREAD", EXPERT_SPREAD, "Qwen3-235B with natural against forced routing"),
        InView("BLOCK_SCALED_FRACTION", BLOCK_SCALED_FRACTION, "equal runs in mxfp8 and fp8"),
        InView("matrix_fraction, mi250", kernel("mi250", "matrix_fraction"), "MPT-7B; with the next, layers on LUMI"),
        InView("library_fraction, mi250", SLOW_LIBRARY_FRACTIONS["mi250"], "ROCm before 5.4: layers of 175B on LUMI"),
        InView("grouped_fraction, mi355x", kernel("mi355x", "grouped_fraction"), "sparse models under Primus"),
        InView("grouped_fraction, b200", kernel("b200", "grouped_fraction"), "between tables and published runs"),
    ]  # fmt: skip


def render_in_view() -> str:
    """Return what was set with published step times in view as a Markdown table."""
    lines = ["| constant | value | what it is, and by which runs it was set |", "|---|---:|---|"]
    return "\n".join([*lines, *(f"| `{one.name}` | {one.value:g} | {one.text} |" for one in constants_in_view())])


class Gain(NamedTuple):
    """What fitting one constant changes."""

    constant: Constant
    value: float
    rows: int
    fitted_error: float | None
    """Median absolute error with all constants fitted; None where it moves no row."""
    prior_error: float | None
    """The same with this one at its prior."""


class Described(NamedTuple):
    """A constant of a module that is not fitted."""

    name: str
    value: str
    origin: str
    text: str


def measure_gains(rows: Sequence[FitRow], values: Values, workers: int = 2) -> list[Gain]:
    """Return for each constant the error over a sample of the rows it moves, fitted and at its prior."""
    places = {
        constant.name: [place for place, row in enumerate(rows) if moves(constant.name, row.run)]
        for constant in CONSTANTS
    }
    sampled = {name: found[::SAMPLE] for name, found in places.items()}
    wanted = sorted({place for found in sampled.values() for place in found})
    measured = np.array([row.measured_s for row in rows])
    fitter = Fitter(rows, workers)
    fitted_s = np.full(len(rows), np.nan)
    fitted_s[wanted] = fitter.predict(values, wanted)
    gains = []
    for constant in CONSTANTS:
        chosen = sampled[constant.name]
        if not chosen:
            gains.append(Gain(constant, values[constant.name], 0, None, None))
            continue
        at_prior_s = fitter.predict({**values, constant.name: constant.prior}, chosen)
        fitted, prior = (
            float(np.median(np.abs(seconds / measured[chosen] - 1))) for seconds in (fitted_s[chosen], at_prior_s)
        )
        gains.append(Gain(constant, values[constant.name], len(places[constant.name]), fitted, prior))
    fitter.pool.shutdown()
    return gains


def render_gains(gains: Sequence[Gain]) -> str:
    """Return the fitted constants as a Markdown table."""
    lines = [
        "| constant | meaning | prior | source of the prior | fitted | rows | error, fitted | error, at prior | gain |",
        "|---|---|---:|---|---:|---:|---:|---:|---:|",
    ]
    for constant, value, rows, fitted, prior in gains:
        errors = ["-"] * 3
        if fitted is not None and prior is not None:
            errors = [format_percent(fitted), format_percent(prior), f"{100 * (prior - fitted):+.1f}"]
        lines.append(
            f"| `{constant.name}` | {constant.meaning} | {constant.prior:.3g} | {constant.source} | {value:.3g} "
            f"| {rows} | {' | '.join(errors)} |"
        )
    return "\n".join(lines)


def describe_module(name: str) -> list[Described]:
    """List the constants of a module whose docstring says how they are known, but for the fitted ones."""
    fitted = {constant.name.split(".")[1] for constant in CONSTANTS}
    tree = ast.parse(inspect.getsource(import_module(name)))
    bodies = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))]
    found = []
    for label, value, text in (one for body in bodies for one in _documented(body)):
        origin = ORIGIN.search(text.lower())
        if origin and label not in fitted:
            found.append(Described(label, value, origin[1], text))
    return found


def list_constants() -> list[Described]:
    """List every constant of the simulator, the fitted ones first."""
    fitted = load_folds()["all"]
    found = [
        Described(one.name, f"{fitted[one.name]:.3g}", "fitted", f"{one.meaning}; prior {one.prior:.3g}: {one.source}")
        for one in CONSTANTS
    ]
    return found + [one for name in MODULES for one in describe_module(name)]


def _documented(body: list[ast.stmt]) -> Iterator[tuple[str, str, str]]:
    """Yield name, value and docstring of each assignment that has one below it."""
    for statement, after in pairwise(body):
        text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else None
        if not isinstance(text, str) or not isinstance(statement, ast.Assign | ast.AnnAssign) or not statement.value:
            continue
        target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
        yield ast.unparse(target).strip("()"), _shown(statement.value), " ".join(text.split())


def _shown(value: ast.expr) -> str:
    if isinstance(value, ast.Dict):
        return f"table of {len(value.keys)}"
    if isinstance(value, ast.Call):
        return ", ".join(ast.unparse(one.value if isinstance(one, ast.keyword) else one)
                         for one in (*value.args, *value.keywords))  # fmt: skip
    text = ", ".join(map(ast.unparse, value.elts)) if isinstance(value, ast.Tuple) else ast.unparse(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 4]} ..."


def render_module(name: str) -> str:
    """Return a module's constants as a Markdown table."""
    lines = ["| constant | value | known | meaning and source |", "|---|---|---|---|"]
    lines += [f"| `{one.name}` | {one.value} | {one.origin} | {one.text.replace('|', '/')} |"
              for one in describe_module(name)]  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    """Print the page."""
    rows = [row for row in load_rows() if not is_untuned(row.run)]
    gains = measure_gains(rows, load_folds()["all"])
    print(INTRODUCTION)
    print(f"\n## Fitted: {len(CONSTANTS)} constants, {len(rows)} published rows\n")
    print(render_gains(gains) + IN_VIEW + render_in_view())
    print("\n## Measured, published, derived or assumed\n")
    for name in MODULES:
        path = name.replace("charllm.", "").replace(".", "/")
        print(f"### `{path}.py`\n\n{render_module(name)}\n")


if __name__ == "__main__":
    main()
