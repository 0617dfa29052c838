"""Large microbatches: bursts, peak power, throttling, past the point at which each begins to grow."""

from collections.abc import Sequence

from charllm.report.claims import past_a_point, read_claims
from charllm.reproduce.finding import (
    DURING_GEMMS,
    POINT,
    Configuration,
    Finding,
    Number,
    Reading,
    during_gemms,
    more,
    percent_more,
    times,
)
from charllm.reproduce.looks import Row
from charllm.reproduce.paper import MICROBATCH, Request, runs_of

SIZES = (1, 2, 4, 8)
SHARDED = "the same with FSDP, which is bound by the network"
AGAINST_ONE = "microbatches of 4 and 8 against 1, everywhere"


def bursts() -> Finding:
    """Larger microbatches and the ratio of peak to mean power."""
    swings = percent_more("cluster_power_swing_w")
    return _finding(
        "microbatch-bursts", _burstier, {"0.1-3 Hz oscillation of cluster power, %": Reading(_past(swings))}
    )


def peak_power() -> Finding:
    """Larger microbatches and peak power."""
    higher, faster = percent_more("power_peak_sensor_w"), percent_more("tokens_per_s")
    readings = {"throughput of microbatches 4 and 8 against 1, %": Reading(_against_one(faster))}
    return _finding("microbatch-peaks", higher, readings)


def throttling() -> Finding:
    """Larger microbatches and lost clock."""
    readings = {
        DURING_GEMMS: Reading(_past(during_gemms), is_judged=True),
        "more K to the temperature at which GPUs are throttled": Reading(_past(more("margin_to_slowdown_k"))),
    }
    return _finding("microbatch-throttling", more("clock_loss", POINT), readings)


def _finding(claim: str, effect: Number, others: dict[str, Reading]) -> Finding:
    return Finding(
        claim=read_claims()[claim],
        configurations=_past(effect),
        readings={
            AGAINST_ONE: Reading(_against_one(effect), is_judged=True),
            SHARDED: Reading(_past(effect, sharded=True), is_judged=True),
            **others,
        },
    )


def _strategies(*, sharded: bool) -> dict[str, list[Request]]:
    """Return the runs of each strategy, in order of their microbatches."""
    strategies = [case.removesuffix(" / mbs 1") for case in runs_of(MICROBATCH, ends=" / mbs 1")]
    return {
        strategy: [run for size in SIZES for run in runs_of(MICROBATCH, starts=f"{strategy} / mbs {size}").values()]
        for strategy in strategies
        if sharded == ("fsdp" in strategy)
    }


def _past(effect: Number, *, sharded: bool = False) -> dict[str, Configuration]:
    return {
        strategy: Configuration(tuple(runs), _past_a_point(effect))
        for strategy, runs in _strategies(sharded=sharded).items()
    }


def _past_a_point(effect: Number) -> Number:
    def number(*rows: Row) -> float | None:
        # A batch that a microbatch does not divide has no run.
        known: Sequence[Row] = [row for row in rows if effect(row, row) is not None]
        return past_a_point(lambda size, point: effect(known[size], known[point]), len(known))

    return number


def _against_one(effect: Number) -> dict[str, Configuration]:
    return {
        f"{strategy} mbs {size}": Configuration((run, runs[0]), effect)
        for strategy, runs in _strategies(sharded=False).items()
        for size, run in zip(SIZES, runs, strict=True)
        if size > 2
    }


def _burstier(large: Row, small: Row) -> float | None:
    """Return by how many per cent the ratio of peak to mean power is higher."""
    peaks, means = (times(name)(large, small) for name in ("power_peak_sensor_w", "power_mean_w"))
    return None if peaks is None or not means else 100 * (peaks / means - 1)
