"""Which bandwidth the paper's nodes had: "100 Gb/s InfiniBand" of a node, or of each adapter?

The artifact holds no times, but bounds of them: hand-set limits of the axes of its figures, and a time limit of a job.
A bandwidth at which a run is predicted to exceed its bound by more than its error is unlikely.
Source: plot scripts and batch scripts of the artifact (dad5f27).
Ignores: that an axis may cut its bars off, and that bars are sums of kernel times, not steps.
"""

from collections.abc import Mapping
from math import exp
from typing import Any, NamedTuple

from charllm.reproduce.conditions import Setting
from charllm.reproduce.looks import Row, Rows, key_of
from charllm.reproduce.paper import H100, H200, Request, run_of, with_change
from charllm.reproduce.verdicts import Judged
from charllm.result.uncertainty import errors, step_scale

FACTORS = (1.0, 2.0, 4.0, 8.0)
"""Times 100 Gb/s a node; 8: one adapter of 100 Gb/s for each GPU."""
NOMINAL_GBIT_PER_S = 100


class Bound(NamedTuple):
    """The longest that a step can have taken."""

    name: str
    run: Request
    longest_s: float
    source: str


def bounds() -> list[Bound]:
    """Return every bound that the artifact gives of a run that depends on the network."""
    axis = "limit of the time axis of figure 10"
    small = with_change(run_of(H100, "gpt3-175b tp8-fsdp8 / base"), {"training": {"global_batch_size": 32}})
    return [
        *(Bound(f"mixtral-8x22b {name}", run_of(H200, f"mixtral-8x22b {name}"), 60.0, axis)
          for name in ("ep8-tp4 / base", "ep8-tp4 / act", "ep8-tp2-pp2 / base", "ep8-tp2-pp2 / act")),
        Bound("gpt3-175b tp8-fsdp4", run_of(H200, "gpt3-175b tp8-fsdp4 / base"), 1800.0, axis),
        Bound("gpt3-175b tp8-fsdp8, 32 sequences, 64 H100", small, 300.0, "three steps in a job of at most 15 minutes"),
    ]  # fmt: skip


def nic_runs() -> list[Request]:
    """Return every bounded run at every bandwidth."""
    return [Setting(nic=factor).apply(bound.run) for bound in bounds() for factor in FACTORS]


def infer_nic(rows: Rows) -> dict[str, Any]:
    """Return what each bound says of the bandwidth, and the range that all of them leave."""
    told = [_infer(bound, rows) for bound in bounds()]
    low, likely = (max((one[name] for one in told if one[name] is not None), default=FACTORS[0])
                   for name in ("least_factor", "likely_factor"))  # fmt: skip
    return {"bounds": told, "factors": [factor for factor in FACTORS if factor >= low],
            "low_gbit_per_s": NOMINAL_GBIT_PER_S * low, "likely_from_gbit_per_s": NOMINAL_GBIT_PER_S * likely,
            "high_gbit_per_s": NOMINAL_GBIT_PER_S * FACTORS[-1]}  # fmt: skip


def _infer(bound: Bound, rows: Rows) -> dict[str, Any]:
    found = {factor: rows.get(key_of(Setting(nic=factor).apply(bound.run)), {}) for factor in FACTORS}
    known = {factor: row for factor, row in found.items() if row.get("step_time_s")}
    likely = [factor for factor, row in known.items() if row["step_time_s"] <= bound.longest_s]
    possible = [factor for factor, row in known.items() if _shortest_s(row) <= bound.longest_s]
    return {"run": bound.name, "longest_s": bound.longest_s, "source": bound.source,
            "step_time_s": {f"{factor:g}": row["step_time_s"] for factor, row in known.items()},
            "least_factor": min(possible, default=None), "likely_factor": min(likely, default=None)}  # fmt: skip


def _shortest_s(row: Row) -> float:
    """Return the lower end of the interval of a step, by how much of it is exposed communication."""
    known = errors()["step_time"]
    shares = {**dict.fromkeys(known["spreads"], 0.0), "own": 1.0, "exposed": row["exposed_s"] / row["step_time_s"]}
    return float(row["step_time_s"] * exp(-max(0.0, known["high"]) * step_scale(shares, known["spreads"])))


def nic_words(judged: Judged, inferred: Mapping[str, Any] | None) -> str | None:
    """Say whether a verdict is the same at every bandwidth of the range; None without a condition map."""
    found = {cell.setting.nic: cell.verdict for cell in judged.mapped if cell.setting == Setting(nic=cell.setting.nic)}
    tried = {factor: found[factor] for factor in (inferred or {}).get("factors", ()) if factor in found}
    if len(tried) < 2:
        return None
    others = {factor: verdict for factor, verdict in tried.items() if verdict != judged.verdict.verdict}
    if not others:
        return f"the same at {', '.join(f'{NOMINAL_GBIT_PER_S * factor:g}' for factor in tried)} Gb/s a node"
    return "; ".join(f"{verdict} at {NOMINAL_GBIT_PER_S * factor:g} Gb/s a node" for factor, verdict in others.items())
