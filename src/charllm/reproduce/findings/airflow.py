"""Temperatures inside a node: rear slots, MI250 packages, thermal throttling."""

from charllm.report.claims import LOST_TO_HEAT, REAR_FRONT, Claim
from charllm.reproduce.finding import POINT, Configuration, Finding, Reading, read
from charllm.reproduce.looks import Row
from charllm.reproduce.paper import MI250, dense_runs, runs_of


def rear_front() -> Finding:
    """Slots behind others against those in front."""
    runs = dense_runs("act")
    return Finding(
        claim=REAR_FRONT,
        configurations={name: Configuration((run,), hotter_percent) for name, run in runs.items()},
        why="rear slots have a weaker heat sink and air preheated by front GPUs",
        is_thermal=True,
        note="At equal power the gap in kelvin does not depend on the inlet, so the percentage of degrees Celsius "
        "falls as the inlet rises. The total gap between slots is measured (public traces of an 8-GPU node); the part "
        "of it that is preheated air is assumed.",
        readings={
            "temperature difference, K": Reading({name: Configuration((run,), hotter_k) for name, run in runs.items()})
        },
    )


def hotter_percent(row: Row) -> float | None:
    """Return by how many per cent of degrees Celsius rear slots are hotter."""
    return 100 * (row["rear_c"] / row["front_c"] - 1) if {"rear_c", "front_c"} <= row.keys() else None


def hotter_k(row: Row) -> float | None:
    """Return by how many kelvin rear slots are hotter."""
    return float(row["rear_c"] - row["front_c"]) if {"rear_c", "front_c"} <= row.keys() else None


def inside_packages() -> Finding:
    """The two GCDs of an MI250."""
    runs = runs_of(MI250, ends=" / act")
    return Finding(
        claim=Claim(
            name="package-gap",
            text="The two GCDs of an MI250 package differ by 5 to 10 K.",
            unit="K between the GCDs of a package, largest difference in the run",
            least=5.0,
            answer="none beside the claim itself",
        ),
        configurations={
            name.removesuffix(" / act").removeprefix("model "): Configuration((run,), read("package_gap_k"))
            for name, run in runs.items()
        },
        why="the two GCDs of a package have different thermal resistances",
        is_thermal=True,
        circular="the catalog's thermal resistances of the two GCDs are derived from this claim",
        note="The simulation only adds whether the gap appears with every strategy and stays within 10 K.",
    )


def lost_to_heat() -> Finding:
    """Clock lost to thermal throttling alone."""
    runs = dense_runs("act")
    loss = read("clock_loss_fraction.thermal", POINT)
    return Finding(
        claim=LOST_TO_HEAT,
        configurations={name: Configuration((run,), above_limit_k) for name, run in runs.items()},
        why="the power cap limits heat before the thermal threshold is reached, unless cooling is weak",
        is_thermal=True,
        note="The paper counts any loss of clock as throttling, and its artifact records no throttle reasons, so the "
        "power cap may cause all of it. Above the thermal threshold each kelvin takes 55 % of the clock (assumed; "
        "H100s at 88 C were read at 450 to 550 of 1,755 MHz).",
        readings={
            text: Reading({name: Configuration((run,), effect) for name, run in runs.items()})
            for text, effect in (
                ("clock lost to thermal throttling, %", loss),
                ("clock lost to any cause, as the artifact's clocks would show, %", read("clock_loss", POINT)),
            )
        },
    )


def above_limit_k(row: Row) -> float | None:
    """Return by how many kelvin the hottest GPU is above the temperature at which it is throttled."""
    margin_k = row.get("margin_to_slowdown_k")
    return None if margin_k is None else -float(margin_k)
