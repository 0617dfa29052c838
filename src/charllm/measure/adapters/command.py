"""Any command: what stands in braces is filled in from the run."""

import re
from collections.abc import Mapping
from typing import Any

from charllm.errors import SpecError, unknown_name
from charllm.measure.adapters.adapter import Adapter, Program, Request
from charllm.spec.run import RunSpec

PLACEHOLDER = re.compile(r"\{([a-z_]+(?:\.[a-z_]+)*)\}")
SHORT = {
    "tp": "parallelism.tp", "pp": "parallelism.pp", "vpp": "parallelism.vpp", "cp": "parallelism.cp",
    "dp": "parallelism.dp", "ep": "parallelism.ep", "etp": "parallelism.etp", "zero": "parallelism.zero",
    "seq": "training.seq_length", "gbs": "training.global_batch_size", "mbs": "training.micro_batch_size",
    "precision": "training.precision", "model": "model.name", "layers": "model.layers", "hidden": "model.hidden",
    "nodes": "cluster.nodes", "gpus_per_node": "cluster.node.gpus", "seed": "conditions.seed",
}  # fmt: skip
"""Placeholder: the field of the run that it stands for; any other field is written out, {training.optimizer}."""
TABLES = ("model", "training", "parallelism", "cluster", "framework", "conditions")


def prepare(request: Request) -> Program:
    """Fill in the placeholders of a command."""
    if not request.words:
        possible = "the words of a command: charllm measure [flags] -- COMMAND ..., e.g. -- torchrun train.py --tp {tp}"
        raise SpecError("COMMAND", None, possible)
    run = request.run
    words = tuple(fill(word, run, {"steps": request.steps}) for word in request.words)
    return Program(command=words, spec=None if run is None else run.as_table())


def fill(word: str, run: RunSpec | None, more: Mapping[str, Any]) -> str:
    """Fill in one word; braces that name no field of a run stay as they are, for they may be the command's own."""

    def value(found: re.Match[str]) -> str:
        name = found[1]
        if name in more:
            return str(more[name])
        path = SHORT.get(name, name)
        if path.split(".")[0] not in TABLES or "." not in path:
            return found[0]
        if run is None:
            # The launcher may know what to put here.
            return found[0]
        return str(_look_up(run, name, path))

    return PLACEHOLDER.sub(value, word)


def _look_up(run: RunSpec, name: str, path: str) -> Any:
    place: Any = run
    for part in path.split("."):
        if not hasattr(place, part):
            raise unknown_name("COMMAND", f"{{{name}}}", [f"{{{known}}}" for known in SHORT])
        place = getattr(place, part)
    return ",".join(map(str, place)) if isinstance(place, tuple) else place


COMMAND = Adapter(prepare, "any command; {tp}, {gbs}, {training.optimizer} ... are filled in from the run")
