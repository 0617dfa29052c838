"""Faster networks, and datacenter scale."""

from charllm.report.claims import Accuracy, Claim
from charllm.reproduce.finding import Configuration, Finding, Reading, percent_less, percent_more
from charllm.reproduce.paper import DATACENTER, NETWORK, run_of, runs_of
from charllm.result.differences import ANY

SLOW, FAST = " / Gbps 100", " / Gbps 800"
SMALL, LARGE = " / 32 GPUs", " / 8192 GPUs"


def faster_network() -> Finding:
    """800 against 100 Gb/s per node."""
    slow = {case.removesuffix(SLOW): run for case, run in runs_of(NETWORK, ends=SLOW).items()}
    gain = percent_more("tokens_per_s")
    return Finding(
        claim=Claim(
            name="faster-network",
            text="800 Gb/s per node instead of 100 Gb/s makes training faster.",
            unit="% higher throughput at 800 than at 100 Gb/s per node",
            accuracy=Accuracy("step time", ANY, "%"),
        ),
        configurations={
            name: Configuration((run_of(NETWORK, f"{name}{FAST}"), run), gain) for name, run in slow.items()
        },
        why="the gain is the exposed communication between nodes",
        note="Only the NIC bandwidth differs. Strategies that communicate inside nodes gain little; FSDP and expert "
        "groups across nodes gain most.",
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
        claim=Claim(
            name="datacenter",
            text="At datacenter scale a slow network lowers the throughput per GPU.",
            unit="% lower throughput per GPU on 8,192 than on 32 GPUs, at 100 Gb/s per node",
            accuracy=Accuracy("step time", "GPUs", "% less"),
        ),
        configurations=fall(SLOW),
        why="more replicas make gradient all-reduces between nodes longer",
        note="One strategy per model; the global batch grows with the number of replicas. Every size is simulated in "
        "full. Failures, stragglers and oversubscribed switches are not included.",
        readings={"the same at 800 Gb/s per node": Reading(fall(FAST), is_judged=True)},
    )
