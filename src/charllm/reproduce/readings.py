"""Errors of the artifact: what its runs say with each error, and corrected."""

from typing import Any

from charllm.report.claims import HEAT_LOSS_FRACTION
from charllm.reproduce.findings.overlap import acts
from charllm.reproduce.looks import Row, Rows, key_of
from charllm.reproduce.paper import H100, H200, MODELS, PARALLELISM, Request, run_of, runs_of
from charllm.reproduce.words import number

SWAPPED = ("mixtral-8x7b ep8-tp1", "mixtral-8x7b ep4-tp2")


def reading_runs() -> list[Request]:
    """Return the runs that both readings need."""
    return [*runs_of(PARALLELISM).values(), *runs_of(H200).values(), *runs_of(H100).values()]


def both_readings(rows: Rows) -> list[dict[str, Any]]:
    """Return each mistake of the artifact with what it makes of its runs, and what they say without it."""
    return [_swapped(rows), _no_ops(), _inverse_edp(rows), _throttling(rows)]


def _row(rows: Rows, request: Request) -> Row:
    return rows.get(key_of(request), {})


def _swapped(rows: Rows) -> dict[str, Any]:
    rates = {name: _row(rows, run_of(PARALLELISM, name)).get("tokens_per_s_per_gpu") for name in SWAPPED}
    told = ", ".join(f"{name} {number(rate)}" for name, rate in rates.items())
    wrong = ", ".join(
        f"{name} {number(rate)}" for name, rate in zip(SWAPPED, reversed(list(rates.values())), strict=True)
    )
    return {
        "mistake": "All plot scripts swap the labels of the two Mixtral-8x7B strategies.",
        "artifact": f"{wrong} tokens/s per GPU",
        "corrected": f"{told} tokens/s per GPU",
    }


def _no_ops() -> dict[str, Any]:
    pairs = [
        (case, run)
        for study in (H200, H100)
        for case, run in runs_of(study).items()
        if case.endswith((" / cc", "+act"))
    ]
    idle = [(case, run) for case, run in pairs if not acts(case, run)]
    return {
        "mistake": "Overlap is plotted for runs in which its flags have no effect (GPT3-175B or Mixtral at TP1, FSDP).",
        "artifact": f"{len(pairs)} runs count as runs with overlap",
        "corrected": f"{len(pairs) - len(idle)} of them can differ from the run without overlap; {len(idle)} repeat it",
    }


def _inverse_edp(rows: Rows) -> dict[str, Any]:
    """Return the most efficient strategy of each model, by 1 / (energy x delay) and by tokens per joule."""
    told, wrong = [], []
    for model in MODELS:
        known = {
            case.removeprefix(f"{model} "): row
            for case, run in runs_of(PARALLELISM, starts=model).items()
            if (row := _row(rows, run)).get("fits") and row.get("tokens_per_j")
        }
        if known:
            right = max(known, key=lambda case: known[case]["tokens_per_j"])
            false = min(known, key=lambda case: known[case]["energy_per_step_j"] * known[case]["step_time_s"])
            told.append(f"{model} {right}")
            wrong.append(f"{model} {false}")
    return {
        "mistake": "The plotted efficiency is 1 / (energy x delay), not samples per joule.",
        "artifact": f"most efficient: {', '.join(wrong)}",
        "corrected": f"most tokens per joule: {', '.join(told)}",
    }


def _throttling(rows: Rows) -> dict[str, Any]:
    known = [row for run in runs_of(H200).values() if "clock_loss" in (row := _row(rows, run))]
    least = HEAT_LOSS_FRACTION
    any_loss = sum((row["clock_loss"] or 0) > least for row in known)
    by_heat = sum((row.get("clock_loss_fraction.thermal") or 0) > least for row in known)
    return {
        "mistake": "Throttle reasons are not sampled, only clocks.",
        "artifact": f"{any_loss} of {len(known)} H200 runs have a reduced clock, which looks like thermal throttling",
        "corrected": f"{by_heat} of them are thermally throttled at an inlet of 25 C; the power cap causes the rest",
    }
