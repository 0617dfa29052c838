"""Flows of one step that leave a node through the same NICs at the same time, and what that costs.

Two kinds of NIC contention are modelled. A backward pass's own exchanges meet gradients that are exchanged under it
(`held_up`). Sends to the stage before meet gradients of chunks that are done, and the last one what is left of them
all; until it has arrived the other stage cannot begin its pass (`timeline/engine.py`).
Equation: while both are under way each has half of the NICs (`network/sharing.py`).
Source: network/sharing.py.
Ignores: gathered weights, which a pass needs before it ends and sends; schedules whose weight gradients come late.
"""

import numpy as np

from charllm.arrays import Floats
from charllm.layout.hops import stage_hops
from charllm.layout.links import group_links
from charllm.network.sharing import shared_ends
from charllm.spec.run import RunSpec
from charllm.timeline.passes import Pass
from charllm.workload.step import Step

NIC_PIECES = 8
"""Pieces in which a pass's own exchanges are laid beside gradients on the same NICs."""


def nic_seconds(step: Step, one: Pass) -> float:
    """Return how long a pass waits for exchanges that leave through the NICs its gradients leave through."""
    run = step.run
    exposed = {axis: one.labels.get(f"{axis}_exposed", 0.0) for axis in ("tp", "cp", "ep")}
    if run.parallelism.data_ranks == 1 or not any(exposed.values()):
        return 0.0
    mine = group_links(run, "data").nics
    return sum(seconds for axis, seconds in exposed.items() if seconds and group_links(run, axis).nics & mine)


def held_up(own_s: float, gradients_s: float, room_s: float) -> float:
    """Return how much longer a backward pass takes when its own exchanges share NICs with gradients under way.

    Its exchanges come evenly over the pass, in a few pieces, each sharing the NICs with what is left of the gradients.
    """
    if not own_s or not gradients_s:
        return 0.0
    piece_s, gap_s = own_s / NIC_PIECES, max(0.0, room_s - own_s) / NIC_PIECES
    held_s, left_s = 0.0, gradients_s
    for _ in range(NIC_PIECES):
        left_s = max(0.0, left_s - gap_s)
        held_s += shared_ends([(0.0, piece_s), (0.0, left_s)])[0] - piece_s
        left_s = max(0.0, left_s - piece_s)
    return held_s


def hops_beside_gradients(run: RunSpec) -> Floats:
    """Return for each hop to the next stage 1 where its sends leave through NICs that gradients leave through, too."""
    degrees = run.parallelism
    if degrees.pp == 1 or degrees.data_ranks == 1:
        return np.zeros(degrees.pp)
    leaving = np.array([hop.leaving > 0 for hop in stage_hops(run)])
    if leaving.any() and group_links(run, "data").nics & group_links(run, "pp").nics:
        return leaving.astype(np.float64)
    return np.zeros(degrees.pp)
