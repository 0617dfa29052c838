"""What a page shows, as data: figures with the table behind each, and the answer above them.

Python computes these; the front end (`report/web/assets`) draws them, in an HTML report and in the explorer alike.
Values are in the unit that stands beside them: a page is the edge where SI ends.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

KINDS = (
    "stacked-bars",
    "timeline",
    "bands",
    "node-map",
    "heatmap",
    "scatter",
    "multiples",
    "tornado",
    "sides",
    "table",
    "commands",
)
"""How a figure may be drawn: each is a file of the same name in `report/web/assets/draw`."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a figure's table."""

    label: str
    """Heading, in plain words."""
    values: Sequence[Any]
    """Numbers, texts or truths; None where a value is missing."""
    unit: str = ""
    digits: int | None = None
    """Digits that matter of a number; None: as the front end chooses."""


Columns = Mapping[str, Column]


@dataclass(frozen=True, slots=True)
class Figure:
    """One question, drawn; or, where nothing can be drawn, the reason."""

    name: str
    """Anchor of the figure on its page: short, lower case, hyphens."""
    kind: str
    question: str
    """Its heading, for example 'Where does the step time go?'."""
    message: str
    """What to see, with the numbers: its caption, and what a screen reader says."""
    columns: Columns = field(default_factory=dict)
    """The table behind it: drawn from, shown beside it, and given as CSV."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Which column stands where, lines, scales; by kind, see docs/decisions.md."""
    conditions: str = ""
    """Under which conditions it holds: inlet, cap, framework, defaults taken."""
    tables: Mapping[str, Columns] = field(default_factory=dict)
    """Further tables of a figure that has several panels."""
    missing: str = ""
    """Why there is nothing to draw; empty: there is."""
    folded: str = ""
    """Heading under which it is folded away, with its neighbours of the same heading; empty: it is shown."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One figure of the answer, with its uncertainty, and the figure on the page that explains it."""

    label: str
    value: str
    """With its unit, as it is read: '31.7 s'."""
    interval: str = ""
    """'28.4 to 34.9 s', or why there is none."""
    link: str = ""
    """Name of the figure that explains it."""
    note: str = ""
    """Why it is so, where it would surprise."""


@dataclass(frozen=True, slots=True)
class Section:
    """Figures that belong together under one heading."""

    title: str
    figures: Sequence[Figure]


@dataclass(frozen=True, slots=True)
class Page:
    """A run, a comparison or a study as one page: the answer first, then a section for each kind of question."""

    title: str
    answer: Sequence[str]
    """At most a few sentences that answer: first what was asked, then what limits it, then what helps."""
    facts: Sequence[Fact]
    """At most six."""
    sections: Sequence[Section]
    origin: str = ""
    """simulated, emulated, measured; empty: several."""
    warnings: Sequence[str] = ()
    further: Sequence[str] = ()
    """What else was found, in words; a page that has it opens with its first figure, and folds this away below."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """What made it: versions, fingerprints, seed."""
