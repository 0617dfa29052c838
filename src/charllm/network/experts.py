"""Seconds of the exchanges of a sparse layer: tokens dispatched to the ranks of their experts, and combined again.

Equation: a rank has message / k bytes for one copy of each of its tokens, k chosen experts a token. NCCL's all-to-all
sends k copies. DeepEP and HybridEP send one for each of V_r ranks that have some of its experts, over NICs one for each
of V_n nodes, where a rank hands it on (workload/routing.py: V). With R ranks on N nodes
    inside = max(copies V_r (R - 1) / R / min(share x link, most), copies (1 + V_r + 2 V_n) / (multiprocessors x rate)),
    across = copies V_n (N - 1) / N / (share x NIC of one GPU),
    t = exchange latency + max(inside, across),
since handing on inside a node overlaps with what arrives; multiprocessors read each token once, write every copy, and
with several nodes fill and empty the buffers of the NICs (2 V_n, else none). All ranks wait for the one that receives
most tokens. With each copy HybridEP dispatches, and brings the gradients back of, a probability for every expert of the
domain: half of its exchanges carry 4 E / N bytes more a token and copy, which are spread over all of them here.

Source: network/constants.py. Measured: DeepEP's tables on six GPUs; published: DeepEP, Hybrid-EP, arXiv:2603.07685.
Ignores: that copies of half the bytes (fp8) take more than half the time, at most 0.8 of the rate in bytes inside a
node; that combining is 10 to 20 % slower than dispatching the same bytes; more multiprocessors than the default.
"""

from typing import NamedTuple

from charllm.network.algorithms import Stage, pipelined_seconds
from charllm.network.constants import Dispatcher, NetworkConstants
from charllm.spec.run import RunSpec
from charllm.workload.cut import cut_run
from charllm.workload.op import Op
from charllm.workload.routing import skew, visited

ELEMENT_BYTES, PROBABILITY_BYTES = 2.0, 4.0
"""Of an element of a token, and of an expert's probability."""


class ExchangePath(NamedTuple):
    """The links between the ranks that exchange tokens."""

    local_ranks: int
    nodes: int
    link_bytes_per_s: float
    nic_bytes_per_s: float
    """One GPU's share of its node's NICs."""

    @property
    def ranks(self) -> int:
        """Ranks that exchange tokens."""
        return self.local_ranks * self.nodes


class ExchangedBytes(NamedTuple):
    """Bytes of one rank in one exchange."""

    handled: float
    """What multiprocessors read and write: tokens, copies to all ranks, buffers of NICs."""
    inside: float
    """To other ranks over scale-up links."""
    across: float
    """To other nodes."""


def exchange_seconds(op: Op, run: RunSpec, path: ExchangePath, constants: NetworkConstants) -> float:
    """Return the seconds of one all-to-all; between expert ranks by the framework's dispatcher."""
    if op.group != "ep":
        return alltoall_seconds(op, path, constants)
    dispatcher = constants.dispatcher(run.framework.dispatcher)
    busiest = skew(cut_run(run))
    sent = ExchangedBytes(*(busiest * size for size in exchanged_bytes(op, run, path, dispatcher)))
    if dispatcher.copies == "expert":
        return _alltoall_seconds(sent, path, constants)
    link_s = sent.inside / min(dispatcher.link_fraction * path.link_bytes_per_s, dispatcher.most_bytes_per_s)
    blocks_s = sent.handled / (dispatcher.blocks * dispatcher.block_bytes_per_s)
    nic_s = sent.across / (constants.nic_fraction * path.nic_bytes_per_s)
    return constants.exchange_s + max(link_s, blocks_s, nic_s)


def alltoall_seconds(op: Op, path: ExchangePath, constants: NetworkConstants) -> float:
    """Return the seconds of NCCL's all-to-all between ranks that send each other equal parts of a message."""
    return _alltoall_seconds(_copy_per_expert(op, path), path, constants)


def exchanged_bytes(op: Op, run: RunSpec, path: ExchangePath, dispatcher: Dispatcher) -> ExchangedBytes:
    """Return what one rank sends of its tokens when experts are evenly loaded."""
    if dispatcher.copies == "expert":
        return _copy_per_expert(op, path)
    model, training, framework = run.model, run.training, run.framework
    copy_bytes = op.message_bytes / max(1, model.topk)
    if dispatcher.dense_probabilities:
        copy_bytes += _probability_bytes(op, run, path)
    ranks_visited = visited(model, training, framework, path.ranks)
    nodes_visited = visited(model, training, framework, path.nodes)
    buffers = 2 * nodes_visited if path.nodes > 1 else 0.0
    return ExchangedBytes(
        copy_bytes * (1 + ranks_visited + buffers),
        copy_bytes * ranks_visited * (path.ranks - 1) / path.ranks,
        copy_bytes * nodes_visited * (path.nodes - 1) / path.nodes,
    )


def _probability_bytes(op: Op, run: RunSpec, path: ExchangePath) -> float:
    """Return the probabilities that go with one copy of each token: every second exchange of a layer carries them."""
    model = run.model
    tokens = op.message_bytes / (max(1, model.topk) * (model.expert_latent or model.hidden) * ELEMENT_BYTES)
    return PROBABILITY_BYTES / 2 * tokens * model.experts / path.nodes


def _copy_per_expert(op: Op, path: ExchangePath) -> ExchangedBytes:
    """Return the bytes of an all-to-all whose ranks send each other equal parts of a message."""
    to_each = op.message_bytes / path.ranks
    inside = to_each * (path.local_ranks - 1)
    return ExchangedBytes(op.message_bytes, inside, to_each * (path.ranks - path.local_ranks))


def _alltoall_seconds(sent: ExchangedBytes, path: ExchangePath, constants: NetworkConstants) -> float:
    """Return the seconds of NCCL's all-to-all: one stage for each peer, links and NICs at once."""
    own_bytes = constants.own_block_fraction * (sent.inside + sent.across) / (path.ranks - 1)
    link_s = (sent.inside + own_bytes) / (constants.link_fraction * path.link_bytes_per_s)
    inside = Stage(path.local_ranks - 1, constants.hop_s, link_s)
    if path.nodes == 1:
        return pipelined_seconds((inside,), constants)
    nic_s = sent.across / (constants.nic_fraction * path.nic_bytes_per_s)
    # Messages to all nodes are under way at once: the latency of one hop, the pieces of every peer.
    remote_peers = path.ranks - path.local_ranks
    return pipelined_seconds((inside, Stage(remote_peers, constants.nic_hop_s / remote_peers, nic_s)), constants)
