"""The cases of a study as its page reads them: grouped by model, ranked by throughput."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from charllm.report.figure import Column
from charllm.report.page.view import RunView
from charllm.report.study import VERDICTS
from charllm.result.metrics import numbers_of, quantity, selected, with_derived

DIGITS = 3
"""Digits of a metric that matter."""
MOST_ROWS = 60
"""Cases that a figure with a row for each has room for."""
RANKS = selected("tokens_per_s_per_gpu", "tokens_per_s", "step_time_s")
"""What cases are ranked by: the first that is known of any; the last one is better when lower."""
WHOLE = "all cases"


@dataclass(frozen=True, slots=True)
class StudiedCase:
    """One case of a study, simulated or measured."""

    name: str
    exit_code: int
    """A key of `report.study.VERDICTS`."""
    message: str
    """Why it was rejected, or its warnings."""
    values: Mapping[str, Any]
    """What the study varies, then every metric in one level."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What was asked for, by dotted field."""
    command: str = ""
    """What a user types to run this case alone."""
    origin: str = "simulated"
    is_prediction: bool = False
    """Whether it was simulated for the page, beside a measured case of the same name."""
    warnings: Sequence[str] = ()
    number: int = 0
    """Its place in the study."""
    machine: Mapping[str, Any] = field(default_factory=dict)
    """Limits of the hardware it runs on, as of `machine_of`."""
    open_view: Callable[[], RunView | None] = lambda: None
    """Reads its stored result; None where there is none."""
    group: str = WHOLE
    label: str = ""
    """Its name inside its group."""

    @property
    def ran(self) -> bool:
        """Whether it has a step time, or at least metrics to compare."""
        return self.exit_code == 0 and any(self.values.get(name) is not None for name in RANKS)

    @property
    def verdict(self) -> str:
        """Why it has no metrics: 'does not fit', 'invalid', 'failed'; empty where it has."""
        return VERDICTS.get(self.exit_code, "invalid")

    @property
    def tokens_per_step(self) -> float | None:
        """Tokens of one step."""
        rate, seconds = self.values.get("tokens_per_s"), self.values.get("step_time_s")
        return rate * seconds if rate and seconds else None

    @property
    def gpus(self) -> float | None:
        """GPUs it runs on."""
        rate, each = self.values.get("tokens_per_s"), self.values.get("tokens_per_s_per_gpu")
        return rate / each if rate and each else None


def case_of_run(name: str, view: RunView, intervals: Mapping[str, tuple[float, float]] | None = None) -> StudiedCase:
    """Return a single run as a case, so that runs are compared by the same figures as the cases of a study."""
    result = view.result
    flat: dict[str, Any] = {**numbers_of(result.metrics), "fits": result.metrics.get("fits")}
    flat |= {f"{metric}.interval": bounds for metric, bounds in (intervals or {}).items()}
    return StudiedCase(
        name=name,
        exit_code=0 if result.metrics.get("fits") is not False or flat.get("step_time_s") is not None else 3,
        message="; ".join(view.warnings),
        warnings=view.warnings,
        values=with_derived(flat),
        origin=result.origin,
        machine=machine_of(result.spec),
        open_view=lambda: view,
        label=name,
    )


def machine_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limits and conditions of a run that its page draws as lines; what a spec does not say is left out."""
    places = {
        "cluster": "cluster.name",
        "gpu": "cluster.node.gpu.name",
        "memory_bytes": "cluster.node.gpu.memory_bytes",
        "power_cap_w": "cluster.node.gpu.power_cap_w",
        "slowdown_c": "cluster.node.gpu.slowdown_temperature_c",
        "inlet_c": "cluster.cooling.inlet_c",
        "gpus_per_node": "cluster.node.gpus",
        "link_bytes_per_s": "cluster.node.link_bandwidth_bytes_per_s",
        "nic_bytes_per_s": "cluster.fabric.nic_bandwidth_bytes_per_s",
        "nics_per_node": "cluster.fabric.nics_per_node",
        "framework": "framework.name",
        "precision": "training.precision",
    }
    found = {name: _at(spec, place) for name, place in places.items()}
    asked_w = _at(spec, "conditions.power_cap_w")
    found["power_cap_w"] = found["power_cap_w"] if asked_w is None else asked_w
    kinds = {name: str if name in ("cluster", "gpu", "framework", "precision") else (int, float) for name in places}
    return {name: value for name, value in found.items() if isinstance(value, kinds[name])}


def _at(table: Any, place: str) -> Any:
    for key in place.split("."):
        table = table.get(key) if isinstance(table, Mapping) else None
    return table


def in_common(cases: Iterable[StudiedCase], name: str) -> Any:
    """Return what the machines of all cases have in common; None where they differ or do not say."""
    found = {case.machine[name] for case in cases if name in case.machine}
    return found.pop() if len(found) == 1 else None


def conditions_of(cases: Sequence[StudiedCase]) -> str:
    """Say under which conditions all cases ran, as far as they have them in common."""
    gpus = {round(case.gpus) for case in cases if case.gpus}
    parts = [
        _told(cases, "gpu", f"{gpus.pop()} x {{}}" if len(gpus) == 1 else "{}"),
        _told(cases, "cluster", "cluster {}"),
        _told(cases, "framework", "framework {}"),
        _told(cases, "precision", "{}"),
        _told(cases, "inlet_c", "inlet {:g} C"),
        _told(cases, "power_cap_w", "power cap {:g} W"),
    ]
    return ", ".join(part for part in parts if part)


def _told(cases: Sequence[StudiedCase], name: str, pattern: str) -> str:
    value = in_common(cases, name)
    return "" if value is None else pattern.format(value)


def group_cases(cases: Iterable[StudiedCase]) -> list[StudiedCase]:
    """Group cases by model (and by cluster where that is varied), name each inside its group, add derived metrics."""
    listed = list(cases)
    clusters = {str(case.settings.get("cluster")) for case in listed}
    grouped = []
    for case in listed:
        model, cluster = case.values.get("model") or case.settings.get("model"), case.settings.get("cluster")
        words = [str(word) for word in (model, cluster if len(clusters) > 1 else None) if word]
        group = " on ".join(words) or WHOLE
        label = _inside(case.name, words) + (", predicted" if case.is_prediction else "")
        grouped.append(replace(case, group=group, label=label, values=with_derived(case.values)))
    taken = Counter((case.group, case.label, case.origin) for case in grouped)
    names = Counter((case.name, case.origin) for case in grouped)
    return [
        replace(case, label=case.name if names[case.name, case.origin] == 1 else f"{case.name} (case {case.number})")
        if taken[case.group, case.label, case.origin] > 1
        else case
        for case in grouped
    ]


def _inside(name: str, words: Sequence[str]) -> str:
    """Return the name of a case without the words that its group says already."""
    parts = []
    for part in name.split(" / "):
        rest = part
        for word in words:
            rest = "" if rest in (word, f"model {word}", f"cluster {word}") else rest.removeprefix(f"{word} ")
        if rest:
            parts.append(rest)
    return " / ".join(parts) or name


def groups(cases: Iterable[StudiedCase]) -> dict[str, list[StudiedCase]]:
    """Return the cases of each group, in the order of the study."""
    found: dict[str, list[StudiedCase]] = {}
    for case in cases:
        found.setdefault(case.group, []).append(case)
    return found


def rank_metric(cases: Iterable[StudiedCase]) -> str:
    """Return the metric that cases are ranked by: one that every case that ran knows, if there is any."""
    ran = [case for case in cases if case.ran]
    return next((name for name in RANKS if all(case.values.get(name) is not None for case in ran)), RANKS[-1])


def ranked(cases: Iterable[StudiedCase]) -> list[StudiedCase]:
    """Return the cases that ran, the fastest first."""
    listed = [case for case in cases if case.ran]
    metric = rank_metric(listed)
    known = [case for case in listed if case.values.get(metric) is not None]
    return sorted(known, key=lambda case: case.values[metric], reverse=quantity(metric).better == "higher")


def select(cases: Sequence[StudiedCase], most: int = MOST_ROWS) -> tuple[list[StudiedCase], str]:
    """Return the cases that a figure with a row for each shows, and what it leaves out, in words.

    Of a large study these are the fastest of each group, then those without a result.
    """
    if len(cases) <= most:
        return list(cases), ""
    by_group = groups(cases)
    each = max(1, most // len(by_group))
    chosen = {id(case) for group in by_group.values() for case in _best(group, each)}
    shown = [case for case in cases if id(case) in chosen][:most]
    return shown, f"Shown: {len(shown)} of {len(cases):,} cases, the fastest of each group. "


def _best(cases: list[StudiedCase], most: int) -> list[StudiedCase]:
    order = ranked(cases)
    known = {id(case) for case in order}
    return [*order, *(case for case in cases if id(case) not in known)][:most]


def case_columns(cases: Sequence[StudiedCase]) -> dict[str, Column]:
    """Return the columns that name the cases of a figure."""
    columns = {
        "group": Column("model", [case.group for case in cases]),
        "case": Column("case", [case.label for case in cases]),
    }
    if len({case.origin for case in cases}) > 1:
        columns["origin"] = Column("origin", [case.origin for case in cases])
    return columns


def full_label(case: StudiedCase, alone: bool) -> str:
    """Return the name of a case beside those of other groups; alone, its group need not be said."""
    return case.label if alone else title(case)


def title(case: StudiedCase) -> str:
    """Return the name of a case with its model."""
    return case.label if case.group == WHOLE else f"{case.group} {case.label}"
