"""A plan as its page reads it: the table that `charllm plan --json` prints, each strategy as a case of a study."""

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NotRequired, TypedDict

from charllm.errors import SpecError
from charllm.report.page.cases import StudiedCase, machine_of
from charllm.report.page.quantity import write_value
from charllm.result.metrics import PLAN_METRICS, numbers_of, with_derived
from charllm.result.shape import metrics_shape
from charllm.spec.shape import Cell, Number, check_shape
from charllm.units import whole_number

PLAN_FILE = "plan.json"
"""A plan in its folder: what `charllm plan --json` prints."""
KEYS = ("best", "counts", "goal")
"""What tells the table of a plan from others."""
BEST, OWN, LOOSE = "keeps every limit", "your own", "breaks a limit"
"""How a strategy stands to the limits."""
STANDING = "standing"

Table = Mapping[str, Any]


@dataclass(frozen=True)
class PlanView:
    """A plan with its strategies as cases."""

    table: Table
    best: Sequence[StudiedCase]
    """Those that keep every limit, best first."""
    others: Sequence[StudiedCase]
    """Further ones of the Pareto front, and those that break a limit."""
    own: StudiedCase | None

    @property
    def strategies(self) -> list[StudiedCase]:
        """Return every strategy once: the best, the others, the user's own."""
        return [*self.best, *self.others, *([self.own] if self.own else [])]

    @property
    def metric(self) -> str:
        """The metric that the plan makes best."""
        return str(self.goal["metric"])

    @property
    def goal(self) -> Table:
        """What the plan makes best: metric, better (higher or lower) and meaning."""
        found: Table = self.table["goal"]
        return found

    @property
    def limits(self) -> Sequence[Table]:
        """Limits as they were asked for: text, metric, sense and value."""
        found: Sequence[Table] = self.table.get("bounds") or ()
        return found

    def gain_fraction(self, case: StudiedCase, over: StudiedCase) -> float | None:
        """Return by how much a strategy is better than another in what the plan makes best."""
        ours, theirs = case.values.get(self.metric), over.values.get(self.metric)
        if not ours or not theirs:
            return None
        return float(ours / theirs - 1 if self.goal["better"] == "higher" else theirs / ours - 1)


def is_plan(table: Any) -> bool:
    """Tell whether a table is that of a plan."""
    return isinstance(table, Mapping) and all(key in table for key in KEYS)


class StoredGoal(TypedDict):
    """The shape of what a plan makes best."""

    metric: str
    better: str
    meaning: NotRequired[str]


class StoredStrategy(TypedDict):
    """The shape of a strategy of a plan."""

    strategy: str
    flags: str
    metrics: dict[str, Any]
    spec: NotRequired[dict[str, dict[str, Any]] | None]
    probability_best: NotRequired[Number]
    rank: NotRequired[int | None]
    why: NotRequired[list[str]]
    diff: NotRequired[list[dict[str, Cell]]]


class StoredLimit(TypedDict):
    """The shape of a limit of a plan."""

    text: str
    metric: str
    sense: str
    value: float


class StoredSensitivity(TypedDict):
    """The shape of a changed machine on which a plan's strategies were compared."""

    change: str
    values: list[Number]
    winner: int | None
    lead_fraction: Number
    reason: str


class StoredCounts(TypedDict):
    """How many strategies a plan has considered; further counts are whole numbers, too."""

    visited: int
    priced: int
    simulated: int


class StoredPlan(TypedDict):
    """The shape of what `charllm plan --json` prints."""

    goal: StoredGoal
    counts: StoredCounts
    best: list[StoredStrategy]
    bounds: NotRequired[list[StoredLimit]]
    elapsed_s: NotRequired[Number]
    pareto: NotRequired[list[StoredStrategy]]
    others: NotRequired[list[StoredStrategy]]
    own: NotRequired[StoredStrategy | None]
    rejected: NotRequired[dict[str, int]]
    sensitivity: NotRequired[list[StoredSensitivity]]
    warnings: NotRequired[list[str]]
    provenance: NotRequired[dict[str, Cell]]


def check_plan(table: Any, file: object) -> None:
    """Refuse a stored plan that is damaged, naming the field."""
    check_shape(table, StoredPlan, file)
    check_shape(table["counts"], dict[str, int | None], file, "counts")
    for key in ("best", "pareto", "others"):
        for place, entry in enumerate(table.get(key, ())):
            _check_strategy(entry, file, f"{key}[{place}]")
    if table.get("own"):
        _check_strategy(table["own"], file, "own")


def _check_strategy(entry: Table, file: object, field: str) -> None:
    check_shape(entry["metrics"], metrics_shape(PLAN_METRICS), file, f"{field}.metrics")
    try:
        shlex.split(entry["flags"])
    except ValueError as error:
        raise SpecError(f"{file}, {field}.flags", entry["flags"], f"words of a command line ({error})") from None


def read_plan(table: Table) -> PlanView:
    """Read the table of a plan; SpecError where it is damaged."""
    try:
        best = [_case(entry, BEST) for entry in table["best"]]
        others = [_case(entry, LOOSE) for entry in table.get("others") or ()]
        others += [_case(entry, BEST) for entry in table.get("pareto") or ()]
        own = _case(table["own"], OWN) if table.get("own") else None
        str(table["goal"]["metric"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise SpecError("plan", f"a table without {error}", "what `charllm plan --json` prints") from None
    known = {case.command for case in best}
    others = list({case.command: case for case in reversed(others) if case.command not in known}.values())[::-1]
    own = None if own is not None and own.command in known else own
    marks = [*(f"{number}: " for number in range(1, len(best) + 1)), *[""] * len(others), "own: "]
    cases = [*best, *others, *([own] if own else [])]
    named = _with_labels(cases, marks[: len(cases)])
    ends = len(best), len(best) + len(others)
    return PlanView(table, named[: ends[0]], named[slice(*ends)], named[-1] if own else None)


def _case(entry: Table, standing: str) -> StudiedCase:
    spec, words = entry.get("spec") or {}, shlex.split(str(entry["flags"]))
    flags = _settings(words)
    sure = entry.get("probability_best")
    probability = None if sure is None else round(float(sure), 2)
    values: dict[str, Any] = {
        **numbers_of(entry["metrics"]),
        **flags,
        "probability_best": probability,
        STANDING: standing,
    }
    return StudiedCase(
        name=str(entry["strategy"]),
        exit_code=0,
        message="",
        values=with_derived(values),
        settings=flags,
        command=shlex.join(["charllm", "simulate", *_names(spec), *words]),
        machine=machine_of(spec),
    )


def _names(spec: Table) -> list[str]:
    """Return the flags that name what is trained and where."""
    return [
        word
        for part in ("model", "cluster", "framework")
        if (name := (spec.get(part) or {}).get("name"))
        for word in (f"--{part}", str(name))
    ]


def _settings(words: Sequence[str]) -> dict[str, Any]:
    """Return flags by name, numbers as such; one without a value is on, `--no-NAME` is off."""
    found: dict[str, Any] = {}
    flag = ""
    for word in words:
        if word.startswith("--"):
            flag = word.removeprefix("--").removeprefix("no-")
            found[flag] = "off" if word.startswith("--no-") else "on"
        elif flag:
            count = whole_number(word)
            found[flag] = word if count is None else count
    return found


def _with_labels(cases: Sequence[StudiedCase], marks: Sequence[str]) -> list[StudiedCase]:
    """Label strategies by their degrees, and by what tells those of equal degrees apart; marks stand before it."""
    parts = [case.name.split(", ") for case in cases]
    counts = Counter(part for each in parts for part in each)
    alike: dict[str, list[set[str]]] = {}
    for each in parts:
        alike.setdefault(each[0], []).append(set(each))
    common = {degrees: set.intersection(*found) for degrees, found in alike.items()}
    found = []
    for case, mark, each in zip(cases, marks, parts, strict=True):
        # What few have comes first: the end of a long label is cut.
        apart = sorted((part for part in each if part not in common[each[0]]), key=lambda part: counts[part])
        words = apart if len(alike) == 1 and apart else [each[0], *apart]
        found.append(replace(case, label=f"{mark}{', '.join(words)}"))
    return found


def varied_flags(cases: Iterable[StudiedCase]) -> list[str]:
    """Return the flags in which strategies differ."""
    listed = list(cases)
    names = dict.fromkeys(name for case in listed for name in case.settings)
    return [name for name in names if len({case.settings.get(name) for case in listed}) > 1]


def write_metric(case: StudiedCase, metric: str) -> str:
    """Write a metric of a strategy with its unit."""
    return write_value(metric, case.values.get(metric))
