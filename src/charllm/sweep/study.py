"""A study: groups of axes over a common request, which make up named cases.

    about = "what it asks"
    request = { cluster = "h200x32" }                      # common to all cases
    where = ["tp * pp <= 32"]                              # cases that break a constraint are left out
    sample = { count = 100, method = "latin", seed = 1 }   # only some of the cases
    repeats = 3                                            # each case with seeds 0, 1 and 2
    [[groups]]
    axes.strategy = { "tp8" = { parallelism = { tp = 8 } }, "tp4" = { parallelism = { tp = 4 } } }
    axes.mbs = { field = "training.micro_batch_size", values = [1, 2, 4, 8] }

Each group is the product of its axes; a case is named by its labels. What the axes change is `swept`: columns of the
study's table, named as the fields are (``parallelism.tp``), and the label of each axis of labelled changes. The product
is never held as a list: a case is built from its number.
"""

import json
from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, overload

from charllm.catalog.tables import find
from charllm.errors import SpecError, Words, unknown_name
from charllm.spec.request import Table, as_table, merge, nest, read_toml
from charllm.sweep.axes import Case, Group, find_setting, read_group
from charllm.sweep.sampling import FEWEST_DRAWS, Sample, draw, read_sample, share_out

MAX_CASES, MAX_REPEATS = 1_000_000, 10_000
KEYS = ("about", "corrections", "request", "groups", "name", "where", "sample", "repeats")
SEED, REPEAT = "conditions.seed", "repeat"


@dataclass(frozen=True, slots=True)
class Cases(Sequence[Case]):
    """The cases of a study by number, each built when it is asked for."""

    groups: tuple[Group, ...]
    points: Sequence[int]
    """Points of the groups' products, all groups counted on."""
    repeats: int
    names: tuple[str, ...]
    """Names of the axes and fields that the study varies."""

    def __len__(self) -> int:
        return len(self.points) * self.repeats

    @overload
    def __getitem__(self, number: int) -> Case: ...
    @overload
    def __getitem__(self, number: slice) -> list[Case]: ...
    def __getitem__(self, number: int | slice) -> Case | list[Case]:
        """Return a case, or several."""
        places = range(len(self))[number]
        return self._build(places) if isinstance(places, int) else [self._build(place) for place in places]

    def _build(self, place: int) -> Case:
        place, repeat = divmod(place, self.repeats)
        starts = [0, *accumulate(group.size for group in self.groups)]
        group = bisect_right(starts, self.points[place]) - 1
        case = self.groups[group].case(self.points[place] - starts[group])
        if self.repeats > 1:
            case = _repeat(case, repeat)
        # What a group leaves open is None until the case has run.
        open_ = {name: find_setting(case.request, name) for name in self.names}
        return case._replace(swept={**open_, **case.swept})


def _repeat(case: Case, number: int) -> Case:
    """Return a case with a seed of its own."""
    seed = (find_setting(case.request, SEED) or 0) + number
    swept = {**case.swept, REPEAT: number, SEED: seed}
    return Case(f"{case.name} / {REPEAT} {number}", merge(case.request, nest(SEED, seed)), swept)


class Study(NamedTuple):
    """A named set of cases."""

    name: str
    about: str
    corrections: tuple[str, ...]
    """What differs from the source it was taken from, and why."""
    cases: Cases
    table: Table
    """What it was read from."""

    @property
    def swept(self) -> tuple[str, ...]:
        """Names of the axes and fields that the study varies."""
        return self.cases.names


def load_study(asked: str) -> Study:
    """Return a study by its name in the catalog, or from a TOML file."""
    return unfold(*read_study(asked))


def read_study(asked: str) -> tuple[str, Table]:
    """Return the name and the table of a study in the catalog or in a TOML file."""
    if asked.endswith(".toml"):
        return Path(asked).stem, read_toml(asked, "STUDY")
    entry = find("studies", asked, "STUDY")
    return entry.name, dict(entry.values)


def unfold(name: str, table: Mapping[str, Any]) -> Study:
    """Read a study table, and find its cases."""
    # As JSON, so that a study read back from its folder, or a case sent to a worker, is the very same.
    plain: Table = json.loads(json.dumps(table, default=str))
    for key in plain:
        if key not in KEYS:
            raise unknown_name(f"STUDY.{key}", key, KEYS)
    corrections = plain.get("corrections", [])
    if not isinstance(corrections, list):
        raise SpecError("STUDY.corrections", corrections, "a list of texts")
    groups = _read_groups(plain)
    repeats = plain.get("repeats", 1)
    if not isinstance(repeats, int) or isinstance(repeats, bool) or not 1 <= repeats <= MAX_REPEATS:
        raise SpecError("STUDY.repeats", repeats, f"a whole number from 1 to {MAX_REPEATS}")
    points = _select(groups, read_sample(plain.get("sample")), repeats)
    varied = [name for group in groups for name in group.columns] + ([REPEAT, SEED] if repeats > 1 else [])
    cases = Cases(groups, points, repeats, tuple(dict.fromkeys(varied)))
    return Study(name, str(plain.get("about", "")), tuple(map(str, corrections)), cases, plain)


def _read_groups(plain: Table) -> tuple[Group, ...]:
    common = as_table(plain.get("request", {}), "STUDY.request")
    groups, where = plain.get("groups", []), plain.get("where", [])
    if not isinstance(groups, list) or not groups:
        raise SpecError("STUDY.groups", groups, "at least one group of axes")
    return tuple(read_group(common, as_table(group, "STUDY.groups"), where) for group in groups)


def _select(groups: Sequence[Group], sample: Sample | None, repeats: int) -> Sequence[int]:
    """Return the points of all groups that are run: those that meet the constraints, or a sample of these."""
    size = sum(group.size for group in groups)
    if not all(group.size for group in groups):
        raise SpecError("STUDY.groups.axes", Words("an axis without values"), "at least one value on each axis")
    asked = size if sample is None else min(size, sample.count)
    if asked * repeats > MAX_CASES:
        said = f"at most {MAX_CASES:,}, or a sample of them: --sample 1000, or sample = 1000 in the study"
        raise SpecError("STUDY", Words(f"{asked * repeats:,} cases"), said)
    if sample is None and not any(group.where for group in groups):
        return range(size)
    shares = share_out(asked, [group.size for group in groups])
    points, start = array("q"), 0
    for group, share in zip(groups, shares, strict=True):
        points.extend(start + number for number in _points(group, share, sample))
        start += group.size
    if not points:
        raise SpecError("STUDY.where", Words(f"{size:,} cases, of which none remains"), "constraints that a case meets")
    return points


def _points(group: Group, count: int, sample: Sample | None) -> Sequence[int]:
    """Return the points of a group that are run; a small group is listed, a large one never is."""
    if sample is None or count == group.size:
        return [number for number in range(group.size) if group.allows(number)]
    if group.where and group.size <= FEWEST_DRAWS:
        count = min(count, sum(map(group.allows, range(group.size))))
    return draw(group.sizes, replace(sample, count=count), group.allows) if count else []
