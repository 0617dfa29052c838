"""Names and numbers of log lines: ``lm loss: 2.1E+00``, ``time 561.94ms``, ``tps=1,024`` become fields of a step."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from charllm.units import GIB, GIGA, KIB, KILO, MEGA, MIB, MICRO, MILLI, TERA, TIB

NUMBER = (
    r"[-+]?(?:\d{1,3}(?:,\d{3}){1,6}+|\d{1,40}+)(?:\.\d{1,40}+)?(?:[eE][-+]?\d{1,5}+)?|[-+]?\.\d{1,40}+|"
    r"[-+]?(?:nan|inf)(?:inity)?(?:\.0)?\b"
)
UNIT = r"(?:ms|us|sec|s|min|[KMGT]i?B|[KMBGT]|%)(?![A-Za-z0-9])"
PAIR = re.compile(
    rf"""(?<![A-Za-z_])(?P<key>[A-Za-z_][\w./-]{{0,60}}+(?:[ ]?\([^()|:=]{{1,40}}\)|[ ][A-Za-z_][\w./-]{{0,60}}+){{0,5}})["']?
    (?:\s{{0,20}}+[:=]\s{{0,20}}+["']?|\s{{1,20}}+)
    (?P<value>{NUMBER})\s?(?P<unit>{UNIT})?""",  # noqa: E501
    re.VERBOSE,
)
"""Every repetition is bounded, so that a line takes time in proportion to its length."""
BARE = re.compile(
    rf"(?:^|[|,])\s{{0,20}}+(?P<value>{NUMBER})\s{{0,20}}+(?P<key>ms|tok/s|tokens/s|samples/s)(?=\s{{0,20}}(?:[|,]|$))"
)
"""A number whose unit alone says what it is."""
FACTORS = {
    "ms": MILLI, "us": MICRO, "s": 1.0, "sec": 1.0, "min": 60.0, "%": 0.01,
    "K": KILO, "M": MEGA, "B": GIGA, "G": GIGA, "T": TERA,
    "KB": KILO, "MB": MEGA, "GB": GIGA, "TB": TERA, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB,
}  # fmt: skip

PREFIXES = ("K", "M", "B", "G", "T")
"""Thousands, millions ... of the unit that the name says."""


class Pair(NamedTuple):
    """A name and its number, as the log writes them."""

    key: str
    value: float
    unit: str | None


class Meaning(NamedTuple):
    """What a name stands for."""

    field: str
    factor: float = 1.0
    """To SI units, where the number has no unit of its own."""
    inverse: bool = False
    """A rate whose inverse is the field: steps per second."""


SPELLINGS: tuple[tuple[Meaning, str], ...] = (
    (Meaning("seconds", MILLI), "elapsed time per iteration (ms); elapsed time per iteration; step_time_ms; ms"),
    (Meaning("seconds", MILLI), "elapsed_time_per_iteration_ms"),
    (Meaning("seconds"), "elapsed time per iteration (s); train_step_timing in s; train_step_timing; iter time (s)"),
    (
        Meaning("seconds"),
        "iter time; iter_time; step_time; step time; time; dt; seconds; seconds_s; step_avg; time/step",
    ),
    (Meaning("seconds"), "sec/step; iteration-time; time per step; time_per_step; time_per_iter; sec_per_step"),
    (Meaning("seconds"), "step_time_s; batch_time; time_metrics/end_to_end(s); time per iteration"),
    (Meaning("mean_s"), "train_speed(s/it)"),
    (Meaning("mean_s", inverse=True), "train_speed(iter/s)"),
    (
        Meaning("seconds", inverse=True),
        "throughput/batches_per_sec; batches_per_sec; throughput/device/bps; steps_per_second; ups",
    ),
    (Meaning("loss"), "lm loss; lm_loss; lm-loss; reduced_train_loss; loss; train loss; train_loss; training loss"),
    (Meaning("loss"), "loss/train/total; train/loss; train/crossentropyloss; train/ce loss; crossentropyloss"),
    (Meaning("loss"), "global_avg_loss; loss_metrics/global_avg_loss; language model loss"),
    (Meaning("flop_per_s", TERA), "throughput per gpu (tflop/s/gpu); compute per gpu (tflop/s/gpu); tflop/s/device"),
    (Meaning("flop_per_s", TERA), "tflops; tflops_per_gpu; model_tflops_per_gpu; tflops/gpu; tflop/s; tflop/s/gpu"),
    (Meaning("flop_per_s", TERA), "tflops per gpu; model tflops; throughput (tflop/s/gpu)"),
    (Meaning("flop_per_s"), "throughput/device/flops_per_sec"),
    (Meaning("mfu_fraction"), "mfu; throughput/device/mfu; model_flops_utilization"),
    (Meaning("mfu_fraction", 0.01), "mfu(%)"),
    (Meaning("memory_bytes", GIB), "memory; mem; gpu_mem; max_memory; memory(gib)"),
    (Meaning("memory_bytes", GIB), "memory/max_allocated (gib); memory/max_active (gib); vram_reserved"),
    (Meaning("memory_bytes", GIGA), "memory/peak_reserved_mem"),
    (Meaning("memory_bytes"), "peak_memory_usage; cuda_max_memory_reserved; max_memory_reserved"),
    (Meaning("gpu_tokens_per_s"), "tokens per gpu (tokens/s/gpu); tokens_per_sec_per_gpu; tgs; tokens/s/device"),
    (Meaning("gpu_tokens_per_s"), "tokens per gpu per second (tgs); tokens-per-second-per-gpu; tokens/s/gpu"),
    (
        Meaning("gpu_tokens_per_s"),
        "tokens/gpu/s; tokens per second per gpu; throughput/device/tokens_per_sec; throughput/device/tps",
    ),
    (Meaning("gpu_tokens_per_s"), "throughput/device/tokens_per_second; tokens/sec/gpu; tokens_per_gpu_per_sec"),
    (Meaning("gpu_tokens_per_s"), "tokens/train_per_sec_per_gpu; tokens/s/gpu inst/harmonic mean"),
    (Meaning("tokens_per_s"), "tok/s; tok/sec; tokens/s; tokens/sec; tokens_per_sec; tokens_per_second; wps; tps"),
    (Meaning("tokens_per_s"), "tokens per second; throughput/tokens_per_sec; tokens_global_per_sec"),
    (Meaning("samples_per_s"), "samples per second; samples/sec; samples/s; samples_per_second"),
    (Meaning("samples_per_s"), "throughput/samples_per_sec"),
    (Meaning("samples"), "global batch size; global_batch_size; batch_size"),
    (Meaning("tokens"), "tokens; tokens_this_step"),
    (Meaning("seq_length"), "actual seqlen"),
    (Meaning("consumed_samples"), "consumed samples; consumed_samples"),
    (
        Meaning("consumed_tokens"),
        "consumed tokens; consumed_tokens; total_tokens; num_input_tokens_seen; throughput/total tokens",
    ),
    (Meaning("grad_norm"), "grad norm; grad_norm; gnorm; norm"),
    (Meaning("learning_rate"), "learning rate; learning_rate; lr"),
    (Meaning("gpu_power_w"), "power per gpu (w/gpu)"),
)
"""Meaning: the names that programs give it, in lower case."""
NAMES = {name: meaning for meaning, names in SPELLINGS for name in names.split("; ")}
"""Name: its meaning. Of names with one meaning the first on a line counts, but see PREFERRED."""
PREFERRED = ("lm loss", "reduced_train_loss", "global_avg_loss", "train_step_timing in s")
"""Names that win over others of the same meaning (a progress bar shows a smoothed loss, too)."""


def find_pairs(text: str) -> Iterator[Pair]:
    """List the names of a line with their numbers."""
    for pattern in (PAIR, BARE):
        for found in pattern.finditer(text):
            value = to_number(found["value"])
            if value is not None:
                yield Pair(found["key"], value, found.groupdict().get("unit"))


def to_number(text: str) -> float | None:
    """Read ``1,024``, ``1.5E-04``, ``nan`` or Lightning's ``nan.0``."""
    try:
        return float(text.replace(",", "").removesuffix(".0") if "n" in text.lower() else text.replace(",", ""))
    except ValueError:
        return None


def to_fields(pairs: Iterable[Pair], names: Mapping[str, Meaning] = NAMES) -> dict[str, float]:
    """Return the fields that the pairs state, in SI units."""
    found: dict[str, float] = {}
    for key, value, unit in pairs:
        meaning, name = _meaning(key, names)
        if meaning is None or (meaning.field in found and name not in PREFERRED):
            continue
        factor = FACTORS[unit] if unit else meaning.factor
        if unit in PREFIXES and meaning.field != "memory_bytes":
            factor *= meaning.factor
        if meaning.inverse and not value:
            continue
        found[meaning.field] = 1 / value if meaning.inverse else value * factor
    return found


def _meaning(key: str, names: Mapping[str, Meaning]) -> tuple[Meaning | None, str]:
    """Look a name up; words before it on the line may have been taken for a part of it."""
    words = key.lower().split(" ")
    for start in range(len(words)):
        name = " ".join(words[start:])
        if name in names:
            return (None if start and words[start - 1] in OTHERS else names[name]), name
        if words[start] in OTHERS:
            break
    return None, key


OTHERS = ("val", "valid", "validation", "eval", "test", "remaining", "total", "data", "best", "last")
"""Words that make a name another one: a validation loss is not the loss of a step."""
