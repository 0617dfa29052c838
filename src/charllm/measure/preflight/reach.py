"""A short all-reduce over all ranks: can they reach each other, and is the sum right?

    torchrun ... -m charllm.measure.preflight.reach
    srun ... python -m charllm.measure.preflight.reach

Rank 0 prints one line of JSON.
"""

import json
import os
import sys
import time
from datetime import timedelta
from typing import Any

ELEMENTS, REPEATS, LIMIT_S = 1 << 20, 5, 60.0
DEFAULT_PORT = 29_511


def reach() -> dict[str, Any] | None:
    """Sum the ranks' numbers over all of them; returns what rank 0 tells."""
    import torch
    import torch.distributed as dist

    rank, world, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    on_gpu = torch.cuda.is_available() and not os.environ.get("CHARLLM_REACH_CPU")
    backend = "nccl" if on_gpu else "gloo"
    if on_gpu:
        torch.cuda.set_device(local % torch.cuda.device_count())
    dist.init_process_group(backend, timeout=timedelta(seconds=LIMIT_S), rank=rank, world_size=world)
    values = torch.full((ELEMENTS,), float(rank + 1), device="cuda" if on_gpu else "cpu")
    dist.all_reduce(values)
    expected = world * (world + 1) / 2
    wrong = bool((values != expected).any())
    start_s = time.monotonic()
    for _ in range(REPEATS):
        dist.all_reduce(values)
    if on_gpu:
        torch.cuda.synchronize()
    took_s = (time.monotonic() - start_s) / REPEATS
    dist.destroy_process_group()
    size_bytes = ELEMENTS * values.element_size()
    told = {"backend": backend, "ranks": world, "wrong": wrong, "seconds_s": took_s, "bytes": size_bytes}
    if on_gpu:
        told["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return told if rank == 0 else None


def take_slurm_ranks(environment: dict[str, str]) -> dict[str, str]:
    """Return the variables of torchrun, as srun's own say them."""
    if "RANK" in environment or "SLURM_PROCID" not in environment:
        return {}
    port = DEFAULT_PORT + int(environment.get("SLURM_JOB_ID", "0")) % 1000
    return {
        "RANK": environment["SLURM_PROCID"],
        "WORLD_SIZE": environment["SLURM_NTASKS"],
        "LOCAL_RANK": environment.get("SLURM_LOCALID", "0"),
        "MASTER_ADDR": environment.get("CHARLLM_HEAD", "localhost"),
        "MASTER_PORT": str(port),
    }


def main() -> int:
    """Print what rank 0 found."""
    os.environ.update(take_slurm_ranks(dict(os.environ)))
    told = reach()
    if told is not None:
        print(json.dumps(told), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
