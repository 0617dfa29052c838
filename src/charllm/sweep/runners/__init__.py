"""Where the cases of a study are simulated: one file a runner; all of them store the same folders."""

from collections.abc import Callable, Generator

from charllm.sweep.runners.work import Ended, Work


def _locally(work: Work) -> Generator[Ended, None, None]:
    from charllm.sweep.runners.local import run_locally

    return run_locally(work)


def _on_slurm(work: Work) -> Generator[Ended, None, None]:
    from charllm.sweep.runners.slurm import run_on_slurm

    return run_on_slurm(work)


def _on_ray(work: Work) -> Generator[Ended, None, None]:
    from charllm.sweep.runners.ray import run_on_ray

    return run_on_ray(work)


RUNNERS: dict[str, Callable[[Work], Generator[Ended, None, None]]] = {
    "local": _locally,
    "slurm": _on_slurm,
    "ray": _on_ray,
}
