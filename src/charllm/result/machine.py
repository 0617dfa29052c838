"""The machine of a run, from its result alone."""

from charllm.errors import CharllmError
from charllm.result.result import RunResult
from charllm.spec.hardware import Cluster, read_cluster


def cluster_of(result: RunResult) -> Cluster | None:
    """Return the cluster that a spec describes; None where a job left no spec, or one of another version."""
    try:
        return read_cluster(result.spec["cluster"])
    except (CharllmError, KeyError, TypeError, ValueError):
        return None
