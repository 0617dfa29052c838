"""Write a GPU's calibrated constants as a file that any command takes instead of a GPU's name."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from charllm.calibrate.least_squares import Found
from charllm.errors import CharllmError, SpecError
from charllm.result.store import write_text
from charllm.units import format_percent

WRITTEN_UNITS = {"_per_hz": ("_per_ghz", 9), "_j": ("_pj", 12), "_s": ("_us", 6)}
"""SI suffix of a field: the suffix it is written with, and by which power of ten that is larger in number."""
KEPT_IN_SECONDS = ("die_time_s", "base_time_s", "sink_time_s")


def written(field: str, value: float, error_fraction: float) -> tuple[str, str]:
    """Return a field in the unit people read, with two digits more than are known."""
    for suffix, (shown, power) in WRITTEN_UNITS.items():
        if field.endswith(suffix) and field not in KEPT_IN_SECONDS:
            return field.removesuffix(suffix) + shown, _rounded(value * 10.0**power, error_fraction)
    return field, _rounded(value, error_fraction)


def _rounded(value: float, error_fraction: float) -> str:
    digits = 2 + max(0, math.ceil(-math.log10(max(error_fraction, 1e-6))))
    text = f"{value:.{min(6, digits)}g}"
    return text if "e" not in text else repr(float(text))


def as_toml(base: str, name: str, parts: Mapping[str, Sequence[Found]], source: str, comments: Sequence[str]) -> str:
    """Return a GPU's file: what was found, over the GPU that calibration started from."""
    lines = [f"# {line}" for line in comments]
    lines += [
        f'name = "{_escaped(name)}"',
        f'base = "{_escaped(base)}"',
        "",
        "[sources]",
        f'run = "measured: {_escaped(source)}"',
    ]
    for part, found in parts.items():
        if found:
            lines += ["", f"[{part}]", *_figures(found)]
    return "\n".join(lines) + "\n"


def cluster_toml(
    base: str,
    name: str,
    under: Mapping[str, Mapping[str, Any]],
    parts: Mapping[str, Sequence[Found]],
    source: str,
    comments: Sequence[str],
) -> str:
    """Return a cluster's file: the constants found of its node and fabric, over what each of them was before."""
    lines = [f"# {line}" for line in comments]
    lines += [f'name = "{_escaped(name)}"', f'base = "{_escaped(base)}"']
    lines += ["", "[sources]", f'run = "measured: {_escaped(source)}"']
    for part, found in parts.items():
        if found:
            new = {each.name.partition(".")[2] for each in found}
            kept = [f"{key} = {json.dumps(value)}" for key, value in under[part].items() if key not in new]
            lines += ["", f"[{part}]", *kept, *_figures(found)]
    return "\n".join(lines) + "\n"


def _figures(found: Sequence[Found]) -> Iterator[str]:
    for each in found:
        key, value = written(each.name.partition(".")[2], each.value, each.error_fraction)
        yield f'{key} = [{value}, "run"]  # +- {format_percent(each.error_fraction)}'


def write_file(path: str, text: str) -> None:
    """Put a file in place at once: it is whole, or it is what was there before."""
    target = Path(path)
    if target.is_dir() or not target.parent.is_dir():
        raise SpecError("-o", path, "a file in a folder that exists")
    try:
        write_text(text, target)
    except OSError as error:
        raise CharllmError(f"cannot write {path}: {error.strerror or error}") from None


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
