"""Faster networks, and datacenter scale."""

from charllm.report.claims import read_claims
from charllm.reproduce.finding import Configuration, Finding, Reading, percent_less, percent_more
from charllm.reproduce.paper import DATACENTER, NETWORK, run_of, runs_of

SLOW, FAST = " / Gbps 100", " / Gbps 800"
SMALL, LARGE = " / 32 GPUs", " / 8192 GPUs"


def faster_network() -> Finding:
    """800 against 100 Gb/s per node."""
    slow = {case.removesuffix(SLOW): run for case, run in runs_of(NETWORK, ends=SLOW).items()}
    gain = percent_more("tokens_per_s")
    return Finding(
        claim=read_claims()["faster-network"],
        configurations={
            name: Configuration((run_of(NETWORK, f"{name}{FAST}"), run), gain) for name, run in slow.items()
        },
    )


def datacenter() -> Finding:
    """Throughput per GPU from 32 to 8,192 GPUs."""
    names = [case.removesuffix(SMALL + SLOW) for case in runs_of(DATACENTER, ends=SMALL + SLOW)]

    def fall(rate: str) -> dict[str, Configuration]:
        return {
            name: Configuration(
                (run_of(DATACENTER, name + LARGE + rate), run_of(DATACENTER, name + SMALL + rate)),
                percent_less("tokens_per_s_per_gpu"),
            )
            for name in names
        }

    return Finding(
        claim=read_claims()["datacenter"],
        configurations=fall(SLOW),
        readings={"the same at 800 Gb/s per node": Reading(fall(FAST), is_judged=True)},
    )
