"""Overlap of computation and communication: throttling and peak temperature."""

from charllm.report.page.claims import LEAST_OVERLAP_POINTS
from charllm.reproduce.finding import POINT, Configuration, Finding, Number, Reading, more, percent_less
from charllm.reproduce.paper import DENSE, H100, H200, ON_H100, Request, degrees, runs_of

PAIRS = (("base", "cc"), ("act", "cc+act"))
NO_OPS = "with the artifact's runs in which the flag does nothing"


def acts(case: str, run: Request) -> bool:
    """Tell whether the artifact's overlap flag changes anything: tensor messages, or the gradients of a dense model.

    GPT3-175B has one replica on both clusters; FSDP and sparse runs leave the flags of gradients off.
    """
    tp, _, _ = degrees(run)
    is_dense = case.startswith(DENSE[1])
    return "fsdp" not in case and (tp > 1 or is_dense)


def _pairs(effect: Number, *studies: str, all_runs: bool = False) -> dict[str, Configuration]:
    found = {}
    for study in studies:
        runs = runs_of(study)
        for case, run in runs.items():
            strategy, _, flags = case.rpartition(" / ")
            for before, after in PAIRS:
                if flags == after and (all_runs or acts(case, run)):
                    extra = ", recomputed" if before == "act" else ""
                    found[f"{strategy}{extra}"] = Configuration((run, runs[f"{strategy} / {before}"]), effect)
    return found


def temperature() -> Finding:
    """Overlap and the hottest GPU."""
    hotter = more("temperature_peak_c")
    return Finding(
        name="overlap-temperature",
        claim="Overlap of computation and communication always raises peak temperature.",
        unit="K hotter at the hottest GPU than without overlap",
        configurations=_pairs(hotter, H200),
        least=0.25,
        is_thermal=True,
        note="Where the power cap binds it holds power, and so heat, either way; overlap is warmer only where GPUs "
        "were below the cap while they waited for links.",
        readings={
            ON_H100: Reading(_pairs(hotter, H100), is_judged=True),
            NO_OPS: Reading(_pairs(hotter, H200, all_runs=True), is_judged=True),
            "step time saved, %": Reading(_pairs(percent_less("step_time_s"), H200)),
        },
    )


def throttling() -> Finding:
    """Overlap and lost clock."""
    lost = more("clock_loss", POINT)
    return Finding(
        name="overlap-throttling",
        claim="Overlap of computation and communication raises throttling.",
        unit="points of clock lost beyond the run without overlap",
        configurations=_pairs(lost, H200),
        least=LEAST_OVERLAP_POINTS,
        is_thermal=True,
        note="The artifact samples no reason of throttling; lost clock is what its clocks would show. A link in use "
        "beside products draws power that the cap takes from the clock.",
        readings={
            ON_H100: Reading(_pairs(lost, H100), is_judged=True),
            NO_OPS: Reading(_pairs(lost, H200, all_runs=True), is_judged=True),
        },
    )
