"""Activation recomputation: less throttling of one model, more of another."""

from charllm.report.claims import DEEP_FROM, read_claims
from charllm.reproduce.finding import (
    DURING_GEMMS,
    POINT,
    Configuration,
    Finding,
    Number,
    Reading,
    during_gemms,
    more,
)
from charllm.reproduce.looks import Row
from charllm.reproduce.paper import H100, H200, ON_H100, degrees, run_of, runs_of

over_the_step = more("clock_loss", POINT)


def two_signs() -> Finding:
    """Recomputation and lost clock, GPT3-175B against Llama3-70B."""
    return Finding(
        claim=read_claims()["recompute"],
        configurations=_pairs(H200),
        readings={
            DURING_GEMMS: Reading(_pairs(H200, during_gemms), is_judged=True),
            ON_H100: Reading(_pairs(H100), is_judged=True),
        },
    )


def _pairs(study: str, lost: Number = over_the_step) -> dict[str, Configuration]:
    found = {}
    for case, run in runs_of(study, ends=" / base").items():
        strategy = case.removesuffix(" / base")
        deep = case.startswith("gpt3-175b") and degrees(run)[1] >= DEEP_FROM
        llama = case.startswith("llama3-70b") and "fsdp" not in case
        if deep or llama:
            pair = (run_of(study, f"{strategy} / act"), run)
            found[strategy] = Configuration(pair, _negative(lost) if deep else lost)
    return found


def _negative(effect: Number) -> Number:
    def number(*rows: Row) -> float | None:
        found = effect(*rows)
        return None if found is None else -found

    return number
