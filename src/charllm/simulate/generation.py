"""A static batch that is generated: prompts are read, then every sequence gets its tokens, one step at a time.

Equation: time = prefill + (new tokens - 1) x decode step at the mean context; the first token is there after prefill.
Source: workload/cache.py for attention over a cache, simulate/cycle.py for power and heat of the two phases in turn.
Ignores: continuous batching, arrival of requests and queueing, speculative decoding, prefix caches.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from charllm.errors import SpecError
from charllm.result.description import tabulate_description
from charllm.result.memory_verdict import MemoryVerdict, judge_memory
from charllm.result.metrics import Metrics, fill_metrics
from charllm.result.provenance import describe_provenance, tabulate_figures
from charllm.result.result import RunResult
from charllm.simulate.cycle import Phase, PhaseRun, join_phases, shorten, simulate_cycle, tabulate_phases
from charllm.simulate.predict import Tables, gpu_rows
from charllm.simulate.recorded import close_times, price_as_simulated
from charllm.simulate.signals import (
    cluster_metrics,
    node_rows,
    power_metrics,
    tabulate_cluster,
    tabulate_power_changes,
    tabulate_signals,
)
from charllm.simulate.steady import proceed
from charllm.simulate.work import LONGEST_S, check_size
from charllm.spec.generation import Generation, decode_run, prefill_run
from charllm.spec.run import RunSpec
from charllm.units import format_bytes
from charllm.workload.cache_memory import stage_cache_bytes
from charllm.workload.model_flop import model_flop, peak_flop_per_s
from charllm.workload.parameters import count_active_parameters, count_parameters
from charllm.workload.step import Step, build_step
from charllm.workload.table import tabulate_memory, tabulate_parameters
from charllm.workload.totals import executed_flop

SCOPE = (
    "a static batch: continuous batching, arrival of requests and queueing are not simulated (Vidur, LLMServingSim and "
    "AIConfigurator do that)"
)


class Generated(NamedTuple):
    """A generation that was predicted."""

    result: RunResult
    phases: list[PhaseRun]


def generate(
    run: RunSpec, *, ignore_memory: bool = False, longest_s: float = LONGEST_S,
    before_round: Callable[[], None] = proceed,
) -> Generated:  # fmt: skip
    """Predict prefill and decode of a static batch in one closed loop; only memory where it does not fit."""
    check_size(run, longest_s)
    asked = generation_of(run)
    steps = [build_step(one) for one in (prefill_run(run), decode_run(run))]
    times = 1, _tokens_after_first(asked) / _row(steps[1])
    verdict = min((judge_memory(step) for step in steps), key=lambda one: one.worst.margin_fraction)
    warnings = [f"{SCOPE}; all sequences have {asked.prompt_tokens} and {asked.new_tokens} tokens", *run.notes]
    known: dict[str, Any] = {
        **verdict.as_metrics(),
        "parameters": count_parameters(run.model, with_mtp=False),
        "active_parameters": count_active_parameters(run.model),
        "model_flop": sum(model_flop(step.run) * each for step, each in zip(steps, times, strict=True)),
        "executed_flop": sum(executed_flop(step) * each for step, each in zip(steps, times, strict=True)),
        "microbatches": steps[1].run.microbatches // _row(steps[1]),
    }
    if not (verdict.fits or ignore_memory):
        warnings.append(_what_fits(run, verdict))
        return Generated(_result(run, known, [], verdict, warnings), [])
    phases = simulate_cycle(list_phases(run, steps), before_round)
    return Generated(_result(run, known, phases, verdict, warnings), phases)


def generation_of(run: RunSpec) -> Generation:
    """Return what a run generates."""
    if run.generation is None:
        raise SpecError("generation", None, "prompt_tokens and new_tokens")
    return run.generation


def _row(step: Step) -> int:
    return generation_of(step.run).tokens_in_row


def _tokens_after_first(asked: Generation) -> int:
    """Return how many tokens are added to each sequence: the first comes with the prompt."""
    return asked.new_tokens - 1


def list_phases(run: RunSpec, steps: list[Step]) -> list[Phase]:
    """Return prefill and, unless the first token is the only one, decode."""
    asked, batch = generation_of(run), run.training.global_batch_size
    (prefill, decode), later = steps, _tokens_after_first(asked)
    phases = [Phase("prefill", prefill, tokens=float(batch * asked.prompt_tokens))]
    if later:
        phases.append(Phase("decode", decode, later / _row(decode), tokens=float(batch * later)))
    return phases


def _result(
    run: RunSpec, known: dict[str, Any], phases: list[PhaseRun], verdict: MemoryVerdict, warnings: list[str]
) -> RunResult:
    tables: Tables = {
        "description": partial(tabulate_description, run),
        "figures": partial(tabulate_figures, run),
        "memory": partial(tabulate_memory, decode_run(run), verdict.stages),
        "parameters": partial(tabulate_parameters, run.model),
    }
    extra: dict[str, Any] = {}
    machine = joined = None
    if phases:
        machine, joined = join_phases(phases)
        extra = generation_metrics(run, phases)
        known |= time_of_phases(run, phases) | power_metrics(machine, joined)
        known |= cluster_metrics(machine, joined)
        new_tokens = run.training.global_batch_size * generation_of(run).new_tokens
        known["tokens_per_j"] = new_tokens / known["energy_per_step_j"]
        known["mfu"] = _mfu(run, known)
        short = shorten(joined)
        tables |= {
            "phases": partial(tabulate_phases, phases),
            "cluster": partial(tabulate_cluster, short),
            "signals": partial(tabulate_signals, machine, short),
            "power_changes": partial(tabulate_power_changes, short),
        }
    return RunResult(
        origin="simulated",
        spec=run.as_table(),
        metrics=Metrics({**fill_metrics(known), **extra}),
        gpus=gpu_rows(run, verdict, machine, joined),
        nodes=node_rows(machine, joined) if machine and joined else [{"node": n} for n in range(run.cluster.nodes)],
        provenance=describe_provenance(run),
        warnings=warnings,
        tables=tables,
    )


def _mfu(run: RunSpec, known: dict[str, Any]) -> float | None:
    peak = peak_flop_per_s(run)
    return known["model_flop"] / (known["step_time_s"] * run.parallelism.world * peak) if peak else None


def time_of_phases(run: RunSpec, phases: list[PhaseRun]) -> dict[str, Any]:
    """Return the length of the generation, its throughput in new tokens and where its time goes."""
    total_s = sum(one.seconds for one in phases)
    tokens_per_s = run.training.global_batch_size * generation_of(run).new_tokens / total_s
    labels: dict[str, float] = {}
    for one in phases:
        if one.phase.step is None:
            continue
        timed = price_as_simulated(one.phase.step, one.machine, one.simulated_step)
        closed = close_times(one.machine, timed, one.simulated_step)
        for label, seconds in closed.breakdown_s.items():
            labels[label] = labels.get(label, 0.0) + seconds * one.phase.times
    return {
        "step_time_s": total_s,
        "tokens_per_s": tokens_per_s,
        "tokens_per_s_per_gpu": tokens_per_s / run.parallelism.world,
        "breakdown_s": labels,
    }


def generation_metrics(run: RunSpec, phases: list[PhaseRun]) -> dict[str, Any]:
    """Return the metrics that only a generation has."""
    decode = [one for one in phases if one.phase.name == "decode"]
    return {
        "time_to_first_token_s": phases[0].seconds,
        "time_per_token_s": decode[0].seconds / decode[0].phase.steps if decode else None,
        "cache_bytes": max(stage_cache_bytes(run, stage) for stage in range(run.parallelism.pp)),
    }


def _what_fits(run: RunSpec, verdict: MemoryVerdict) -> str:
    """Name the largest batch at these lengths and the longest sequence at this batch that fit, each checked."""
    asked, dp = generation_of(run), run.parallelism.dp
    worst = verdict.worst
    cache = stage_cache_bytes(run, worst.stage)
    needs = (
        f"needs {format_bytes(worst.need_bytes)} of {format_bytes(worst.gpu_bytes)}, {format_bytes(cache)} of it cache"
    )

    def fits(sequences: int, new_tokens: int) -> bool:
        training = replace(run.training, global_batch_size=sequences * dp, micro_batch_size=1)
        changed = replace(run, training=training, generation=replace(asked, new_tokens=new_tokens))
        return all(judge_memory(build_step(one)).fits for one in (prefill_run(changed), decode_run(changed)))

    most = _largest(lambda count: fits(count, asked.new_tokens), run.training.global_batch_size // dp)
    longest = _largest(lambda count: fits(run.training.global_batch_size // dp, count), asked.new_tokens)
    if not most:
        return f"memory: {needs}; no batch of {asked.prompt_tokens} + {asked.new_tokens} tokens fits: more tp or pp"
    length = (
        f"or {asked.prompt_tokens} + {longest} tokens with {run.training.global_batch_size} sequences"
        if longest
        else f"no length fits with {run.training.global_batch_size} sequences"
    )
    tokens = f"{asked.prompt_tokens} + {asked.new_tokens} tokens"
    return f"memory: {needs}; the largest batch that fits is {most * dp} sequences of {tokens}, {length}"


def _largest(fits: Callable[[int], bool], most: int) -> int:
    """Return the largest number up to `most` that fits, 0 where none does."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
