"""A run from a cold start: some steps, or some seconds, of which only those are played in which sinks have moved."""

import math

import numpy as np

from charllm.gpu.heat import SINK, network
from charllm.simulate import play
from charllm.simulate.steady import Machine, Played, carry_poles, play_once, sink_fractions, sink_target_k, start_state

MOVED_K = 0.5
"""A step is played again when a sink, or a pole above it, has moved so far."""
MOST_PLAYS = 1000
"""Where temperatures still swing after so many plays, the last one stands for the rest; a run warms up within 200."""


def play_from_cold(machine: Machine, steps: int | None, seconds_s: float | None) -> Played:
    """Play a run of some length that begins with idle GPUs; sums are means over its steps."""
    cluster = machine.run.cluster
    nets = [network(node, cluster.cooling) for node in cluster.kinds]
    idle_w = cluster.gpu.power.static_w + cluster.gpu.power.context_w
    state = start_state(machine, idle_w)
    sink_k = sink_target_k(machine, np.full(len(state), idle_w))
    time_s = np.stack([net.time_s[:, SINK] for net in nets])[machine.node_kind, machine.gpus % cluster.node.gpus]
    time_s = time_s * sink_fractions(machine.run)[machine.gpus]
    pole_s = float(np.max(-machine.limits.tick_s / np.log(machine.decay)))
    total, done, ran_s, plays = None, 0.0, 0.0, 0
    while True:
        before_k = state[:, play.POLES :].copy()
        played = play_once(machine, state, sink_k)
        plays += 1
        left = _left(played.step_time_s, done, ran_s, steps, seconds_s)
        target_k = sink_target_k(machine, played.sums[:, play.ENERGY] / played.step_time_s)
        covered = min(left, _until_moved(sink_k, target_k, time_s, played.step_time_s))
        far_k = carry_poles(machine, state, before_k, 0.0)
        if far_k > MOVED_K:
            moments_s = -pole_s * math.log1p(-MOVED_K / far_k)
            covered = min(covered, max(1.0, math.floor(moments_s / played.step_time_s)))
        if plays == MOST_PLAYS:
            covered = left
        carry_poles(machine, state, before_k, max(0.0, covered * played.step_time_s - state[0, play.TIME]))
        total = _add(total, played, covered)
        done, ran_s = done + covered, ran_s + covered * played.step_time_s
        sink_k = target_k + (sink_k - target_k) * np.exp(-covered * played.step_time_s / time_s)
        if covered >= left:
            sums = total.sums.copy()
            sums[:, list(play.TOTALS)] /= done
            return total._replace(step_time_s=ran_s / done, sums=sums, sink_k=sink_k, series=played.series,
                                    cluster_w=played.cluster_w, plays=plays)  # fmt: skip


def _left(step_time_s: float, done: float, ran_s: float, steps: int | None, seconds_s: float | None) -> float:
    """Return how many steps are left; the last one may be cut short by the clock."""
    if steps is not None:
        return steps - done
    return max(1e-9, ((seconds_s or 0.0) - ran_s) / step_time_s)


def _until_moved(sink_k: np.ndarray, target_k: np.ndarray, time_s: np.ndarray, step_time_s: float) -> float:
    """Return after how many steps, at least one, some sink has moved far enough to play again."""
    distance = np.abs(target_k - sink_k)
    far = distance > MOVED_K
    if not far.any():
        return math.inf
    moments_s = -time_s[far] * np.log1p(-MOVED_K / distance[far])
    return max(1.0, math.floor(float(np.min(moments_s)) / step_time_s))


def _add(before: Played | None, played: Played, times: float) -> Played:
    """Add a play `times` over; extremes are kept."""
    totals = list(play.TOTALS)
    sums = played.sums.copy()
    sums[:, totals] *= times
    if before is None:
        return played._replace(sums=sums)
    sums[:, totals] += before.sums[:, totals]
    for column in (play.PEAK_W, play.SENSOR_W, play.HOT_C):
        sums[:, column] = np.maximum(sums[:, column], before.sums[:, column])
    sums[:, play.COLD_C] = np.minimum(sums[:, play.COLD_C], before.sums[:, play.COLD_C])
    return played._replace(sums=sums)
