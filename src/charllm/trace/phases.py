"""Which phase of a step launched each piece of work: forward, backward or update."""

import numpy as np

from charllm.trace.activity import Activity
from charllm.trace.events import NONE, OP, RANGE, Codes, RankTrace
from charllm.trace.links import enclosing

PHASES = ("forward", "backward", "update")
FORWARD, BACKWARD, UPDATE = range(3)
SIGNS = {BACKWARD: "autograd::engine::evaluate_function", UPDATE: "Optimizer.step"}
"""Phase: how the operators and ranges of torch around its launches begin; the rest is forward."""


def find_phases(trace: RankTrace, activity: Activity) -> Codes:
    """Return the phase of each event; recomputed layers run, and are counted, in backward.

    Ignores: work without a known call, which counts as forward.
    """
    phase = np.full(len(activity.row), FORWARD, np.int32)
    for number, sign in SIGNS.items():
        named = np.array([name.startswith(sign) for name in trace.names] or [False])
        spans = np.flatnonzero(trace.matches(OP, RANGE) & named[trace.events.name])
        phase[enclosing(trace, spans, activity.call) != NONE] = number
    return phase
