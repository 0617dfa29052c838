"""LoRA against full training."""

from charllm.report.claims import read_claims
from charllm.reproduce.finding import Configuration, Finding, Number, Reading, more, percent_less, times
from charllm.reproduce.looks import Row
from charllm.reproduce.paper import H200, LORA, runs_of, with_change

SEQ_LENGTH = 2048
"""Of the LoRA runs: the longest that their data set has."""


def efficiency() -> Finding:
    """Tokens per joule of LoRA over those of full training."""
    return Finding(
        claim=read_claims()["lora"],
        configurations=_pairs(times("tokens_per_j"), equal=True),
        readings={
            "1 / (energy x delay) at the artifact's sequence lengths, ratio": Reading(
                _pairs(_inverse_edp, equal=False), is_judged=True
            ),
            "1 / (energy x delay) at equal sequence lengths, ratio": Reading(
                _pairs(_inverse_edp, equal=True), is_judged=True
            ),
            "samples per joule at the artifact's sequence lengths, ratio": Reading(
                _pairs(_per_joule, equal=False), is_judged=True
            ),
            "lower mean power at equal sequence lengths, %": Reading(_pairs(percent_less("power_mean_w"), equal=True)),
            "lower peak temperature at equal sequence lengths, K": Reading(_pairs(_cooler_k, equal=True)),
        },
    )


def _pairs(effect: Number, *, equal: bool) -> dict[str, Configuration]:
    full = runs_of(H200, ends=" / act")
    found = {}
    for case, run in runs_of(LORA).items():
        if case.endswith((" / mbs 1", " / mbs 1 / a")) and "unsharded" not in case:
            strategy = case.partition(" / ")[0]
            whole = full[f"{strategy} / act"]
            if equal:
                whole = with_change(whole, {"training": {"seq_length": SEQ_LENGTH}})
            found[strategy] = Configuration((run, whole), effect)
    return found


def _inverse_edp(light: Row, full: Row) -> float | None:
    """Return how many times the artifact's efficiency, 1 / (seconds x joules) at equal batches, is higher."""
    try:
        return float(
            full["step_time_s"] * full["energy_per_step_j"] / (light["step_time_s"] * light["energy_per_step_j"])
        )
    except KeyError:
        return None


def _per_joule(light: Row, full: Row) -> float | None:
    return times("energy_per_step_j")(full, light)


def _cooler_k(light: Row, full: Row) -> float | None:
    return more("temperature_peak_c")(full, light)
