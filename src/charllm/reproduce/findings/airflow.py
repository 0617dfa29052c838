"""Temperatures inside a node: rear slots, MI250 packages, thermal throttling."""

from charllm.report.claims import read_claims
from charllm.reproduce.finding import POINT, Configuration, Finding, Reading, read
from charllm.reproduce.looks import Row
from charllm.reproduce.paper import MI250, dense_runs, runs_of


def rear_front() -> Finding:
    """Slots behind others against those in front."""
    runs = dense_runs("act")
    return Finding(
        claim=read_claims()["rear-front"],
        configurations={name: Configuration((run,), hotter_percent) for name, run in runs.items()},
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
        claim=read_claims()["package-gap"],
        configurations={
            name.removesuffix(" / act").removeprefix("model "): Configuration((run,), read("package_gap_k"))
            for name, run in runs.items()
        },
    )


def lost_to_heat() -> Finding:
    """Clock lost to thermal throttling alone."""
    runs = dense_runs("act")
    loss = read("clock_loss_fraction.thermal", POINT)
    return Finding(
        claim=read_claims()["throttling-by-heat"],
        configurations={name: Configuration((run,), above_limit_k) for name, run in runs.items()},
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
