"""Chakra execution traces of a simulated step, a pair of files for each rank."""

from pathlib import Path

from charllm.errors import SpecError
from charllm.result.store import drafted
from charllm.simulate.predict import Simulation
from charllm.trace.chakra_nodes import rank_nodes
from charllm.trace.chakra_writer import to_json, to_protobuf

FLAG = "--chakra"
MOST_NODES = 2_000_000
"""Of all ranks together: some hundred bytes each."""


def write_chakra(found: Simulation, folder: Path) -> list[str]:
    """Write `rank-N.et` (protobuf) and `rank-N.json` of every rank; returns what to say where nothing is written."""
    simulated = found.simulated
    if simulated is None:
        return [f"{FLAG}: not written: a run that does not fit in memory has no step time (see --ignore-memory)"]
    step, timed = simulated.step, simulated.timed
    world = step.run.parallelism.world
    nodes = list(rank_nodes(step, timed, 0))
    if len(nodes) * world > MOST_NODES:
        raise SpecError(FLAG, f"{world} ranks of about {len(nodes):,} ops", f"at most {MOST_NODES:,} ops in all")
    with drafted(folder, FLAG) as draft:
        for rank in range(world):
            nodes = list(rank_nodes(step, timed, rank))
            (draft / f"rank-{rank}.json").write_text(to_json(nodes), encoding="utf-8")
            (draft / f"rank-{rank}.et").write_bytes(to_protobuf(nodes))
    return []
