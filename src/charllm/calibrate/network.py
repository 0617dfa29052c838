"""Fit what collectives cost on a machine: the constants of its links, NICs and algorithms, from tables of collectives.

Equation: seconds as network/algorithms.py predicts them on the links of each row, against the measured ones, in units
of 5 % (relative). One set of constants for all collectives, sizes and groups of one link level.
Source: priors are the usual constants (network/constants.py), or those that the cluster already carries; their spreads
are set here.
Ignores: that NCCL changes protocols with the size of a message; errors that rows of one series share.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.calibrate.least_squares import Fit, Found, Parameter, fit
from charllm.errors import SpecError
from charllm.evaluate.collectives import BETWEEN, INSIDE, Measured, predict_rows, summarise
from charllm.network.constants import MEASURED_FIELDS, NETWORK, NetworkConstants, constants_of, with_measured
from charllm.spec.fields import rules
from charllm.spec.hardware import Cluster, Fabric, Node

ERROR_FRACTION = 0.05
MIN_ROWS, FOLDS, ROUNDS = 8, 4, 60
SPREADS = {
    "latency_s": 2.0, "hop_s": 2.0, "link_fraction": 1.0, "own_block_fraction": 0.7, "switch_fraction": 0.5,
    "nic_fraction": 1.0, "nic_hop_s": 2.0, "tree_fraction": 0.2,
}  # fmt: skip
"""How far off a constant may be before anything is measured, in its logarithm."""
MEANINGS = {
    "latency_s": "latency of a collective without data, apart from its hops",
    "hop_s": "hop over a link; handshake of one piece of a message",
    "link_fraction": "share of the link's datasheet bandwidth that large messages reach",
    "own_block_fraction": "cost of a rank's own block relative to one that it passes on",
    "switch_fraction": "share of the link that an all-reduce in the switch reaches",
    "nic_fraction": "share of the NICs' datasheet bandwidth that large messages reach",
    "nic_hop_s": "hop between nodes",
    "tree_fraction": "bandwidth of a tree between nodes relative to a ring",
}
NEEDED = {
    "latency_s": "small messages on two ranks: `charllm bench nccl --sizes 1KiB:64KiB`",
    "hop_s": "groups of different sizes: `charllm bench nccl --tp 2` and `--tp 8`",
    "link_fraction": "messages of 64 MiB and more inside a node: `charllm bench nccl --groups tp`",
    "own_block_fraction": "large messages on 2 and on more ranks: `charllm bench nccl --tp 2` and `--tp 8`",
    "switch_fraction": "all-reduces of 64 MiB and more on all GPUs of a node: `charllm bench nccl --groups tp`",
    "nic_fraction": "messages of 64 MiB and more between nodes: `srun torchrun ... -m charllm bench nccl --groups dp`",
    "nic_hop_s": "small messages between nodes: `srun torchrun ... -m charllm bench nccl --groups dp`",
    "tree_fraction": "large all-reduces between three nodes or more",
    "send_fraction": "no collective tells it: measure large sends between nodes and set cluster.fabric.send_fraction",
    "exchange_s": "no collective tells it: measure DeepEP with one token and set cluster.fabric.exchange_s",
}


class NetworkFit(NamedTuple):
    """Constants, and the rows that they were fitted to."""

    fit: Fit
    held_out: list[dict[str, Any]]
    """Rows as predicted by constants that were fitted without them: to the other three quarters of the sizes."""

    def constants(self, cluster: Cluster) -> NetworkConstants:
        """Return all constants of a cluster, the fitted ones among them."""
        return with_measured(constants_of(cluster), self.fit.values())

    def identified(self, part: str) -> list[Found]:
        """List the constants of the node or the fabric that the rows determine, under the names of their fields."""
        found = []
        for each in self.fit.found:
            owner, field = MEASURED_FIELDS[each.name]
            if owner == part and each.identified:
                found.append(each._replace(name=f"{part}.{field}"))
        return found


def fit_network(measured: Sequence[Measured], cluster: Cluster) -> NetworkFit:
    """Fit constants to rows, and judge them on sizes that were left out."""
    if len(measured) < MIN_ROWS:
        possible = f"at least {MIN_ROWS}: `charllm bench nccl` measures some hundred"
        raise SpecError("RUN", f"{len(measured)} collectives with a result", possible)
    found = _fit(measured, cluster)
    held_out = []
    for number in range(FOLDS):
        mine = [each for each in measured if _fold(each) == number]
        others = [each for each in measured if _fold(each) != number]
        if mine and len(others) >= MIN_ROWS:
            constants = with_measured(constants_of(cluster), _fit(others, cluster).values())
            held_out += predict_rows(mine, constants)
    return NetworkFit(found, held_out)


def _fold(each: Measured) -> int:
    """Return which quarter a row belongs to: neighbouring sizes of a series are in different ones."""
    return (each.row.message_bytes.bit_length() + each.row.ranks + len(each.row.collective)) % FOLDS


def _fit(measured: Sequence[Measured], cluster: Cluster) -> Fit:
    usual = constants_of(cluster)
    logs = np.log([each.seconds_s for each in measured])

    def residuals(values: dict[str, float]) -> Floats:
        constants = with_measured(usual, values)
        predicted = np.log([each.predict(constants)[1] for each in measured])
        return np.asarray((predicted - logs) / ERROR_FRACTION)

    return fit(residuals, parameters_of(measured, usual), ROUNDS)


def parameters_of(measured: Sequence[Measured], usual: NetworkConstants) -> list[Parameter]:
    """List the constants that rows on these links can depend on."""
    levels = {each.level for each in measured}
    reduced = [each for each in measured if each.op.kind == "all_reduce"]
    names = ["latency_s", "hop_s", "link_fraction", "own_block_fraction"]
    if any(each.level == INSIDE and each.path.in_switch_reduction for each in reduced):
        names.append("switch_fraction")
    if BETWEEN in levels:
        names += ["nic_fraction", "nic_hop_s"]
    if any(each.level == BETWEEN for each in reduced):
        names.append("tree_fraction")
    return [_parameter(name, usual) for name in names]


def _parameter(name: str, usual: NetworkConstants) -> Parameter:
    part, field = MEASURED_FIELDS[name]
    rule = rules(Node if part == "node" else Fabric)[field]
    prior = getattr(usual, name) or getattr(NETWORK, name)
    return Parameter(name, prior, SPREADS[name], max(rule.low, 1e-9), rule.high)


def describe_network(found: NetworkFit, measured: Sequence[Measured], cluster: Cluster) -> dict[str, Any]:
    """Return constants, residuals and what is not identified as a table."""
    after, before = found.constants(cluster), constants_of(cluster)
    not_fitted = [name for name in MEASURED_FIELDS if name not in found.fit.values()]
    unknown = [each.name for each in found.fit.found if not each.identified] + not_fitted
    return {
        "cluster": cluster.name,
        "misfit": found.fit.misfit,
        "parameters": [
            {**each._asdict(), "name": ".".join(MEASURED_FIELDS[each.name]), "meaning": MEANINGS[each.name]}
            for each in found.fit.found
        ],
        "before": summarise(predict_rows(measured, before)),
        "in_sample": summarise(predict_rows(measured, after)),
        "held_out": summarise(found.held_out),
        "not_identified": [{"parameter": ".".join(MEASURED_FIELDS[name]), "run": NEEDED[name]} for name in unknown],
    }
