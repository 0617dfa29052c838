"""How fast strategies are decided on one core, beside Calculon's search, and how long whole plans take.

Run as: python -m benchmarks.plan_speed [FOLDER], where FOLDER holds a checkout of Calculon; without it only plans are
timed. Times are CPU seconds of this process.
"""

import logging
import random
import sys
import time
from importlib import import_module
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import charllm
from charllm.api.plan import build_space
from charllm.plan.feasible import divide_space
from charllm.plan.metrics import USUAL
from charllm.plan.objectives import parse_objective
from charllm.plan.rank import rank
from charllm.plan.scores import score_of

JOBS: dict[str, tuple[dict[str, Any], int, float]] = {
    "GPT3-175B on 32 H200": ({"model": "gpt3-175b", "cluster": "charllm-ppt-h200", "gbs": 128}, 20, 15.0),
    "Llama3-405B on 16,384 H100": (
        {"model": "llama3-405b", "cluster": {"base": "charllm-ppt-h100", "nodes": 2048}, "gbs": 2048}, 3, 120.0,
    ),
    "DeepSeek-V3 on 2,048 H800": (
        {"model": "deepseek-v3", "cluster": {"base": "charllm-ppt-h100", "node": "hgx-h800", "nodes": 256},
         "gbs": 15360},
        3, 120.0,
    ),
}  # fmt: skip
"""Name: job, strategies simulated in full, CPU seconds that are asked for."""
EXCHANGES = ("ar", "p2p_rs_ag", "rs_ag")
"""Calculon's ways to exchange between tensor-parallel ranks."""
GPUS, BATCH, SAMPLE_S, ASKED_RATIO = 32, 128, 30.0, 100.0


def our_rate() -> float:
    """Return the valid strategies of GPT3-175B on 32 GPUs that are decided in a second."""
    begun_s = time.process_time()
    space = build_space(None, {}, JOBS["GPT3-175B on 32 H200"][0]).space
    feasible = divide_space(space)
    found = rank(feasible, score_of(space.base, parse_objective("throughput"), USUAL), [(None, None)], 20)
    spent_s = time.process_time() - begun_s
    print(f"charllm: {feasible.visited:,} strategies in {spent_s:.1f} s, {found.priced:,} of them priced: "
          f"{feasible.visited / spent_s:,.0f} a second")  # fmt: skip
    return feasible.visited / spent_s


def calculon_rate(folder: Path) -> float:
    """Return how many executions Calculon's own search loop tries in a second, on a random sample of its work."""
    sys.path.insert(0, str(folder))
    try:
        import_module("psutil")
    except ImportError:
        sys.modules["psutil"] = ModuleType("psutil")
        sys.modules["psutil"].cpu_count = lambda **_: 1  # type: ignore[attr-defined]
    calculon, system_module = import_module("calculon"), import_module("calculon.system")
    import_module("calculon.llm")
    Llm = import_module("calculon.llm.llm").Llm  # noqa: N806
    search = import_module("calculon.llm.optimal_execution").OptimalExecution
    pick = import_module("calculon.util").pick
    logging.getLogger().setLevel(logging.WARNING)
    model = Llm.Application(calculon.io.read_json_file(str(folder / "models" / "gpt3-175B.json")))
    system = system_module.System(calculon.io.read_json_file(str(folder / "systems" / "h100_80g_nvl8.json")))
    work = []
    for tp in Llm.get_all_tensor_parallelisms(GPUS, model.hidden, model.attn_heads):
        for pp in Llm.get_all_pipeline_parallelisms(GPUS, tp, model.num_blocks):
            dp = Llm.get_data_parallelism(GPUS, tp, pp)
            batch = search.get_batch_size(dp, BATCH)
            for chunks in Llm.get_valid_pipeline_interleavings(model.num_blocks, pp):
                kinds = product(("full", "attn_only", "none"), pick(dp > 1, [True, False], [False]), EXCHANGES)
                work += [(False, 1, False, GPUS, BATCH, "float16", model, system, tp, pp, dp, chunks, batch, *kind,
                          [True], False, True, True) for kind in kinds]  # fmt: skip
    random.Random(0).shuffle(work)
    tried, begun_s = 0, time.process_time()
    for one in work:
        if one[12] is not None:
            tried += search.search(*one)[1]
        if time.process_time() - begun_s > SAMPLE_S:
            break
    spent_s = time.process_time() - begun_s
    print(f"Calculon: {tried:,} executions in {spent_s:.1f} s: {tried / spent_s:,.0f} a second")
    return tried / spent_s


def time_plans() -> bool:
    """Print how long whole plans take, and tell whether all are as fast as asked."""
    fast = True
    for name, (job, top, asked_s) in JOBS.items():
        begun_s = time.process_time()
        counts = charllm.plan(**job, top=top, allow_long=True).counts
        spent_s = time.process_time() - begun_s
        fast = fast and spent_s <= asked_s
        print(f"{name}: {counts.visited:,} strategies, {counts.priced:,} priced, {counts.simulated} simulated in full: "
              f"{spent_s:.1f} s (asked: {asked_s:.0f} s)", flush=True)  # fmt: skip
    return fast


def main(folder: str | None = None) -> int:
    """Print all rates; 1 where one falls short."""
    charllm.plan(model="llama3-8b", cluster="h200x8", gbs=16, tp=1, pp=1, cp=1, mbs=1, zero=1, top=1)
    ours, fast = our_rate(), True
    if folder is not None:
        ratio = ours / calculon_rate(Path(folder))
        print(f"ratio: {ratio:,.0f} (asked: {ASKED_RATIO:.0f})")
        fast = ratio >= ASKED_RATIO
    return 0 if time_plans() and fast else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
