"""Large microbatches: bursts, peak power, throttling."""

from charllm.report.claims import LARGE_MICROBATCH, MICROBATCH_PEAKS, MICROBATCH_THROTTLING
from charllm.reproduce.finding import POINT, Configuration, Finding, Number, Reading, more, percent_more, times
from charllm.reproduce.looks import Row
from charllm.reproduce.paper import MICROBATCH, runs_of

SIZES = (LARGE_MICROBATCH, 8)
SHARDED = "the same with FSDP, which is bound by the network"
NOTE = "Microbatches of 4 and 8 against 1, with full recomputation. Runs that exceed memory are simulated all the same."


def _configurations(effect: Number, *, sharded: bool = False) -> dict[str, Configuration]:
    small = runs_of(MICROBATCH, ends=" / mbs 1")
    found = {}
    for case, run in small.items():
        strategy = case.removesuffix(" / mbs 1")
        for size in SIZES if sharded == ("fsdp" in case) else ():
            larger = runs_of(MICROBATCH, starts=f"{strategy} / mbs {size}")
            found[f"{strategy} mbs {size}"] = Configuration((*larger.values(), run), effect)
    return found


def peak_power() -> Finding:
    """Larger microbatches and peak power."""
    higher, faster = percent_more("power_peak_sensor_w"), percent_more("tokens_per_s")
    swings = percent_more("cluster_power_swing_w")
    return Finding(
        claim=MICROBATCH_PEAKS,
        configurations=_configurations(higher),
        why="larger GEMMs start from a higher clock after longer bubbles",
        is_thermal=True,
        note=f"{NOTE} Power peaks in a burst of GEMMs that follows an idle phase, before the power governor lowers "
        "the clock. Larger GEMMs draw more power, and longer pipeline bubbles let the clock rise further before the "
        "burst.",
        readings={
            SHARDED: Reading(_configurations(higher, sharded=True), is_judged=True),
            "ratio of peak to mean power against microbatch 1, %": Reading(_configurations(_burstier)),
            "0.1-3 Hz oscillation of cluster power against microbatch 1, %": Reading(_configurations(swings)),
            "throughput against microbatch 1, %": Reading(_configurations(faster)),
        },
    )


def _burstier(large: Row, small: Row) -> float | None:
    """Return by how many per cent the ratio of peak to mean power is higher."""
    peaks, means = (times(name)(large, small) for name in ("power_peak_sensor_w", "power_mean_w"))
    return None if peaks is None or not means else 100 * (peaks / means - 1)


def throttling() -> Finding:
    """Larger microbatches and lost clock."""
    lost = more("clock_loss", POINT)
    return Finding(
        claim=MICROBATCH_THROTTLING,
        configurations=_configurations(lost),
        why="larger GEMMs lower the clock, longer bubbles raise it",
        is_thermal=True,
        note=f"{NOTE} Larger GEMMs keep the GPU busier, which lowers the clock; fewer microbatches cause longer "
        "pipeline bubbles, which raise it.",
        readings={SHARDED: Reading(_configurations(lost, sharded=True), is_judged=True)},
    )
