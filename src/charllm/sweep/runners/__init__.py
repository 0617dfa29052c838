"""Where the cases of a study are simulated: one file a runner; all of them store the same folders."""

from collections.abc import Callable, Generator

from charllm.sweep.runners.local import run_locally
from charllm.sweep.runners.ray import run_on_ray
from charllm.sweep.runners.slurm import run_on_slurm
from charllm.sweep.runners.work import Ended, Work

RUNNERS: dict[str, Callable[[Work], Generator[Ended, None, None]]] = {
    "local": run_locally,
    "slurm": run_on_slurm,
    "ray": run_on_ray,
}
