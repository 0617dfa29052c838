"""What the artifact itself gets wrong, read both ways."""

from typing import Any

from charllm.reproduce.findings.overlap import acts
from charllm.reproduce.looks import Row, Rows, key_of
from charllm.reproduce.paper import H100, H200, MODELS, PARALLELISM, Request, run_of, runs_of
from charllm.reproduce.verdicts import number

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
        "mistake": "Every plot script swaps the labels of the two Mixtral-8x7B strategies.",
        "artifact": f"{wrong} tokens a second and GPU",
        "corrected": f"{told} tokens a second and GPU",
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
        "mistake": "Overlap is plotted for runs in which its flags do nothing (TP1 of GPT3-175B or Mixtral, FSDP).",
        "artifact": f"{len(pairs)} runs with overlap are taken as data",
        "corrected": f"{len(pairs) - len(idle)} of them can differ from the run without; {len(idle)} are repeats",
    }


def _inverse_edp(rows: Rows) -> dict[str, Any]:
    """Find the models whose best strategy is another by tokens a joule than by one over energy and delay."""
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
        "mistake": "Efficiency is samples over seconds and joules: one over energy times delay, not samples a joule.",
        "artifact": f"most efficient: {', '.join(wrong)}",
        "corrected": f"most tokens a joule: {', '.join(told)}",
    }


def _throttling(rows: Rows) -> dict[str, Any]:
    known = [row for run in runs_of(H200).values() if "clock_loss" in (row := _row(rows, run))]
    any_loss = sum((row["clock_loss"] or 0) > 0.001 for row in known)
    by_heat = sum((row.get("clock_loss_fraction.thermal") or 0) > 0.001 for row in known)
    return {
        "mistake": "No reason of throttling is sampled; only the mean clock is.",
        "artifact": f"{any_loss} of {len(known)} H200 runs lose clock, which looks like throttling by heat",
        "corrected": f"{by_heat} of them lose clock to heat at 25 C; the others lose it to the power cap",
    }
