"""A short all-reduce over all ranks: can they reach each other, and is the sum right?

    torchrun ... -m charllm.measure.preflight.reach
    srun ... python -m charllm.measure.preflight.reach --rank RANK --ranks COUNT --head NODE

Rank 0 prints one line of JSON.
"""

import argparse
import json
import sys
import time
from datetime import timedelta
from typing import Any

ELEMENTS, REPEATS, LIMIT_S = 1 << 20, 5, 60.0
DEFAULT_PORT = 29_511


def reach(rank: int | None, ranks: int | None, head: str, *, on_cpu: bool) -> dict[str, Any] | None:
    """Sum the ranks' numbers over all of them; returns what rank 0 tells. Torchrun tells a rank its number."""
    import torch
    import torch.distributed as dist

    on_gpu = torch.cuda.is_available() and not on_cpu
    backend = "nccl" if on_gpu else "gloo"
    limit = timedelta(seconds=LIMIT_S)
    if rank is None or ranks is None:
        dist.init_process_group(backend, timeout=limit)
    else:
        rendezvous = f"tcp://{head}:{DEFAULT_PORT}"
        dist.init_process_group(backend, init_method=rendezvous, timeout=limit, rank=rank, world_size=ranks)
    own, world = dist.get_rank(), dist.get_world_size()
    if on_gpu:
        torch.cuda.set_device(own % torch.cuda.device_count())
    values = torch.full((ELEMENTS,), float(own + 1), device="cuda" if on_gpu else "cpu")
    dist.all_reduce(values)
    wrong = bool((values != world * (world + 1) / 2).any())
    start_s = time.monotonic()
    for _ in range(REPEATS):
        dist.all_reduce(values)
    if on_gpu:
        torch.cuda.synchronize()
    took_s = (time.monotonic() - start_s) / REPEATS
    dist.destroy_process_group()
    told = {"backend": backend, "ranks": world, "wrong": wrong, "seconds_s": took_s}
    told["bytes"] = ELEMENTS * values.element_size()
    return told if own == 0 else None


def main() -> int:
    """Print what rank 0 found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--ranks", type=int)
    parser.add_argument("--head", default="localhost")
    parser.add_argument("--cpu", action="store_true")
    arguments = parser.parse_args()
    told = reach(arguments.rank, arguments.ranks, arguments.head, on_cpu=arguments.cpu)
    if told is not None:
        print(json.dumps(told), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
