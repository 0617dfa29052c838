"""What holds for protocols, whatever they are fitted to."""

from itertools import pairwise

from charllm.network.protocols import PROTOCOLS


def test_a_protocol_with_more_latency_has_more_bandwidth() -> None:
    for quick, wide in pairwise(PROTOCOLS.values()):
        assert quick.latency_s < wide.latency_s
        assert quick.nic_hops < wide.nic_hops
        assert quick.bandwidth(450e9) < wide.bandwidth(450e9)


def test_flags_take_their_share_of_a_slow_link_and_copies_bound_a_fast_one() -> None:
    low = PROTOCOLS["LL"]
    assert low.bandwidth(10e9) == 5e9
    assert low.bandwidth(900e9) == low.most_bytes_per_s
    assert PROTOCOLS["Simple"].bandwidth(900e9) == 900e9
