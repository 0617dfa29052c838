"""The parts of a cluster as its file has them, so that another file can be written over it."""

from collections.abc import Mapping, Sequence
from typing import Any

from charllm.catalog.resolve import find_entry, resolve_cluster
from charllm.errors import SpecError


def written_parts(cluster: str, parts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return a cluster's node or fabric as a file has them: a base, and figures over it."""
    values: Mapping[str, Any] = find_entry("clusters", cluster, "--cluster").values
    found = {}
    for part in parts:
        # What a cluster leaves open is what is usual for its GPU.
        written = values.get(part) or getattr(resolve_cluster(cluster), part).name
        table = {"base": written} if isinstance(written, str) else dict(written)
        if any(isinstance(value, Mapping) for value in table.values()):
            possible = (
                f'a cluster whose {part} has no tables inside it: name a file for each, such as gpu = "my_gpu.toml"'
            )
            raise SpecError(f"--cluster {cluster}: {part}", "tables inside a table", possible)
        found[part] = {key: value for key, value in table.items() if value is not None}
    return found
