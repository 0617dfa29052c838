"""Collectives and expert exchanges against published measurements, each within a stated tolerance."""

from typing import Any

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.network.collectives import collective_seconds
from charllm.network.constants import DEEPEP, HYBRIDEP, NETWORK, NetworkConstants
from charllm.spec.run import RunSpec
from charllm.units import MIB
from charllm.workload.op import collective

TABLES, GUIDE = "nccl-tests, 512 MiB (ai-dynamo/aiconfigurator)", "stas00/ml-engineering, 8 GiB"
BUS_BANDWIDTHS = (
    # Node, collective, GPUs, MiB, bus bandwidth in GB/s, tolerance.
    ("hgx-a100", "all_reduce", 8, 512, 222, 0.12, TABLES),
    ("hgx-h100", "all_reduce", 8, 512, 445, 0.06, TABLES),
    ("hgx-h200", "all_reduce", 8, 512, 460, 0.06, TABLES),
    ("hgx-b200", "all_reduce", 8, 512, 704, 0.08, TABLES),
    ("hgx-h100", "all_gather", 8, 512, 335, 0.06, TABLES),
    ("hgx-h100", "reduce_scatter", 8, 512, 336, 0.06, TABLES),
    ("hgx-b200", "all_gather", 8, 512, 617, 0.08, TABLES),
    ("hgx-h100", "all_gather", 4, 512, 318, 0.06, TABLES),
    ("hgx-h100", "all_gather", 2, 512, 258, 0.10, TABLES),
    ("hgx-h100", "all_to_all", 8, 512, 317, 0.08, TABLES),
    ("hgx-h200", "all_reduce", 8, 8192, 473, 0.06, GUIDE),
    ("hgx-h200", "all_reduce", 6, 8192, 436, 0.06, GUIDE),
    ("hgx-a100", "all_reduce", 8, 8192, 235, 0.10, GUIDE),
)
DEEPSEEK_TOKENS, TOKEN_BF16, TOKEN_FP8 = 4096, 14336, 7392
"""Tokens of a rank in all benchmarks below; bytes of a token of DeepSeek-V3, in fp8 with a scale for each 128."""
MEGATRON, README = "arXiv:2603.07685, table 7", "DeepEP README, seconds from its GB/s"
EXCHANGES = (
    # Node, NVLink domain in nodes, expert ranks, dispatcher, bytes of a token, groups limited, microseconds, tolerance.
    ("hgx-h100", 1, 8, "alltoall", TOKEN_BF16, False, 1265, 0.10, MEGATRON),
    ("hgx-h100", 1, 32, "alltoall", TOKEN_BF16, True, 8059, 0.10, MEGATRON),
    ("gb200-tray", 18, 8, "alltoall", TOKEN_BF16, False, 735, 0.10, MEGATRON),
    ("gb200-tray", 18, 64, "alltoall", TOKEN_BF16, False, 930, 0.10, MEGATRON),
    ("hgx-h100", 1, 8, "hybridep", TOKEN_BF16, False, 661, 0.10, MEGATRON),
    ("hgx-h100", 1, 32, "hybridep", TOKEN_BF16, True, 3064, 0.10, MEGATRON),
    ("gb200-tray", 18, 64, "hybridep", TOKEN_BF16, False, 675, 0.12, MEGATRON),
    ("hgx-h800", 1, 8, "deepep", TOKEN_FP8, False, 1048, 0.10, README),
    ("hgx-h800", 1, 16, "deepep", TOKEN_FP8, False, 1403, 0.10, README),
    ("hgx-h800", 1, 32, "deepep", TOKEN_BF16, False, 3708, 0.10, README),
)


def machine(node: str, gpus: int, domain_nodes: int = 1, **request: Any) -> RunSpec:
    per_node = 4 if node == "gb200-tray" else 8
    nodes = -(-gpus // per_node)
    cluster: dict[str, Any] = {"name": node, "nodes": nodes, "cooling": {"kind": "air"}}
    if nodes == 1:
        cluster |= {"node": {"base": node, "gpus": gpus, "upstream": []}, "fabric": "none"}
    else:
        cluster |= {"node": node, "fabric": f"ib-{per_node}x400g", "domain_nodes": domain_nodes}
    return resolve_run({"cluster": cluster, "framework": "megatron", **request})


@pytest.mark.parametrize(("node", "kind", "gpus", "mib", "gb_per_s", "tolerance", "source"), BUS_BANDWIDTHS)
def test_bus_bandwidths(
    node: str, kind: str, gpus: int, mib: int, gb_per_s: float, tolerance: float, source: str
) -> None:
    on = machine(node, gpus, model="llama3-70b", training={"global_batch_size": 24})
    (op,) = collective(kind, "data", mib * MIB, gpus)
    assert op.sent_bytes / collective_seconds(op, on) == pytest.approx(gb_per_s * 1e9, rel=tolerance), source


@pytest.mark.parametrize(
    ("node", "domain", "ep", "name", "token_bytes", "limited", "microseconds", "tolerance", "source"), EXCHANGES
)
def test_expert_exchanges(
    node: str, domain: int, ep: int, name: str, token_bytes: int, limited: bool, microseconds: float,
    tolerance: float, source: str
) -> None:  # fmt: skip
    model = {"base": "deepseek-v3", **({} if limited else {"expert_groups": 1, "groups_per_token": 1})}
    on = machine(node, ep, domain, model=model, parallelism={"ep": ep, "etp": 1},
                 framework={"base": "megatron", "dispatcher": name}, training={"routing_skew": 1.0})  # fmt: skip
    (op,) = collective("all_to_all", "ep", DEEPSEEK_TOKENS * 8 * token_bytes, ep)
    constants = NetworkConstants(deepep=HYBRIDEP if name == "hybridep" else DEEPEP)
    assert collective_seconds(op, on, constants) == pytest.approx(microseconds * 1e-6, rel=tolerance), source


def test_four_nodes_of_b200_all_reduce_at_the_speed_of_their_nics() -> None:
    # stas00/ml-engineering: 4 nodes with eight NICs of 400 Gb/s each; GB/s of bus bandwidth by size.
    on = machine("hgx-b200", 32, model="llama3-70b", parallelism={})
    for mib, gb_per_s in ((512, 327), (1024, 362), (4096, 377)):
        (op,) = collective("all_reduce", "data", mib * MIB, 32)
        assert op.sent_bytes / collective_seconds(op, on, NETWORK) == pytest.approx(gb_per_s * 1e9, rel=0.12)
