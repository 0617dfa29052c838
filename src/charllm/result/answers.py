"""The answers of a run in words, from its result alone: the same in a terminal, in a notebook and on a page.

An answer whose figures are not known is empty.
"""

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from charllm.result.columns import Row, absent_column, rows_of
from charllm.result.description import CONDITION, DEFAULT, JOB, PARALLELISM, describe_machine, texts_of
from charllm.result.differences import UNMEASURABLE
from charllm.result.metrics import METRICS, PHASE_METRICS, selected
from charllm.result.uncertainty import RISK, stored_grade, tell_usual, usual_factors
from charllm.units import GIB, MEGA, format_change, format_percent, seconds_format

if TYPE_CHECKING:
    from charllm.result.result import RunResult

ONLY_MEMORY = "only memory is predicted, because the run does not fit (see --ignore-memory)"
"""Warning of a run without a step time."""
LARGEST_SHARES, LARGEST_GAINS, MOST_NAMED = 3, 2, 3
NOT_STORED = "not stored in this run"
"""Text in place of a table that a run lacks."""
SLOWER_FRACTION, EQUAL_FRACTION = 0.01, 1e-4
"""A GPU whose clock is this fraction below the median of its stage and node is named as the slowest; clocks that differ
by less than the second fraction count as equal."""
PHRASES: dict[str, str] = {
    "mfu": "MFU {}",
    "power_mean_w": "{} per GPU",
    "power_peak_sensor_w": "peak {}, 25 ms average",
    "node_power_mean_w": "{} per node",
    "energy_per_step_j": "{} per step",
    "temperature_mean_c": "{} mean",
    "temperature_peak_c": "{} peak",
    "memory_temperature_peak_c": "{} peak",
}
"""Metric: the words beside its number, where an answer has no label of its own for it."""
selected(*PHRASES)
WITH_INTERVAL = selected(
    "step_time_s", "tokens_per_s", "power_mean_w", "power_peak_sensor_w", "temperature_mean_c", "temperature_peak_c",
    "memory_temperature_peak_c", "clock_mean_hz", "memory_need_bytes", "memory_peak_bytes",
)  # fmt: skip
"""Metrics whose interval is written beside them."""
BASES = selected("step_time_s", "power_mean_w", "memory_need_bytes")
"""Metrics of which is said what their interval rests on."""


def write_metric(result: "RunResult", name: str) -> str:
    """Write one metric with its unit, as a part of an answer; nothing where it is not known."""
    value = result.metrics.get(name)
    if value is None:
        return ""
    if name == "margin_to_slowdown_k":
        return f"{METRICS[name].write(abs(value))} {'below' if value >= 0 else 'above'} slowdown"
    return PHRASES.get(name, "{}").format(METRICS[name].write(value))


def write_interval(result: "RunResult", name: str) -> str:
    """Return ' (low to high)' of a metric where intervals were asked for and its own is known."""
    interval = result.provenance.get("uncertainty", {}).get(name) if name in WITH_INTERVAL else None
    return f" ({METRICS[name].bound(interval['low'])} to {METRICS[name].bound(interval['high'])})" if interval else ""


def answer_intervals(result: "RunResult") -> str:
    """What intervals of step time and power rest on, where they were asked for."""
    known = result.provenance.get("uncertainty") or {}
    rests = [f"{METRICS[name].title}: {known[name]['basis']}." for name in BASES if name in known]
    level = next((interval["level"] for interval in known.values()), 0.0)
    return f"{format_percent(level, 0)} level. {' '.join(rests)}" if rests else ""


def answer_lines(result: "RunResult") -> list[tuple[str, str]]:
    """Return the answers that are known, each with its label."""
    found = [(label, answer(result)) for label, answer in ANSWERS.items()]
    return [(label, text) for label, text in found if text]


def answer_time(result: "RunResult") -> str:
    """Step time, throughput, MFU."""
    if "time_to_first_token_s" in result.metrics:
        return ""
    return _metrics(result, "step_time_s", "tokens_per_s", "tokens_per_s_per_gpu", "mfu")


def answer_generation(result: "RunResult") -> str:
    """Time to first token and per token, throughput in new tokens, the whole batch."""
    first_s, each_s = (result.metrics.get(name) for name in ("time_to_first_token_s", "time_per_token_s"))
    if first_s is None:
        return ""
    write = PHASE_METRICS["time_per_token_s"].write
    each = f", {write(each_s)} per token" if each_s is not None else ""
    whole = METRICS["step_time_s"].write(result.metrics["step_time_s"])
    rates = _metrics(result, "tokens_per_s", "tokens_per_s_per_gpu", "mfu")
    return f"first token after {write(first_s)}{each}, all after {whole}; new tokens: {rates}"


def answer_usual(result: "RunResult") -> str:
    """How long the step takes where the run is not tuned, unless it is stated to be."""
    step_s = result.metrics.get("step_time_s")
    phased = result.table("phases") is not None
    if result.origin != "simulated" or step_s is None or "cluster" not in result.spec or phased:
        return ""
    grade = stored_grade(result.spec)
    ends = " to ".join(METRICS["step_time_s"].write(step_s * factor) for factor in usual_factors()[::2])
    stated = "" if grade == "usual" else "; framework.tuning=tuned or usual says which"
    return "" if grade == "tuned" else f"{ends}: {tell_usual()}{stated}"


def answer_in_brief(result: "RunResult") -> str:
    """The main figures of a measured run in one line."""
    step = _metrics(result, "step_time_s")
    others = _metrics(result, "power_mean_w", "temperature_peak_c", "tokens_per_j", "node_power_mean_w")
    return _join(f"{step} per step" if step else "", others)


def answer_shares(result: "RunResult") -> str:
    """The labels that take most of the step."""
    breakdown_s = result.metrics.get("breakdown_s") or {}
    total_s = sum(breakdown_s.values())
    largest = sorted(breakdown_s.items(), key=lambda pair: -pair[1])[:LARGEST_SHARES]
    return _join(
        *(f"{label.replace('_', ' ')} {format_percent(spent_s / total_s)}" for label, spent_s in largest if spent_s > 0)
    )


def answer_power(result: "RunResult") -> str:
    """Power of a GPU and of a node, energy of a step; that of a step only where steps are known."""
    per_step = ("energy_per_step_j", "tokens_per_j") if result.metrics.get("step_time_s") is not None else ()
    return _join(answer_gpu_power(result), _metrics(result, "node_power_mean_w", *per_step))


def answer_gpu_power(result: "RunResult") -> str:
    """Mean power of a GPU, and the highest of any."""
    if result.provenance.get("uncertainty"):
        return _metrics(result, "power_mean_w", "power_peak_sensor_w")
    mean, peak = write_metric(result, "power_mean_w"), write_metric(result, "power_peak_sensor_w")
    return f"{mean} ({peak})" if mean and peak else mean or peak


def answer_temperature(result: "RunResult") -> str:
    """Mean and peak temperature, how far the peak is from slowdown, and how warm memory becomes."""
    told = _metrics(result, "temperature_mean_c", "temperature_peak_c", "margin_to_slowdown_k")
    memory = _metrics(result, "memory_temperature_peak_c")
    found = _join(told, f"memory {memory}" if memory else "")
    return _join("a GPU turns itself off: the run ends", found) if result.metrics.get("shutdown") else found


def answer_shutdown(result: "RunResult") -> str:
    """Say that a GPU turns itself off, which ends the run; nothing of other runs."""
    start = "temperature: "
    told = [text for text in result.warnings if text.startswith(start)] if result.metrics.get("shutdown") else []
    return told[0].removeprefix(start) if told else ""


def answer_clock(result: "RunResult") -> str:
    """Mean clock, and for how long each cause has held it down."""
    metrics, gpu = result.metrics, gpu_table(result.spec)
    clock_hz = metrics.get("clock_mean_hz")
    if clock_hz is None:
        return answer_throttling(result)
    most_hz = gpu.get("clock_max_hz")
    clock = f"{clock_hz / MEGA:.0f}{write_interval(result, 'clock_mean_hz')}" + (
        f" of {most_hz / MEGA:.0f} MHz" if most_hz else " MHz"
    )
    return _join(clock, answer_throttling(result))


def answer_throttling(result: "RunResult") -> str:
    """For how long each cause has held the clock down, and what that cost; nothing where it was not read."""
    shares = result.metrics.get("throttled_time_fraction")
    if not shares or None in shares.values():
        return ""
    lost = result.metrics.get("clock_loss_fraction") or {}
    found = [
        f"{cause}-throttled {format_percent(share, 0)} of the time"
        + (f" (mean clock {format_percent(lost[cause], 0)} below maximum)" if lost.get(cause) else "")
        for cause, share in shares.items()
        if share > 0
    ]
    return _join(*found) or "not throttled"


def answer_memory(result: "RunResult") -> str:
    """Whether a run fits, what its worst rank needs, and what the device shows; of a measured run only the last."""
    metrics, has_bytes = result.metrics, memory_size_bytes(result.spec)
    name, verb, shown = "memory_peak_bytes", "", ""
    if metrics.get(name) is None:
        return ""
    if metrics.get("memory_need_bytes") is not None:
        shown, verb = f"device shows {metrics[name] / GIB:.1f} GiB", "needs "
        name = "memory_need_bytes"
        has_bytes = metrics[name] / (1 - metrics["memory_margin_fraction"])
    size = f"{verb}{metrics[name] / GIB:.1f}{write_interval(result, name)} "
    size += f"of {has_bytes / GIB:.1f} GiB" if has_bytes else "GiB"
    told, rank = f"{verdict(result)}: " if verdict(result) else "", metrics.get("memory_rank")
    if rank is None:
        return _join(f"{told}{size}", shown)
    stage = next((row.get("stage") for row in result.gpus if row.get("rank") == rank), None)
    return _join(f"{told}{size} on rank {rank}" + ("" if stage is None else f" (stage {stage})"), shown)


def verdict(result: "RunResult") -> str:
    """Say whether a run fits in memory; nothing for a measured one, which did."""
    fits, probability = result.metrics.get("fits"), result.metrics.get("memory_fit_probability")
    if not fits:
        return "" if fits is None else "does not fit"
    return "fits" if probability is None or probability >= 1 - RISK else "may not fit"


def answer_changes(result: "RunResult") -> str:
    """The single changes that gain most, of a run that was simulated and fits."""
    if result.origin != "simulated" or result.table("phases") is not None or result.metrics.get("step_time_s") is None:
        return ""
    changes = best_changes(result)
    if changes is None:
        return NOT_STORED
    gains = [f"{row['change']}, {write_gain(row)}" for row in changes]
    return "; ".join(gains[:LARGEST_GAINS]) or "no change that was tried is faster and fits in memory"


def best_changes(result: "RunResult") -> list[Row] | None:
    """Return the single changes that gain most; None where this run was stored without them, or by another version."""
    changes = result.table("best_changes")
    return None if changes is None or absent_column("best_changes", changes) else rows_of(changes)


def write_gain(row: Mapping[str, Any]) -> str:
    """Write a gain in tokens per second with its interval; one within its error is no measurable difference."""
    low, high = row.get("low_fraction"), row.get("high_fraction")
    if low is None or high is None:
        return f"{format_change(row['gain_fraction'])} tokens/s"
    ends = f"{format_change(row['gain_fraction'])} tokens/s ({100 * low:+.1f} to {format_change(high)})"
    return f"{ends}: {UNMEASURABLE}" if low <= 0 <= high else ends


def explanations(result: "RunResult") -> list[str]:
    """Sentences that explain figures which would surprise an expert."""
    return list((result.table("explanations") or {}).get("text", ()))


def answer_pace(result: "RunResult") -> str:
    """Stage and node with most time on the critical path, and the GPU there that is slower than the others."""
    parts, metrics = result.metrics.get("critical_path"), result.metrics
    if not parts or metrics.get("step_time_s") is None:
        return ""
    first, write = parts[0], seconds_format(metrics["step_time_s"])
    mates = path_gpus(result)
    slowest = min(mates, key=lambda row: row["clock_mean_hz"], default=None)
    lag = 1 - slowest["clock_mean_hz"] / median(row["clock_mean_hz"] for row in mates) if slowest else 0.0
    named = (
        f"; its slowest GPU is in slot {slowest['slot']} at {slowest['clock_mean_hz'] / MEGA:.0f} MHz, "
        f"{format_percent(lag)} below its neighbours"
        if slowest and lag > SLOWER_FRACTION
        else ""
    )
    waited_s = (metrics.get("breakdown_s") or {}).get("straggler_wait") or 0.0
    return (
        f"stage {first['stage']} on node {first['node']}, {write(first['seconds'])} s of the critical path{named}; "
        f"GPUs wait {write(waited_s)} s for slower ones"
    )


def answer_gaps(result: "RunResult") -> str:
    """How much of a measured run was not read, and what that leaves open of its mean power."""
    measurement = result.provenance.get("measurement") or {}
    gaps, interval = measurement.get("gaps") or {}, (measurement.get("intervals") or {}).get("power_mean_w")
    if not gaps.get("number"):
        return ""
    ends = [METRICS["power_mean_w"].write(end) for end in interval or [] if end is not None]
    return f"{tell_gaps(gaps)}" + (f"; power {ends[0]} to {ends[1]} per GPU" if len(ends) > 1 else "")


def tell_gaps(gaps: Mapping[str, float]) -> str:
    """Say how much of a command its readings leave out."""
    number = f"{gaps['number']} gap{'s' if gaps['number'] > 1 else ''} between readings"
    share = format_percent(gaps["unread_fraction"])
    longest = f", at most {gaps['longest_s']:.2f} s at once" if gaps["number"] > 1 else ""
    return f"{number}: {gaps['unread_s']:.2f} s of {gaps['command_s']:.1f} s ({share}){longest}"


ANSWERS: dict[str, Callable[["RunResult"], str]] = {
    "Step time": answer_time,
    "Generation": answer_generation,
    "If not tuned": answer_usual,
    "Breakdown": answer_shares,
    "Power": answer_power,
    "Temperature": answer_temperature,
    "Clock": answer_clock,
    "Memory": answer_memory,
    "Bottleneck": answer_pace,
    "Intervals": answer_intervals,
    "Gaps": answer_gaps,
}
"""Label: what answers it."""


def path_gpus(result: "RunResult") -> list[Mapping[str, Any]]:
    """Return the GPUs of the stage and node that the step waits for; none where that is not known."""
    parts = result.metrics.get("critical_path")
    at = (parts[0]["stage"], parts[0]["node"]) if parts else None
    return [row for row in result.gpus if (row.get("stage"), row.get("node")) == at and row.get("clock_mean_hz")]


def pacing_gpus(result: "RunResult") -> list[Mapping[str, Any]]:
    """Return those of them that are slower than the others; none where all are equally fast."""
    mates = path_gpus(result)
    most_hz = (1 + EQUAL_FRACTION) * min((row["clock_mean_hz"] for row in mates), default=0.0)
    slow = [row for row in mates if row["clock_mean_hz"] <= most_hz]
    return slow if len(slow) < len(mates) else []


def describe_run(result: "RunResult") -> list[str]:
    """Say what was run, a line for each subject: of a simulation its conditions and the defaults taken, too."""
    told = result.table("description")
    if told is None or result.origin != "simulated":
        return [f"{result.origin} run: {describe_spec(result.spec)}"]
    lines = [*texts_of(told, JOB), *texts_of(told, PARALLELISM), f"conditions: {'; '.join(texts_of(told, CONDITION))}"]
    taken = texts_of(told, DEFAULT)
    profile = result.spec.get("framework", {}).get("name", "unknown")
    named = f"defaults taken from profile {profile}: {'; '.join(taken)}"
    return [*lines, named] if taken else lines


def name_some(names: Sequence[str]) -> str:
    """Name metrics as in a sentence: the first few, and how many more."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(METRICS[name].brief for name in names[:MOST_NAMED]) + more


def notable_warnings(result: "RunResult") -> list[str]:
    """Return the warnings that say more than that a metric is not known."""
    return [warning for warning in result.warnings if warning.split(":")[0] not in METRICS]


def describe_spec(spec: Mapping[str, Any]) -> str:
    """Name model, cluster, degrees and batch of a run, or the command or files that it comes from."""
    try:
        training, cluster = spec["training"], spec["cluster"]
        return (
            f"{spec['model']['name']} on {cluster['name']} ({describe_machine(cluster)}), "
            f"{spec['framework']['name']}, {training['precision']}; {describe_degrees(spec)}; "
            f"batch {training['global_batch_size']}, microbatch {training['micro_batch_size']} x "
            f"{training['seq_length']} tokens"
        )
    except (KeyError, TypeError):
        # The spec of a measured run is whatever its job left behind.
        command, files = spec.get("command"), spec.get("converted")
        if isinstance(files, list):
            return f"converted from {', '.join(map(str, files))}"
        return " ".join(map(str, command)) if isinstance(command, list) else UNKNOWN_SPEC


def describe_degrees(spec: Mapping[str, Any]) -> str:
    """Write the degrees of parallelism that are more than 1."""
    degrees = spec["parallelism"]
    return " x ".join(f"{axis} {degrees[axis]}" for axis in AXES if degrees[axis] > 1) or "one rank"


UNKNOWN_SPEC = "spec not known"
AXES = ("tp", "cp", "pp", "dp", "ep")
"""Degrees in the order in which they are written."""


def gpu_table(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a spec says of its usual GPU; nothing where it says nothing."""
    try:
        gpu = spec["cluster"]["node"]["gpu"]
    except (KeyError, TypeError):
        return {}
    return gpu if isinstance(gpu, Mapping) else {}


def memory_size_bytes(spec: Mapping[str, Any]) -> float | None:
    """Return the memory of the smallest GPU of a cluster, which every rank must fit."""
    try:
        others = [other["node"]["gpu"]["memory_bytes"] for other in spec["cluster"].get("mixed", ())]
        return float(min([gpu_table(spec)["memory_bytes"], *others]))
    except (KeyError, TypeError, AttributeError):
        return None


def _metrics(result: "RunResult", *names: str) -> str:
    return _join(*(f"{text}{write_interval(result, name)}" for name in names if (text := write_metric(result, name))))


def _join(*parts: str) -> str:
    return ", ".join(part for part in parts if part)
