"""Large microbatches: bursts, peak power, throttling."""

from charllm.report.page.claims import LEAST_PEAK_PERCENT
from charllm.reproduce.finding import POINT, Configuration, Finding, Number, Reading, more, percent_more
from charllm.reproduce.paper import MICROBATCH, runs_of

SIZES = (4, 8)
SHARDED = "the same with FSDP, which waits for the network most of the time"
NOTE = "Each against a microbatch of 1, all activations recomputed. Runs that would not fit are priced all the same."


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
    """Larger microbatches and the sensor's peak."""
    higher, faster = percent_more("power_peak_sensor_w"), percent_more("tokens_per_s")
    return Finding(
        name="microbatch-peaks",
        claim="Larger microbatches raise peak power, even where throughput does not rise.",
        unit="% more at the sensor's peak (25 ms) than with a microbatch of 1",
        configurations=_configurations(higher),
        least=LEAST_PEAK_PERCENT,
        is_thermal=True,
        note=f"{NOTE} The peak is that of a burst after a rest, before the governor answers: larger products draw "
        "more, and a larger bubble lets the clock climb further before they begin.",
        readings={
            SHARDED: Reading(_configurations(higher, sharded=True), is_judged=True),
            "tokens a second against a microbatch of 1, %": Reading(_configurations(faster)),
        },
    )


def throttling() -> Finding:
    """Larger microbatches and lost clock."""
    lost = more("clock_loss", POINT)
    return Finding(
        name="microbatch-throttling",
        claim="Larger microbatches make GPUs throttle more.",
        unit="points of clock lost beyond a microbatch of 1",
        configurations=_configurations(lost),
        least=0.1,
        is_thermal=True,
        note=f"{NOTE} Longer products leave fewer rests, which costs clock; fewer microbatches leave longer bubbles, "
        "which give it back.",
        readings={SHARDED: Reading(_configurations(lost, sharded=True), is_judged=True)},
    )
