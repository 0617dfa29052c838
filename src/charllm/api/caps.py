"""Advise on power and clock caps from keywords."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from charllm.api.economics import build_economics
from charllm.api.keywords import RunKeywords, Spec, build_request
from charllm.api.signature import public_with
from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.plan.cap_table import tabulate_caps, tabulate_stage_caps
from charllm.plan.caps import KINDS, Judge, sweep_caps
from charllm.plan.settings import PER_STAGE, CapsKeywords, CapsSettings
from charllm.plan.stage_caps import advise_stages
from charllm.report.caps import render_caps, write_cap
from charllm.report.notebook import write_html
from charllm.result.result import to_frame
from charllm.spec.flags import take
from charllm.spec.request import Table
from charllm.tracking import Track, untracked

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, slots=True, repr=False)
class Caps:
    """A run against caps: points, and the knees among them."""

    table: Mapping[str, Any]

    @property
    def points(self) -> list[dict[str, Any]]:
        """A row per point, the highest cap first."""
        rows: list[dict[str, Any]] = self.table["points"]
        return rows

    @property
    def knees(self) -> dict[str, dict[str, Any]]:
        """Best point for each criterion, by name."""
        return {name: self.points[place] for name, place in self.table["knees"].items()}

    def to_json(self) -> str:
        """Return everything as JSON, as ``charllm caps --json`` prints it."""
        return json.dumps(self.table, indent=2, allow_nan=False)

    def to_frame(self) -> "DataFrame":
        """Return a row per point as a pandas DataFrame."""
        return to_frame(self.points)

    def __repr__(self) -> str:
        knee = f"{write_cap(self.table, self.knees['knee'])} {self.table['unit']}"
        return f"Caps({self.table['kind']} per {self.table['per']}; points: {len(self.points)}; knee: {knee})"

    def __str__(self) -> str:
        return render_caps(self.table)

    def _repr_html_(self) -> str:
        return write_html(lambda: str(self))


class Keywords(CapsKeywords, RunKeywords, total=False):
    """All words of a study of caps."""


@public_with(CapsSettings)
def caps(spec: Spec | None = None, **words: Unpack[Keywords]) -> Caps:
    """Simulate a run under power (default) or clock caps; mark the knee, most tokens per joule and least money.

    The knee is the cap with the lowest energy x time of a step: beyond it, saving 1 % of energy costs more than 1 % of
    time. `at` lists the caps to try, in W or MHz; by default they cover the GPU's range. With ``per="stage"`` each
    pipeline stage gets its own cap: stages that wait for others run slower without making the step longer. `tariff`
    holds prices and the PUE: ``{"electricity_per_kwh": 0.12, "gpu_per_hour": 0, "pue": 1.3}``.

    >>> import charllm
    >>> found = charllm.caps(model="llama3-8b", cluster="h200x8", tp=2, gbs=32, at=[700, 600, 300])
    >>> found.knees["knee"]["cap_w"], found.knees["least money"]["cap_w"]
    (600.0, 700.0)
    """
    run: dict[str, Any] = dict(words)
    settings = take(CapsSettings, run)
    return advise_caps(build_request(spec, run), settings)


def advise_caps(request: Table, settings: CapsSettings, track: Track = untracked) -> Caps:
    """Advise on caps of a request."""
    if settings.power and settings.clock:
        raise SpecError("--clock", "--power", "--power or --clock, not both")
    if settings.at and settings.per == PER_STAGE:
        raise SpecError("--at", list(settings.at), "no caps with --per stage, which finds them")
    judge = Judge(build_economics(settings.tariff), settings.ignore_memory)
    run, kind = resolve_run(request), KINDS["clock" if settings.clock else "power"]
    if settings.per == PER_STAGE:
        return Caps(tabulate_stage_caps(run, kind, advise_stages(run, kind, judge, track), judge.economics.tariff))
    caps_si = [kind.scale * cap for cap in settings.at]
    return Caps(tabulate_caps(run, kind, sweep_caps(run, kind, judge, caps_si, track), judge.economics.tariff))
