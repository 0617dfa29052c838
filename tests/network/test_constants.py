"""Constants of collectives: each is what its source says, in seconds, shares and bytes a second."""

from math import inf

import pytest

from charllm.network.constants import NETWORK, NetworkConstants, with_measured

# Name: least and most by its source (network/constants.py names it): both ends are read or published figures.
BY_SOURCE = {
    "latency_s": (5e-6, 9e-6),  # NCCL tables: Hopper, A100 and Blackwell
    "hop_s": (0.5e-6, 0.8e-6),  # NCCL tables, 0.65
    "link_fraction": (0.83, 0.93),  # with own blocks: 8 GiB around 8 GPUs at 0.76 to 0.81
    "own_block_fraction": (0.5, 0.7),  # NCCL tables, 2 against 4 and 8 ranks
    "switch_fraction": (0.68, 0.76),  # ml-engineering: 0.68 to 0.69 at 8 GiB, less latency and the reduced part
    "switch_bytes_per_s": (540e9, 550e9),  # ml-engineering: B200 at 540 GB/s
    "nic_fraction": (0.86, 0.95),  # HybridEP 0.86, DeepEP 0.87 and 0.89, B200 0.95
    "send_fraction": (0.0, 0.0),  # as collectives, unless a fabric states it
    "nic_hop_s": (4e-6, 14e-6),  # NCCL's tuning model: 4 and 14 us
    "tree_fraction": (0.92, 0.92),  # NCCL's tuning model
    "exchange_s": (45e-6, 57e-6),  # DeepEP's tables: 45 us inside a node, 57 us on two
    "collective_blocks": (24, 24),  # NCCL's channels inside a node of Hopper
    "send_blocks": (4, 4),  # NCCL's channels for one peer
}
DISPATCHERS = {
    # README: 153 and 158 GB/s on 8 H800 (200 GB/s) of which 7/8 leave a rank: 0.67 and 0.69; 18 to 24 GB/s each.
    "deepep": {"blocks": (20, 20), "link_fraction": (0.67, 0.70), "block_bytes_per_s": (18e9, 24e9),
               "most_bytes_per_s": (inf, inf)},
    # arXiv:2603.07685, table 7; README of the branch: 600 to 760 GB/s, 39 to 55 GB/s each.
    "hybridep": {"blocks": (32, 32), "link_fraction": (0.9, 1.0), "block_bytes_per_s": (39e9, 55e9),
                 "most_bytes_per_s": (600e9, 760e9)},
    "alltoall": {"blocks": (24, 24), "link_fraction": (0.0, 0.0), "block_bytes_per_s": (0.0, 0.0),
                 "most_bytes_per_s": (inf, inf)},
}  # fmt: skip


@pytest.mark.parametrize("name", BY_SOURCE)
def test_a_constant_is_what_its_source_says(name: str) -> None:
    least, most = BY_SOURCE[name]
    assert least <= getattr(NETWORK, name) <= most


@pytest.mark.parametrize("name", DISPATCHERS)
def test_a_dispatcher_is_what_its_source_says(name: str) -> None:
    for field, (least, most) in DISPATCHERS[name].items():
        assert least <= getattr(NETWORK.dispatcher(name), field) <= most, field


def test_every_constant_has_its_source_here() -> None:
    assert set(BY_SOURCE) | set(DISPATCHERS) == set(NetworkConstants.__slots__)


def test_a_share_of_a_switch_that_was_measured_holds_whatever_the_switch_cannot_pass() -> None:
    found = with_measured(NETWORK, {"switch_fraction": 0.9})
    assert (found.switch_fraction, found.switch_bytes_per_s) == (0.9, inf)
    assert with_measured(NETWORK, {"hop_s": 1e-6}).switch_bytes_per_s == NETWORK.switch_bytes_per_s
