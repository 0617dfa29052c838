"""Expert parallelism inside a node against expert parallelism across nodes."""

from charllm.report.claims import read_claims
from charllm.reproduce.finding import Configuration, Finding, Number, percent_more
from charllm.reproduce.paper import H100, H200, Request, run_of, with_change

NODE_GPUS = 8
LOCAL = {H200: ("mixtral-8x22b ep8-tp1-pp4",), H100: ("mixtral-8x22b ep8-tp1-pp8",)}
SPREAD = {
    H200: ("mixtral-8x22b ep8-tp2-pp2", "mixtral-8x22b ep8-tp4"),
    H100: ("mixtral-8x22b ep8-tp2-pp4", "mixtral-8x22b ep8-tp4-pp2", "mixtral-8x22b ep8-tp8"),
}
"""Strategies whose expert groups lie within a node, and across nodes (tensor ranks stand between the experts)."""


def locality() -> Finding:
    """Expert groups within a node against those across nodes."""
    gain = percent_more("tokens_per_s")
    found = {}
    for study, gpu in ((H200, "H200"), (H100, "H100")):
        for local in LOCAL[study]:
            inside = run_of(study, f"{local} / act")
            for spread in SPREAD[study]:
                pair = (inside, run_of(study, f"{spread} / act"))
                found[f"{gpu} {local} against {spread.split()[1]}"] = Configuration(pair, gain)
    moved = {f"{gpu} {name}, round-robin placement": _dealt(run_of(study, f"{name} / act"), nodes, gain)
             for gpu, study, name, nodes in (
                 ("H200", H200, "mixtral-8x22b ep8-tp1-pp4", 4), ("H200", H200, "mixtral-8x7b ep8-tp1", 4),
                 ("H100", H100, "mixtral-8x22b ep8-tp1-pp8", 8), ("H100", H100, "mixtral-8x7b ep8-tp1-pp2", 8),
             )}  # fmt: skip
    return Finding(
        claim=read_claims()["expert-locality"],
        configurations={**found, **moved},
    )


def _dealt(run: Request, nodes: int, gain: Number) -> Configuration:
    """Return a run against itself with neighbouring ranks on different nodes."""
    places = [rank % nodes * NODE_GPUS + rank // nodes for rank in range(nodes * NODE_GPUS)]
    apart = with_change(run, {"conditions": {"gpu_of_rank": places, "placement": "dealt.json"}})
    return Configuration((run, apart), gain)
