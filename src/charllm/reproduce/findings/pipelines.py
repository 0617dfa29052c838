"""Deep pipelines throttle more than tensor parallelism."""

from charllm.report.page.claims import DEEP_FROM, LEAST_POINTS
from charllm.reproduce.finding import POINT, Configuration, Finding, Number, Reading, more
from charllm.reproduce.paper import DENSE, H100, H200, ON_H100, degrees, runs_of

WIDEST = {
    H200: {"gpt3-175b": "tp8-pp4", "llama3-70b": "tp8-pp2"},
    H100: {"gpt3-175b": "tp8-pp8", "llama3-70b": "tp8-pp4"},
}


def deep_pipelines() -> Finding:
    """Pipelines of 16 and more stages against the widest tensor parallelism."""
    return Finding(
        name="deep-pipelines",
        claim="Deep pipelines (PP16 to 32) throttle more than tensor-parallel ones.",
        unit="points of clock lost beyond TP8 of the same model",
        configurations=_pairs(H200, more("clock_loss", POINT)),
        least=LEAST_POINTS,
        is_thermal=True,
        note="Tensor parallelism over NVLink rests between its products, and rests let the clock up; a deep pipeline "
        "works in longer stretches.",
        readings={
            ON_H100: Reading(_pairs(H100, more("clock_loss", POINT)), is_judged=True),
            "K hotter at the hottest GPU than TP8": Reading(_pairs(H200, more("temperature_peak_c"))),
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
