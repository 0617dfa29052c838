"""Where does the energy go? Energy per token by stage: its GPUs, and its share of what the nodes draw beside them."""

from collections.abc import Mapping, Sequence
from typing import Any

from charllm.report.figure import Column, Figure
from charllm.report.page.bars import bar_options
from charllm.report.page.view import RunView, missing
from charllm.report.tables import shown_ends
from charllm.units import MILLI, format_percent, format_si

NAME, KIND, QUESTION = "energy", "stacked-bars", "Where does the energy go?"
GPUS, NODE = "gpus", "node"
WORDS = {GPUS: "GPUs", NODE: "CPUs, NICs, fans and boards of the nodes"}
ALL = "all GPUs"


def energy_figure(run: RunView) -> Figure:
    """Return joules per token, by stage and by what draws them."""
    metrics = run.result.metrics
    rate = metrics.get("tokens_per_s")
    rows = [row for row in run.result.gpus if row.get("power_mean_w") is not None]
    if not rate or not rows or len(rows) < len(run.result.gpus):
        return missing(NAME, KIND, QUESTION, run.why_not("tokens_per_j"))
    beside_w = _beside_w(run)
    bars = {bar: _parts(own, rate, beside_w) for bar, own in _groups(run, rows).items()}
    order = [GPUS, NODE] if beside_w is not None else [GPUS]
    unit, scale = ("mJ", MILLI) if sum(bars[ALL].values()) < 1 else ("J", 1.0)
    cells = [(bar, part, parts[part] / scale) for bar, parts in bars.items() for part in order]
    columns = {
        "bar": Column("GPUs of", [bar for bar, _part, _joules in cells]),
        "part": Column("drawn by", [part for _bar, part, _joules in cells]),
        "joules": Column("energy per token", [joules for _bar, _part, joules in cells], unit, 3),
    }
    options = bar_options({part: WORDS[part] for part in order}, "joules", unit, "series", mean_bar=ALL)
    return Figure(NAME, KIND, QUESTION, _message(run, bars, rows, beside_w), columns, options, run.conditions)


def _groups(run: RunView, rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the GPUs of each stage, or of each node where no stages are known; then all of them."""
    column = "stage" if all(row.get("stage") is not None for row in rows) else "node"
    keys = sorted({row[column] for row in rows})
    found = {
        f"{column} {run.node_name(key) if column == 'node' else key}": [row for row in rows if row[column] == key]
        for key in shown_ends(keys)[0]
    }
    return {**(found if len(keys) > 1 else {}), ALL: list(rows)}


def _beside_w(run: RunView) -> float | None:
    """Return what the nodes draw beside their GPUs, for each GPU; None where it was not read."""
    nodes = run.result.nodes
    if not nodes or any(row.get("power_mean_w") is None or row.get("gpu_power_mean_w") is None for row in nodes):
        return None
    total_w = sum(row["power_mean_w"] - row["gpu_power_mean_w"] for row in nodes)
    return float(total_w / len(run.result.gpus))


def _parts(rows: Sequence[Mapping[str, Any]], tokens_per_s: float, beside_w: float | None) -> dict[str, float]:
    found = {GPUS: sum(row["power_mean_w"] for row in rows) / tokens_per_s}
    return found if beside_w is None else {**found, NODE: len(rows) * beside_w / tokens_per_s}


def _message(
    run: RunView, bars: Mapping[str, Mapping[str, float]], rows: Sequence[Mapping[str, Any]], beside_w: float | None
) -> str:
    """Say the energy of a token, its largest part, and how far stages differ."""
    metrics, total = run.result.metrics, bars[ALL]
    text = f"A token takes {_joules(sum(total.values()))}"
    if beside_w is not None:
        text += f": {format_percent(total[GPUS] / sum(total.values()))} in GPUs, the rest beside them in the nodes"
    if metrics.get("energy_per_step_j") is not None:
        together = f"all {len(rows)} GPUs together take" if len(rows) > 1 else "the GPU takes"
        text += f"; {together} {format_si(metrics['energy_per_step_j'], 'J')} a step"
    stages = {bar: parts[GPUS] for bar, parts in bars.items() if bar != ALL}
    if len(set(map(_joules, stages.values()))) > 1:
        most, least = max(stages, key=stages.__getitem__), min(stages, key=stages.__getitem__)
        text += f". Most: {most} with {_joules(stages[most])}, least: {least} with {_joules(stages[least])}"
    return f"{text}."


def _joules(joules: float) -> str:
    return f"{joules:.3g} J" if joules >= 1 else f"{joules / MILLI:.3g} mJ"
