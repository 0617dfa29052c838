"""Who is hot, and what it costs: rear slots, packages, clocks lost to heat."""

from charllm.report.page.claims import CLAIMED_HOTTER_PERCENT, LEAST_HOTTER_PERCENT
from charllm.reproduce.finding import POINT, Configuration, Finding, Reading, read
from charllm.reproduce.looks import Row
from charllm.reproduce.paper import MI250, dense_runs, runs_of


def rear_front() -> Finding:
    """Slots behind others against those in front."""
    runs = dense_runs("act")
    return Finding(
        name="rear-front",
        claim="Rear GPUs of a node are up to 27 % hotter than front ones.",
        unit="% hotter in degrees Celsius, mean of rear against mean of front slots",
        configurations={name: Configuration((run,), hotter_percent) for name, run in runs.items()},
        least=LEAST_HOTTER_PERCENT,
        size=CLAIMED_HOTTER_PERCENT,
        headline="largest",
        is_thermal=True,
        note="At a given power the gap in kelvin does not depend on the inlet, so that its share of degrees Celsius "
        "falls when the inlet rises. The whole gap of hot slots is measured (public traces of an 8-GPU node), "
        "how much of it is warmed air is not: preheat is assumed.",
        readings={"K hotter": Reading({name: Configuration((run,), hotter_k) for name, run in runs.items()})},
    )


def hotter_percent(row: Row) -> float | None:
    """Return by how many per cent of degrees Celsius rear slots are hotter."""
    return 100 * (row["rear_c"] / row["front_c"] - 1) if {"rear_c", "front_c"} <= row.keys() else None


def hotter_k(row: Row) -> float | None:
    """Return by how many kelvin rear slots are hotter."""
    return float(row["rear_c"] - row["front_c"]) if {"rear_c", "front_c"} <= row.keys() else None


def inside_packages() -> Finding:
    """The two dies of an MI250."""
    runs = runs_of(MI250, ends=" / act")
    return Finding(
        name="package-gap",
        claim="The two dies of an MI250 package differ by 5 to 10 K.",
        unit="K between the dies of a package, largest of the run",
        configurations={
            name.removesuffix(" / act").removeprefix("model "): Configuration((run,), read("package_gap_k"))
            for name, run in runs.items()
        },
        least=5.0,
        is_thermal=True,
        circular="the catalog's difference between the dies' cooling is derived from this claim",
        note="What remains to be seen is whether it spreads over strategies as claimed, and stays within 10 K.",
    )


def lost_to_heat() -> Finding:
    """Clock lost to heat alone."""
    runs = dense_runs("act")
    loss = read("clock_loss_fraction.thermal", POINT)
    return Finding(
        name="throttling-by-heat",
        claim="Air-cooled nodes lose clock to heat.",
        unit="points of clock lost to heat",
        configurations={name: Configuration((run,), loss) for name, run in runs.items()},
        least=0.1,
        is_thermal=True,
        note="The paper counts any loss of clock, and its artifact records no reasons: at usual inlets all of it may "
        "be the power cap's. How steeply a clock falls above its threshold is assumed (2 % a kelvin, half above "
        "slowdown).",
        readings={
            "any loss of clock, as the artifact's clocks would show, points": Reading(
                {name: Configuration((run,), read("clock_loss", POINT)) for name, run in runs.items()}, is_judged=True
            )
        },
    )
