"""Constants of a step's timeline: each is what its source says."""

import pytest

from charllm.timeline.constants import TIMELINE, TimelineConstants

# Name: least and most by its source (timeline/constants.py names it).
BY_SOURCE = {
    "contention_fraction": (0.28, 0.28),  # emulated ranks on an H200, beside GEMMs of milliseconds
    "overlap_chunks": (4, 4),  # Transformer Engine's user buffers
    "straggler_fraction": (0.37 * 0.029, 0.37 * 0.031),  # 3 % of energy, of which 0.37 reach the time
    "arrival_s": (27e-6, 55e-6),  # logs of LUMI, and a fit to published step times
    "uneven_host_fraction": (0.172, 0.172),  # fitted: the published runs with sparse layers
}


@pytest.mark.parametrize("name", BY_SOURCE)
def test_a_constant_is_what_its_source_says(name: str) -> None:
    least, most = BY_SOURCE[name]
    assert least <= getattr(TIMELINE, name) <= most


def test_every_constant_has_its_source_here() -> None:
    assert set(BY_SOURCE) == set(TimelineConstants.__slots__)
