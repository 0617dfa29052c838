"""Rollouts: answers of unequal lengths that are generated together until the last of them has ended.

Equation: lengths are log-normal with a mean and a spread, cut off at the longest allowed; of n sequences a replica has,
s fit in its cache. While more wait, s are active: (n - s) mean / s steps. Then as many are active as are longer than
what has been generated, down to the longest of all replicas, for which everyone waits.
Source: order statistics; engines with continuous batching keep their slots full while prompts wait (vLLM, SGLang).
Ignores: lengths that depend on the prompt, replicas that differ in their mean, preemption when caches grow.
"""

from dataclasses import replace
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from charllm.arrays import Floats
from charllm.result.memory_verdict import judge_memory
from charllm.simulate.cycle import Phase
from charllm.spec.generation import Generation, decode_run, prefill_run
from charllm.spec.run import RunSpec
from charllm.workload.cache_memory import stage_cache_bytes
from charllm.workload.step import build_step

SHARES = (1.0, 0.75, 0.5, 0.25, 0.08)
"""Shares of a replica's sequences that are active, between which a decode step is priced once; then the last ones."""
STRAGGLING_SHARE = 0.25
"""Share of active sequences below which a phase is called stragglers."""
MEMORY_FRACTION, SHARED_MEMORY_FRACTION = 0.8, 0.6
"""Published: share of a GPU's memory that the engine fills with weights and cache (gpu_memory_utilization), on GPUs of
its own and on those that also train: NeMo RL's recipes."""
POINTS = 2048


class Lengths(NamedTuple):
    """How long answers are."""

    mean: float
    spread_fraction: float
    longest: float
    endless_fraction: float
    """Answers that repeat themselves until they are cut off; none where all answers are equally long."""

    def at(self, share: float) -> float:
        """Return the length that this share of answers does not exceed."""
        return float(np.interp(share, _PLACES, self.sorted()))

    def sorted(self) -> Floats:
        """Return the lengths of equally likely answers, the shortest first; their mean is the one asked for."""
        sigma = float(np.sqrt(np.log(1 + self.spread_fraction**2)))
        shape = np.exp(sigma * _NORMAL)
        if self.spread_fraction:
            shape[1 - self.endless_fraction < _PLACES] = np.inf
        low, high = 0.0, self.longest
        for _ in range(60):
            middle = (low + high) / 2
            short = np.minimum(self.longest, middle * shape).mean() < self.mean
            low, high = (middle, high) if short else (low, middle)
        return np.minimum(self.longest, high * shape)


_PLACES = (np.arange(POINTS) + 0.5) / POINTS
_NORMAL = np.array([NormalDist().inv_cdf(place) for place in _PLACES])


class Stretch(NamedTuple):
    """Decode steps in a row with about as many active sequences."""

    steps: float
    active: float
    """Sequences on each replica."""
    context: float
    straggles: bool


def list_stretches(lengths: Lengths, prompt: int, waiting: float, slots: float, samples: int) -> list[Stretch]:
    """Return what a replica with so many sequences, of which some fit at once, goes through."""
    slots = min(slots, waiting)
    found = []
    if waiting > slots:
        found.append(Stretch((waiting - slots) * lengths.mean / slots, slots, prompt + lengths.mean / 2, False))
    begun, ordered = 0.0, lengths.sorted()
    for above, below in zip(SHARES, (*SHARES[1:], 0.0), strict=True):
        # The longest of all samples ends the rollout.
        until = lengths.at(1 - below) if below else max(begun, lengths.at(1 - 0.5 / samples))
        if until > begun:
            going = np.clip(ordered - begun, 0.0, until - begun).mean() / (until - begun)
            active = max(1.0, slots * float(going))
            found.append(Stretch(until - begun, active, prompt + (begun + until) / 2, above <= STRAGGLING_SHARE))
        begun = max(begun, until)
    return found


def count_slots(run: RunSpec, tokens: float, memory_fraction: float) -> int:
    """Return how many sequences of so many tokens a replica's cache holds at once; 0: not even one."""
    one = replace(run, training=replace(run.training, global_batch_size=run.parallelism.dp, micro_batch_size=1))
    worst = judge_memory(build_step(decode_run(one))).worst
    each = stage_cache_bytes(one, worst.stage) * tokens / _whole(one)
    free = memory_fraction * worst.gpu_bytes - worst.need_bytes
    return max(0, int(free / each)) if each else run.training.global_batch_size


def _whole(run: RunSpec) -> int:
    return run.generation.prompt_tokens + run.generation.new_tokens if run.generation else 1


def rollout_phases(run: RunSpec, lengths: Lengths, samples: int, *, shared: bool) -> list[Phase]:
    """Return prefill, decode and stragglers of a rollout on the replicas of a run; `run` generates the mean length.

    `shared`: its GPUs also train.
    """
    dp, prompt = run.parallelism.dp, _generation(run).prompt_tokens
    waiting = max(1.0, samples / dp)
    slots = count_slots(run, prompt + lengths.mean, SHARED_MEMORY_FRACTION if shared else MEMORY_FRACTION)
    if not slots:
        return []
    whole = replace(run, training=replace(run.training, global_batch_size=round(np.ceil(waiting)) * dp))
    prompts = Phase("prefill", build_step(prefill_run(whole)), tokens=float(samples * prompt))
    phases = [prompts]
    for one in list_stretches(lengths, prompt, waiting, slots, samples):
        batch = max(1, round(one.active))
        training = replace(run.training, global_batch_size=batch * dp, micro_batch_size=1)
        step = build_step(decode_run(replace(run, training=training), round(one.context)))
        row = step.run.generation.tokens_in_row if step.run.generation else 1
        steps = max(1.0, one.steps / row)
        tokens = one.steps * one.active * dp
        phases.append(Phase("stragglers" if one.straggles else "decode", step, steps, tokens=tokens))
    return phases


def _generation(run: RunSpec) -> Generation:
    if run.generation is None:
        raise ValueError("a rollout generates")
    return run.generation
