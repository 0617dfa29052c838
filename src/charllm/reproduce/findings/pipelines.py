"""Deep pipelines throttle more than tensor parallelism."""

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
from charllm.reproduce.paper import DENSE, H100, H200, ON_H100, degrees, runs_of

WIDEST = {
    H200: {"gpt3-175b": "tp8-pp4", "llama3-70b": "tp8-pp2"},
    H100: {"gpt3-175b": "tp8-pp8", "llama3-70b": "tp8-pp4"},
}


def deep_pipelines() -> Finding:
    """Pipelines of 16 or more stages against the widest tensor parallelism."""
    return Finding(
        claim=read_claims()["deep-pipelines"],
        configurations=_pairs(H200, more("clock_loss", POINT)),
        readings={
            DURING_GEMMS: Reading(_pairs(H200, during_gemms), is_judged=True),
            ON_H100: Reading(_pairs(H100, more("clock_loss", POINT)), is_judged=True),
            "higher peak temperature than TP8, K": Reading(_pairs(H200, more("temperature_peak_c"))),
        },
    )


def _pairs(study: str, effect: Number) -> dict[str, Configuration]:
    found = {}
    runs = runs_of(study)
    for case, run in runs.items():
        model, (strategy, _, flags) = case.split()[0], case.partition(" ")[2].rpartition(" / ")
        if model in DENSE and flags in ("base", "act") and degrees(run)[1] >= DEEP_FROM:
            shallow = runs[f"{model} {WIDEST[study][model]} / {flags}"]
            extra = ", recomputed" if flags == "act" else ""
            found[f"{model} {strategy}{extra}"] = Configuration((run, shallow), effect)
    return found
