"""LoRA against full training."""

from charllm.reproduce.finding import Configuration, Finding, Number, Reading, more, percent_less, times
from charllm.reproduce.looks import Row
from charllm.reproduce.paper import H200, LORA, runs_of, with_change

SEQ_LENGTH = 2048
"""Of the LoRA runs, whose data set gives no more."""


def efficiency() -> Finding:
    """Tokens a joule of LoRA over those of full training."""
    return Finding(
        name="lora",
        claim="LoRA is more than ten times as efficient as full training, at lower power and temperature.",
        unit="tokens a joule, times full training with recomputation",
        configurations=_pairs(times("tokens_per_j"), equal=True),
        least=1.0,
        size=10.0,
        note="At equal sequences and batch LoRA saves weight gradients, their exchange and recomputation. The "
        "artifact's training runs have longer sequences (4096 and 8192 tokens for Mixtral and Llama), and its "
        "efficiency is one over energy times delay, which squares every saving: both together exceed ten.",
        readings={
            "the artifact's efficiency (samples over seconds and joules) on its own sequences, times": Reading(
                _pairs(_inverse_edp, equal=False), is_judged=True
            ),
            "the artifact's efficiency at equal sequences, times": Reading(
                _pairs(_inverse_edp, equal=True), is_judged=True
            ),
            "samples a joule on the artifact's own sequences, times": Reading(
                _pairs(_per_joule, equal=False), is_judged=True
            ),
            "mean power saved, % (equal sequences)": Reading(_pairs(percent_less("power_mean_w"), equal=True)),
            "K cooler at the hottest GPU (equal sequences)": Reading(_pairs(_cooler_k, equal=True)),
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
