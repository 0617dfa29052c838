"""From a reading of a foreign file, laid under what the user asks for, to a request that can be resolved."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from charllm.catalog.resolve import NOTES, resolve_cluster
from charllm.catalog.sizes import usual_network
from charllm.catalog.tables import find_model
from charllm.errors import SpecError
from charllm.spec.readers.reading import Reading
from charllm.spec.request import Table, merge


def complete_request(reading: Reading, request: Table, *, allow_unmodelled: bool = False) -> Table:
    """Refuse what is not modelled or missing, size the cluster and the batch as the file does, add its warnings."""
    notes = reading.warnings()
    if reading.unmodelled:
        if not allow_unmodelled:
            raise _refusal(reading)
        notes += [f"not modelled, left out: {setting.shown()}" for setting in reading.unmodelled]
    if reading.model_id and not _names_model(request.get("model")):
        request = _with_named_model(reading.model_id, request)
        named = {"model": f"--model NAME or --model config.json (the file names {reading.model_id})"}
        reading = replace(reading, missing={**reading.missing, **named})
    missing = {field: remedy for field, remedy in reading.missing.items() if not _is_given(request, field)}
    if missing:
        raise SpecError(", ".join(missing), None, "; ".join(dict.fromkeys(missing.values())))
    request, sized = _size_cluster(reading, request)
    request = _fill_copies(reading, _fill_batch(reading, request))
    return {**request, NOTES: [*request.get(NOTES, ()), *notes, *sized]}


def _names_model(model: Any) -> bool:
    """Tell a model, or its name, from what a file adds to the model that it names."""
    return isinstance(model, str) or (isinstance(model, Mapping) and bool({"base", "layers"} & model.keys()))


def _with_named_model(named: str, request: Table) -> Table:
    """Take the catalog's model for a repository such as ``meta-llama/Llama-3.1-8B-Instruct``, where there is one."""
    found = find_model(named)
    if found is None:
        return request
    named_model = merge(found, request["model"]) if "model" in request else found
    return {**request, "model": named_model, NOTES: [*request.get(NOTES, ()), f"model {found} stands for {named}"]}


def _refusal(reading: Reading) -> SpecError:
    first, *more = reading.unmodelled
    line = "" if first.line is None else f" (line {first.line})"
    also = f"; also not modelled: {', '.join(setting.shown() for setting in more[:4])}" if more else ""
    return SpecError(
        f"{first.name}{line}", first.text, f"a run without {first.reason}, or --allow-unmodelled to leave it out{also}"
    )


def _is_given(request: Mapping[str, Any], field: str) -> bool:
    part, _, key = field.partition(".")
    table = request.get(part)
    if field == "model":
        return _names_model(table)
    # A name stands for a whole model or cluster.
    return table is not None and (not key or not isinstance(table, Mapping) or key in table or "base" in table)


def _size_cluster(reading: Reading, request: Table) -> tuple[Table, list[str]]:
    """Give a single-node cluster the nodes that the file starts; a cluster that the user sized stays as it is."""
    asked = request.get("cluster")
    if asked is None or reading.nodes is None:
        return request, []
    cluster = resolve_cluster(asked)
    per_node = reading.gpus_per_node or cluster.node.gpus
    gpus = reading.nodes * per_node
    started = f"the file starts {reading.nodes} x {per_node} = {gpus} GPUs"
    sized = isinstance(asked, Mapping) and "nodes" in asked
    if sized or cluster.nodes > 1 or cluster.gpus == 1:
        other = f"{started}; the run is simulated on the {cluster.gpus} GPUs of {cluster.name}"
        return request, [] if gpus == cluster.gpus else [other]
    if gpus < cluster.gpus or gpus % cluster.node.gpus:
        return request, [f"{started}, which are no whole nodes of {cluster.name}; {cluster.gpus} GPUs are simulated"]
    product = _product(request.get("parallelism", {}))
    if gpus % product:
        remedy = "--set cluster.nodes=N, or --env for the variable that counts them, changes that"
        raise SpecError("parallelism", f"tp x cp x pp = {product}", f"a divisor of {gpus} GPUs: {started}; {remedy}")
    if gpus == cluster.gpus:
        return request, []
    changes: Table = {"nodes": gpus // cluster.node.gpus}
    joined = ""
    if cluster.fabric.nics_per_node == 0 and changes["nodes"] > cluster.domain_nodes:
        changes["fabric"] = usual_network(cluster.gpu.name) or "ib-8x400g"
        joined = f", joined by {changes['fabric']} (--network for another)"
    return merge(request, {"cluster": changes}), [f"cluster.nodes is {changes['nodes']}, as {started}{joined}"]


def _product(degrees: Mapping[str, Any]) -> int:
    product = 1
    for axis in ("tp", "cp", "pp"):
        degree = degrees.get(axis, 1)
        product *= degree if isinstance(degree, int) and degree > 0 else 1
    return product


def _fill_copies(reading: Reading, request: Table) -> Table:
    """Work out over how many ranks a copy of the weights is sharded, where only their number is stated."""
    degrees, asked = request.get("parallelism", {}), request.get("cluster")
    if reading.copies == 1 or "shard_size" in degrees or asked is None:
        return request
    gpus = resolve_cluster(asked).gpus
    ranks, rest = divmod(gpus, _product({**degrees, "cp": 1}) * reading.copies)
    if rest or not ranks:
        raise SpecError(
            "parallelism.shard_size", f"{reading.copies} copies on {gpus} GPUs", "copies that divide the replicas"
        )
    return merge(request, {"parallelism": {"shard_size": ranks}})  # type: ignore[no-any-return]


def _fill_batch(reading: Reading, request: Table) -> Table:
    """Work out the global batch where the file states microbatches instead."""
    training, asked = request.get("training", {}), request.get("cluster")
    if reading.microbatches is None or "global_batch_size" in training or asked is None:
        return request
    replicas, rest = divmod(resolve_cluster(asked).gpus, _product(request.get("parallelism", {})))
    micro = training.get("micro_batch_size", 1)
    if rest or not replicas or not isinstance(micro, int):
        return request
    return merge(request, {"training": {"global_batch_size": micro * reading.microbatches * replicas}})  # type: ignore[no-any-return]
