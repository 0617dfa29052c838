"""Flows of one step that leave a node through the same NICs at the same time, and what that costs.

Two meetings are told apart. A backward pass's own exchanges meet gradients that are exchanged under it (`held_up`). The
last send of a stage, to the one before, meets what is left of the stage's gradients; until it has arrived the other
stage cannot begin its own last pass (`late_sends`).
Equation: while both are under way each has half of the NICs (`cost/sharing.py`).
Ignores: sends of earlier microbatches, which have arrived before gradients are ready; gathered weights, which a pass
needs before it ends and sends; a schedule whose weight gradients come after its last send.
"""

import numpy as np
from numpy.typing import NDArray

from charllm.cost.sharing import shared_ends
from charllm.layout.hops import stage_hops
from charllm.layout.links import group_links
from charllm.timeline.passes import Pass
from charllm.workload.step import Step

Floats = NDArray[np.float64]
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


def sends_beside_gradients(step: Step, send_s: Floats) -> Floats:
    """Return for each stage the seconds of its last send, where it meets the stage's gradients on its NICs; else 0."""
    run, degrees = step.run, step.run.parallelism
    met = np.zeros(degrees.pp)
    # Without either overlap the compute stream waits for the send, and gradients begin after it.
    together = "dp" in degrees.overlap or "pp" in degrees.overlap
    if degrees.pp == 1 or degrees.data_ranks == 1 or not together or degrees.schedule == "zero-bubble":
        return met
    leaving = stage_hops(run)
    if any(leaving[:-1]) and group_links(run, "data").nics & group_links(run, "pp").nics:
        for stage in range(1, degrees.pp):
            met[stage] = send_s[stage - 1] if leaving[stage - 1] else 0.0
    return met


def late_sends(sends_s: Floats, left_s: list[float]) -> Floats:
    """Return how much later each stage's last send arrives for what is left of its gradients when it begins."""
    return np.array([both_ends(send, left)[0] - send for send, left in zip(sends_s.tolist(), left_s, strict=True)])


def both_ends(send_s: float, left_s: float) -> tuple[float, float]:
    """Return when a send and the rest of an exchange end that begin together on the same NICs."""
    if not send_s or not left_s:
        return send_s, left_s
    sent, exchanged = shared_ends([(0.0, send_s), (0.0, left_s)])
    return sent, exchanged
