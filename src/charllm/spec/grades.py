"""How well a run is set up, as its user states it: software and host, tuned or as most have them."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from charllm.spec.run import RunSpec

NOT_STATED = "not stated"
TUNINGS = (NOT_STATED, "tuned", "usual")
HOST_GRADES = {NOT_STATED: 1.0, "tuned": 1.0, "usual": 0.6, "slow": 0.38}
"""Grade of a host: how fast it launches kernels. Chosen: sparse layers of clouds' published runs with library defaults
and NCCL's all-to-all take 1.6 (B300) and 2.6 (H100) times as long on the host as those of vendors' recipes."""


def grade_of(tuning: str, hosts: Iterable[tuple[str, float]]) -> str:
    """Return how a run is set up (tuned, usual or not stated) from its software's and its hosts' grade and speed."""
    untuned = any(HOST_GRADES.get(grade, 1.0) * speed < 1 for grade, speed in hosts)
    return "usual" if untuned else tuning


def run_grade(run: "RunSpec") -> str:
    """Return how a run is set up: tuned, usual, or not stated."""
    return grade_of(run.framework.tuning, ((node.host_grade, node.host_speed_fraction) for node in run.cluster.kinds))


def is_untuned(run: "RunSpec") -> bool:
    """Tell whether a run's software or a host are stated to be as users have them."""
    return run_grade(run) == "usual"
