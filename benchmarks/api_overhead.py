"""Time of ``import charllm``, and what ``charllm.simulate`` of 32 GPUs adds to the library's own time.

The library's own time is that of resolving the request and simulating it; both are called in turn, and the smallest
time of each counts, for other work on the machine only adds to it.
"""

import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import charllm
from charllm.catalog.resolve import resolve_run
from charllm.simulate.predict import simulate

IMPORTS, ROUNDS = 10, 60
KEYWORDS = {"model": "llama3-70b", "cluster": "charllm-ppt-h200", "tp": 4, "pp": 4, "gbs": 128}
REQUEST = {
    "model": "llama3-70b",
    "cluster": "charllm-ppt-h200",
    "parallelism": {"tp": 4, "pp": 4},
    "training": {"global_batch_size": 128},
}


def import_s() -> float:
    """Return the time of `import charllm` in a fresh process, as -X importtime shows it."""
    command = [sys.executable, "-X", "importtime", "-c", "import charllm"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    (microseconds,) = re.findall(r"(\d+) \| charllm$", shown, flags=re.MULTILINE)
    return int(microseconds) / 1e6


def seconds(call: Callable[[], object]) -> float:
    start_s = time.perf_counter()
    call()
    return time.perf_counter() - start_s


def overhead() -> tuple[float, float]:
    """Return the smallest time of the library's own functions and of the API, called in turn."""
    own: list[float] = []
    api: list[float] = []
    for _ in range(ROUNDS):
        own.append(seconds(lambda: simulate(resolve_run(REQUEST))))
        api.append(seconds(lambda: charllm.simulate(**KEYWORDS)))  # type: ignore[arg-type]
    return min(own), min(api)


def main() -> None:
    imported = [import_s() for _ in range(IMPORTS)]
    print(f"import charllm: median {1e3 * statistics.median(imported):.1f} ms of {IMPORTS} fresh processes")
    assert charllm.simulate(**KEYWORDS) == simulate(resolve_run(REQUEST))  # type: ignore[arg-type]
    own_s, api_s = overhead()
    print(f"32 GPUs: library {1e3 * own_s:.2f} ms, charllm.simulate {1e3 * api_s:.2f} ms, {api_s / own_s - 1:+.2%}")


if __name__ == "__main__":
    main()
