"""Thermal placement and uneven pipelines."""

from charllm.catalog.resolve import resolve_cluster
from charllm.report.claims import read_claims
from charllm.reproduce.finding import Configuration, Finding, percent_more
from charllm.reproduce.paper import Request, dense_runs, with_change

STRATEGY = "gpt3-175b tp4-pp8"


def thermal_placement() -> Finding:
    """Pipeline stages separated into cool and hot slots, with fewer layers in the hot ones."""
    run = dense_runs("act")[STRATEGY]
    apart = with_change(run, {"conditions": {"gpu_of_rank": rows_apart(run), "placement": "rows.json"}})
    stages, layers = 8, 12
    uneven: dict[str, Request] = {
        f"separated, {layers + extra} front / {layers - extra} rear layers": with_change(
            apart, {"parallelism": {"layers_per_stage": [layers + extra, layers - extra] * (stages // 2)}}
        )
        for extra in (1, 2)
    }
    tried: dict[str, Request] = {"separated, equal layers": apart, **uneven}
    return Finding(
        claim=read_claims()["thermal-placement"],
        configurations={name: Configuration((one, run), percent_more("tokens_per_s")) for name, one in tried.items()},
    )


def rows_apart(run: Request) -> list[int]:
    """Return the GPU of each rank where front and rear slots of a node take turns in blocks."""
    cluster = resolve_cluster(run["cluster"])
    slots = range(cluster.node.gpus)
    order = sorted(slots, key=lambda slot: len(cluster.node.upstream_slots(slot)))
    return [node * cluster.node.gpus + slot for node in range(cluster.nodes) for slot in order]
