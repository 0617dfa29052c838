"""Decide where ranks sit, how layers are divided and how power limits are shifted."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, Unpack

from charllm.api.keywords import RunKeywords, Spec, as_file, build_request
from charllm.api.signature import public_with
from charllm.catalog.resolve import resolve_run
from charllm.errors import DoesNotFit
from charllm.plan.dephase import free_slack_s, spread_jobs, stagger_replicas
from charllm.plan.placement import Effort, Judged, judge_placements
from charllm.plan.placement_file import placement_table, write_placement
from charllm.plan.settings import PlaceKeywords, PlaceSettings
from charllm.report.placement import render_placement
from charllm.result.metrics import selected
from charllm.result.result import to_frame
from charllm.result.store import write_text
from charllm.simulate.predict import predict
from charllm.spec.flags import take
from charllm.spec.run import RunSpec

if TYPE_CHECKING:
    from pandas import DataFrame

SHOWN = selected(
    "tokens_per_s", "step_time_s", "temperature_spread_node_k", "temperature_swing_k", "margin_to_slowdown_k",
    "temperature_peak_c", "clock_std_fraction", "clock_mean_hz", "power_mean_w", "cluster_power_ramp_w_per_s",
    "cluster_power_swing_w", "fits", "memory_need_bytes", "memory_margin_fraction", "memory_fit_probability",
    "memory_rank",
)  # fmt: skip
"""Metrics of every placement in its row."""
SOLVED = ("promised_fraction", "gap_fraction", "bound_fraction")


@dataclass(frozen=True, slots=True, repr=False)
class Placement:
    """The run as it is, what each decision makes of it, and the best of them as a placement."""

    rows: list[dict[str, Any]]
    """A row for each decision: name, gain, metrics, gain promised by the solver, its gap and bound, and the layers."""
    best: str
    """Name of the fastest placement."""
    placement: dict[str, Any]
    """The fields that the fastest placement sets, as in a file for `--placement`."""
    dephasing: dict[str, Any] | None
    """Staggered replicas and jobs, with `dephase`."""

    def as_table(self) -> dict[str, Any]:
        """Return everything as a plain table."""
        return {"rows": self.rows, "best": self.best, "placement": self.placement, "dephasing": self.dephasing}

    def to_json(self) -> str:
        """Return everything as JSON, as ``charllm place --json`` prints it."""
        return json.dumps(self.as_table(), indent=2, allow_nan=False)

    def to_frame(self) -> "DataFrame":
        """Return a row per decision as a pandas DataFrame."""
        return to_frame(self.rows)

    def __repr__(self) -> str:
        return render_placement(self.as_table())


class Keywords(PlaceKeywords, RunKeywords, total=False):
    """All words of a placement."""


@public_with(PlaceSettings)
def place(spec: Spec | None = None, **words: Unpack[Keywords]) -> Placement:
    """Optimise ranks on slots, layers per stage and power limits within a node's budget; simulate each decision.

    The keywords of a run are the flags of ``charllm place``. `decide` lists the decisions to make: ranks, layers,
    caps. `node_budget` is the sum of a node's power limits in watts (default: the sum of the run's limits). `dephase`
    adds the effect of staggered replicas, and of several such jobs out of phase, on the oscillation of the cluster's
    power. `work` is the search effort for each decision, in deterministic seconds of the solver. `out` writes the
    fastest placement as a file that ``placement=FILE`` reads. A run that does not fit raises an error unless
    ``ignore_memory=True``.

    >>> import charllm
    >>> found = charllm.place(model="llama3-8b", cluster="h200x8", tp=2, pp=4, gbs=32, decide="ranks,layers")
    >>> found.rows[0]["name"], found.rows[0]["gain_fraction"]
    ('default', 0.0)
    >>> found.best in [row["name"] for row in found.rows], sum(found.placement["layers_per_stage"])
    (True, 32)
    """
    run: dict[str, Any] = dict(words)
    settings = take(PlaceSettings, run)
    return run_placement(build_request(spec, run), settings)


def run_placement(
    request: Mapping[str, Any],
    settings: PlaceSettings,
    watch: Callable[[Iterator[Judged]], Iterator[Judged]] = iter,
) -> Placement:
    """Decide on a request and write the file that was asked for; `watch` sees every placement as it is judged."""
    path = None if settings.out is None else as_file(settings.out, "--out")
    effort = Effort(most_work=settings.work)
    run = resolve_run(request)
    judged = []
    for one in watch(judge_placements(run, settings.decide, settings.node_budget_w, effort)):
        if not one.metrics["fits"] and not settings.ignore_memory:
            raise DoesNotFit("the run does not fit in memory: see `charllm simulate`, or --ignore-memory")
        judged.append(one)
    best = max(judged, key=lambda one: one.gain_fraction)
    if path is not None:
        write_text(write_placement(best.run), path)
    phases = _dephase(judged[0].run) if settings.dephase else None
    return Placement([_row(one) for one in judged], best.name, placement_table(best.run), phases)


def _row(one: Judged) -> dict[str, Any]:
    solved = {name: _known(getattr(one, name)) for name in SOLVED}
    metrics = {name: one.metrics[name] for name in SHOWN}
    layers = list(one.run.parallelism.layers_per_stage)
    return {"name": one.name, "gain_fraction": one.gain_fraction, **metrics, **solved, "layers_per_stage": layers,
            "note": one.note}  # fmt: skip


def _known(value: float | None) -> float | None:
    """Return a number, or None where the search ended before it had one."""
    return value if value is None or isfinite(value) else None


def _dephase(run: RunSpec) -> dict[str, Any]:
    found = predict(run, ignore_memory=True)
    return {
        "replicas": [one._asdict() for one in stagger_replicas(found)],
        "free_slack_s": free_slack_s(found),
        "jobs": [one._asdict() for one in spread_jobs(found)],
    }
