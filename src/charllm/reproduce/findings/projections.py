"""Faster networks, and datacenter scale."""

from charllm.reproduce.finding import Configuration, Finding, Reading, percent_less, percent_more
from charllm.reproduce.paper import DATACENTER, NETWORK, run_of, runs_of

SLOW, FAST = " / gbit 100", " / gbit 800"
SMALL, LARGE = " / 32 GPUs", " / 8192 GPUs"


def faster_network() -> Finding:
    """800 against 100 Gb/s a node."""
    slow = {case.removesuffix(SLOW): run for case, run in runs_of(NETWORK, ends=SLOW).items()}
    gain = percent_more("tokens_per_s")
    return Finding(
        name="faster-network",
        claim="A network of 800 Gb/s a node, not 100, makes training faster.",
        unit="% more tokens a second at 800 than at 100 Gb/s a node",
        configurations={
            name: Configuration((run_of(NETWORK, f"{name}{FAST}"), run), gain) for name, run in slow.items()
        },
        least=5.0,
        note="Only the adapter's rate is changed. Strategies that keep their messages inside nodes gain little; FSDP "
        "and expert groups across nodes gain most.",
    )


def datacenter() -> Finding:
    """Tokens a second and GPU from 32 to 8,192 GPUs."""
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
        name="datacenter",
        claim="At datacenter scale a slow network takes back part of what GPUs add.",
        unit="% fewer tokens a second and GPU on 8,192 GPUs than on 32, at 100 Gb/s a node",
        configurations=fall(SLOW),
        least=5.0,
        note="One strategy a model, the batch grows with the replicas; every size is simulated in full. Failures, "
        "stragglers and oversubscribed switches are not in it: they come on top.",
        readings={"the same at 800 Gb/s a node": Reading(fall(FAST), is_judged=True)},
    )
