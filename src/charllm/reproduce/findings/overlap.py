"""Compute-communication overlap: throttling and peak temperature."""

from charllm.catalog.resolve import resolve_cluster
from charllm.report.claims import overlap_acts, read_claims
from charllm.reproduce.finding import (
    DURING_GEMMS,
    POINT,
    Configuration,
    Finding,
    Number,
    Reading,
    during_gemms,
    more,
    percent_less,
)
from charllm.reproduce.paper import H100, H200, ON_H100, Request, degrees, runs_of

PAIRS = (("base", "cc"), ("act", "cc+act"))
NO_OPS = "including the artifact's runs in which the overlap flags have no effect"


def acts(case: str, run: Request) -> bool:
    """Tell whether the artifact's overlap flags change anything in a run."""
    tp, pp, ep = degrees(run)
    cluster = resolve_cluster(run["cluster"])
    dp = cluster.nodes * cluster.node.gpus // (tp * pp)
    return overlap_acts(tp=tp, dp=dp, is_sparse=ep > 1, is_fsdp="fsdp" in case)


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
    """Overlap and peak temperature."""
    hotter = more("temperature_peak_c")
    return Finding(
        claim=read_claims()["overlap-temperature"],
        configurations=_pairs(hotter, H200),
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
        claim=read_claims()["overlap-throttling"],
        configurations=_pairs(lost, H200),
        readings={
            DURING_GEMMS: Reading(_pairs(during_gemms, H200), is_judged=True),
            ON_H100: Reading(_pairs(lost, H100), is_judged=True),
            NO_OPS: Reading(_pairs(lost, H200, all_runs=True), is_judged=True),
        },
    )
