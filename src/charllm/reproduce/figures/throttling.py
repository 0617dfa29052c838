"""Clock lost, by cause: what the artifact does not record."""

from collections.abc import Mapping, Sequence

from charllm.report.claims import HEAT_LOSS_FRACTION
from charllm.report.figure import Column, Figure
from charllm.report.page.cases import StudiedCase, conditions_of, title
from charllm.reproduce.looks import Rows
from charllm.reproduce.paper import H100, H200
from charllm.result.metrics import CAUSE_WORDS, CAUSES
from charllm.units import PERCENT


def throttling(cases: Mapping[str, Sequence[StudiedCase]], _rows: Rows) -> list[Figure]:
    """Return the clock that every configuration loses to power, heat and brakes."""
    found = []
    for study, gpu in ((H200, "H200"), (H100, "H100")):
        listed = [case for case in cases.get(study, ()) if case.ran and case.name.endswith((" / base", " / cc+act"))]
        rows = [
            (case, cause, float(case.values.get(f"clock_loss_fraction.{cause}") or 0.0) / PERCENT)
            for case in listed
            for cause in CAUSES
        ]
        if rows:
            columns = {
                "group": Column("model", [case.group for case, _, _ in rows]),
                "bar": Column("configuration", [title(case) for case, _, _ in rows]),
                "part": Column("cause", [cause for _, cause, _ in rows]),
                "lost": Column("clock lost", [lost for _, _, lost in rows], "%", 3),
            }
            options = {"bar": "bar", "group": "group", "part": "part", "value": "lost", "order": list(CAUSES),
                       "unit": "%", "palette": "cause", "labels": CAUSE_WORDS, "horizontal": True}  # fmt: skip
            least = HEAT_LOSS_FRACTION / PERCENT
            heat = sum(lost > least for _, cause, lost in rows if cause == "thermal")
            mark = f"{least:g} %"
            message = f"{heat} of {len(listed)} configurations lose more than {mark} of their clock to heat."
            question = f"Throttling on {gpu}: clock lost, by cause"
            name = f"throttling-{gpu.lower()}"
            found.append(Figure(name, "stacked-bars", question, message, columns, options, conditions_of(listed)))
    return found
