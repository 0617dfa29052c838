"""A result in a few lines: configuration, step time, power, temperature, memory, throttling and the pacing stage."""

from collections.abc import Mapping
from html import escape
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from charllm.result.metrics import METRICS
from charllm.units import GIB, MEGA, format_si

if TYPE_CHECKING:
    from charllm.result.result import RunResult

LONGEST = 300
Line = tuple[str, str]
"""Label and text."""


def brief_lines(result: "RunResult") -> list[Line]:
    """Return what a reader wants to know first; a line whose numbers are not known is left out."""
    spec, metrics = result.spec, result.metrics
    lines = [
        ("run", _describe_run(spec)),
        ("step time", _describe_time(metrics)),
        ("power", _describe_power(metrics)),
        ("temperature", _describe_temperature(metrics)),
        ("memory", _describe_memory(metrics, spec)),
        ("throttling", _describe_throttling(metrics)),
        ("pacing", _describe_pacing(metrics)),
    ]
    telling = [warning for warning in result.warnings if warning.split(":")[0] not in METRICS]
    lines += [("warning", warning) for warning in telling]
    unknown = len(result.warnings) - len(telling)
    lines += [("not known", f"{unknown} metrics; `warnings` has the reason of each")] if unknown else []
    return [(label, shorten(text, LONGEST, placeholder=" ...")) for label, text in lines if text]


def write_text(result: "RunResult") -> str:
    """Write the lines for a terminal."""
    lines = brief_lines(result)
    width = max((len(label) for label, _text in lines), default=0)
    return "\n".join([f"{result.origin} run", *(f"  {label.ljust(width)}  {text}" for label, text in lines)])


def write_html(result: "RunResult") -> str:
    """Write the lines for a notebook."""
    cells = "".join(
        f'<tr><th style="text-align:left">{escape(label)}</th><td style="text-align:left">{escape(text)}</td></tr>'
        for label, text in brief_lines(result)
    )
    return f"<table><caption>charllm: {escape(result.origin)} run</caption>{cells}</table>"


def _describe_run(spec: Mapping[str, Any]) -> str:
    """Name model, cluster and degrees, or the command that was measured."""
    try:
        degrees, training, cluster = spec["parallelism"], spec["training"], spec["cluster"]
        gpus = cluster["nodes"] * cluster["node"]["gpus"]
        axes = [axis for axis in ("tp", "cp", "pp", "dp", "ep") if axis in ("tp", "pp", "dp") or degrees[axis] > 1]
        cut = " x ".join(f"{axis} {degrees[axis]}" for axis in axes)
        return (
            f"{spec['model']['name']} on {cluster['name']} ({gpus} x {cluster['node']['gpu']['name']}), "
            f"{spec['framework']['name']}, {training['precision']}; {cut}; batch {training['global_batch_size']}, "
            f"microbatch {training['micro_batch_size']} x {training['seq_length']} tokens"
        )
    except (KeyError, TypeError):
        # The spec of a measured run is whatever its job left behind.
        command = spec.get("command")
        return " ".join(map(str, command)) if isinstance(command, list) else ""


def _describe_time(metrics: Mapping[str, Any]) -> str:
    return _join(
        _known(metrics, "step_time_s", lambda seconds: f"{seconds:.4g} s"),
        _known(metrics, "tokens_per_s", lambda tokens: f"{tokens:,.0f} tokens/s"),
        _known(metrics, "mfu", lambda fraction: f"MFU {100 * fraction:.1f} %"),
    )


def _describe_power(metrics: Mapping[str, Any]) -> str:
    return _join(
        _known(metrics, "power_mean_w", lambda watts: f"{watts:.0f} W per GPU"),
        _known(metrics, "power_peak_sensor_w", lambda watts: f"peak {watts:.0f} W (25 ms average)"),
        _known(metrics, "energy_per_step_j", lambda joules: f"{format_si(joules, 'J')} per step"),
        _known(metrics, "tokens_per_j", lambda tokens: f"{tokens:.3g} tokens per joule"),
    )


def _describe_temperature(metrics: Mapping[str, Any]) -> str:
    return _join(
        _known(metrics, "temperature_mean_c", lambda degrees: f"{degrees:.1f} C mean"),
        _known(metrics, "temperature_peak_c", lambda degrees: f"{degrees:.1f} C peak"),
        _known(metrics, "margin_to_slowdown_k", lambda kelvin: f"{kelvin:.1f} K below slowdown"),
    )


def _describe_memory(metrics: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    needed = _known(metrics, "memory_peak_bytes", lambda size: f"{size / GIB:.1f} GiB")
    try:
        size_bytes = spec["cluster"]["node"]["gpu"]["memory_bytes"]
        needed = f"{needed} of {size_bytes / GIB:.1f} GiB" if needed else ""
    except (KeyError, TypeError):
        pass
    rank = _known(metrics, "memory_rank", lambda rank: f"rank {rank}")
    return _join(needed, rank, "does not fit" if metrics.get("fits") is False else "")


def _describe_throttling(metrics: Mapping[str, Any]) -> str:
    """Tell for how long each cause held the clock down, and the mean clock that was left."""
    shares = metrics.get("throttled_time_fraction") or {}
    causes = [f"{cause} {100 * share:.0f} % of the time" for cause, share in shares.items() if share]
    clock = _known(metrics, "clock_mean_hz", lambda hertz: f"mean clock {hertz / MEGA:.0f} MHz")
    return _join(*(causes or (["none"] if shares else [])), clock)


def _describe_pacing(metrics: Mapping[str, Any]) -> str:
    """Name the stage and node that the step waits for longest."""
    path = metrics.get("critical_path")
    if not path:
        return ""
    first, total_s = path[0], sum(part["seconds"] for part in path)
    share = f"{first['seconds']:.4g} of {total_s:.4g} s"
    return f"stage {first['stage']} on node {first['node']}: {share} of the critical path"


def _known(metrics: Mapping[str, Any], name: str, write: Any) -> str:
    value = metrics.get(name)
    return "" if value is None else str(write(value))


def _join(*parts: str) -> str:
    return ", ".join(part for part in parts if part)
