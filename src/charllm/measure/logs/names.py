"""Names and numbers of log lines: ``lm loss: 2.1E+00``, ``time 561.94ms``, ``tps=1,024`` become fields of a step."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from charllm.units import GIB, GIGA, KIB, KILO, MEGA, MIB, MILLI, TERA, TIB

NUMBER = r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?|[-+]?\.\d+|[-+]?(?:nan|inf)(?:inity)?(?:\.0)?\b"
UNIT = r"(?:ms|us|sec|s|min|[KMGT]i?B|[KMBGT]|%)(?![A-Za-z0-9])"
PAIR = re.compile(
    rf"""(?P<key>[A-Za-z_][\w./-]*(?:[ ](?:[A-Za-z_][\w./-]*|\([^()|:=]{{1,40}}\)))*)["']?
    (?:\s*[:=]\s*["']?|\s+)
    (?P<value>{NUMBER})\s?(?P<unit>{UNIT})?""",
    re.VERBOSE,
)
BARE = re.compile(rf"(?:^|[|,])\s*(?P<value>{NUMBER})\s*(?P<key>ms|tok/s|tokens/s|samples/s)(?=\s*(?:[|,]|$))")
"""A number whose unit alone says what it is."""
FACTORS = {
    "ms": MILLI, "us": 1e-6, "s": 1.0, "sec": 1.0, "min": 60.0, "%": 0.01, "K": KILO, "M": MEGA, "B": GIGA, "G": GIGA, "T": TERA,
    "KB": KILO, "MB": MEGA, "GB": GIGA, "TB": TERA, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB,
}  # fmt: skip


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


SECONDS, MILLISECONDS = Meaning("seconds"), Meaning("seconds", MILLI)
FLOPS = Meaning("flop_per_s", TERA)
NAMES: dict[str, Meaning] = {
    "elapsed time per iteration (ms)": MILLISECONDS, "elapsed_time_per_iteration_ms": MILLISECONDS,
    "elapsed time per iteration (s)": SECONDS, "elapsed time per iteration": MILLISECONDS,
    "train_step_timing in s": SECONDS, "train_step_timing": SECONDS, "iter time (s)": SECONDS, "iter time": SECONDS,
    "iter_time": SECONDS, "step_time": SECONDS, "step time": SECONDS, "time": SECONDS, "dt": SECONDS, "seconds": SECONDS,
    "seconds_s": SECONDS, "step_avg": SECONDS, "time/step": SECONDS, "sec/step": SECONDS, "iteration-time": SECONDS,
    "time per step": SECONDS, "time_per_step": SECONDS, "time_per_iter": SECONDS, "sec_per_step": SECONDS,
    "step_time_s": SECONDS, "step_time_ms": MILLISECONDS, "ms": MILLISECONDS, "batch_time": SECONDS,
    "time_metrics/end_to_end": SECONDS, "time_metrics/end_to_end(s)": SECONDS,
    "batches_per_sec": Meaning("seconds", 1.0, True), "steps_per_second": Meaning("seconds", 1.0, True),
    "ups": Meaning("seconds", 1.0, True),
    "lm loss": Meaning("loss"), "lm_loss": Meaning("loss"), "reduced_train_loss": Meaning("loss"), "loss": Meaning("loss"),
    "train loss": Meaning("loss"), "train_loss": Meaning("loss"), "training loss": Meaning("loss"),
    "loss/train/total": Meaning("loss"), "train/loss": Meaning("loss"), "train/crossentropyloss": Meaning("loss"),
    "train/ce loss": Meaning("loss"), "crossentropyloss": Meaning("loss"), "lm-loss": Meaning("loss"),
    "global_avg_loss": Meaning("loss"), "loss_metrics/global_avg_loss": Meaning("loss"), "language model loss": Meaning("loss"),
    "throughput per gpu (tflop/s/gpu)": FLOPS, "compute per gpu (tflop/s/gpu)": FLOPS, "tflop/s/device": FLOPS,
    "tflops": FLOPS, "tflops_per_gpu": FLOPS, "model_tflops_per_gpu": FLOPS, "tflops/gpu": FLOPS, "tflop/s": FLOPS,
    "model tflops": FLOPS, "tflop/s/gpu": FLOPS, "tflops per gpu": FLOPS, "flops": FLOPS, "throughput(tflops)": FLOPS,
    "throughput (tflop/s/gpu)": FLOPS, "throughput(tflops/gpu)": FLOPS,
    "throughput/device/flops_per_sec": Meaning("flop_per_s"),
    "mfu": Meaning("mfu_fraction"), "mfu(%)": Meaning("mfu_fraction", 0.01), "throughput/device/mfu": Meaning("mfu_fraction"),
    "model_flops_utilization": Meaning("mfu_fraction"),
    "memory": Meaning("memory_bytes", GIB), "mem": Meaning("memory_bytes", GIB), "gpu_mem": Meaning("memory_bytes", GIB),
    "peak_memory_usage": Meaning("memory_bytes"), "memory/peak_reserved_mem": Meaning("memory_bytes", GIGA),
    "cuda_max_memory_reserved": Meaning("memory_bytes"), "max_memory": Meaning("memory_bytes", GIB),
    "tokens per gpu (tokens/s/gpu)": Meaning("gpu_tokens_per_s"), "tokens_per_sec_per_gpu": Meaning("gpu_tokens_per_s"),
    "tokens per gpu per second (tgs)": Meaning("gpu_tokens_per_s"), "tgs": Meaning("gpu_tokens_per_s"),
    "tokens-per-second-per-gpu": Meaning("gpu_tokens_per_s"), "tokens/s/device": Meaning("gpu_tokens_per_s"),
    "tokens/s/gpu": Meaning("gpu_tokens_per_s"), "tokens/gpu/s": Meaning("gpu_tokens_per_s"),
    "tokens per second per gpu": Meaning("gpu_tokens_per_s"), "throughput/device/tokens_per_sec": Meaning("gpu_tokens_per_s"),
    "throughput/device/tokens_per_second": Meaning("gpu_tokens_per_s"), "tokens/sec/gpu": Meaning("gpu_tokens_per_s"),
    "tokens_per_gpu_per_second": Meaning("gpu_tokens_per_s"),
    "tok/s": Meaning("tokens_per_s"), "tok/sec": Meaning("tokens_per_s"), "tokens/s": Meaning("tokens_per_s"),
    "tokens/sec": Meaning("tokens_per_s"), "tokens_per_sec": Meaning("tokens_per_s"), "tokens_per_second": Meaning("tokens_per_s"),
    "tokens per second": Meaning("tokens_per_s"), "throughput/tokens_per_sec": Meaning("tokens_per_s"), "wps": Meaning("tokens_per_s"),
    "tps": Meaning("tokens_per_s"),
    "samples per second": Meaning("samples_per_s"), "samples/sec": Meaning("samples_per_s"), "samples/s": Meaning("samples_per_s"),
    "throughput/samples_per_sec": Meaning("samples_per_s"), "samples_per_second": Meaning("samples_per_s"),
    "throughput/batches_per_sec": Meaning("seconds", 1.0, True),
    "global batch size": Meaning("samples"), "global_batch_size": Meaning("samples"), "batch_size": Meaning("samples"),
    "tokens": Meaning("tokens"), "actual seqlen": Meaning("seq_length"),
    "consumed samples": Meaning("consumed_samples"), "consumed_samples": Meaning("consumed_samples"),
    "consumed tokens": Meaning("consumed_tokens"), "consumed_tokens": Meaning("consumed_tokens"),
    "grad norm": Meaning("grad_norm"), "grad_norm": Meaning("grad_norm"), "gnorm": Meaning("grad_norm"), "norm": Meaning("grad_norm"),
    "learning rate": Meaning("learning_rate"), "learning_rate": Meaning("learning_rate"), "lr": Meaning("learning_rate"),
    "power per gpu (w/gpu)": Meaning("gpu_power_w"),
}  # fmt: skip
"""Name in lower case: what it stands for. Of names with one meaning the first on a line counts, but see PREFERRED."""
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
