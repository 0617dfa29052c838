"""How far are predictions from measurements? Every scored row as a point, with the band of 10 %."""

from collections.abc import Sequence

from charllm.report.figure import Column, Figure
from charllm.report.page.trust import BAND_FRACTION
from charllm.units import format_change

NAME, KIND, QUESTION = "scores", "scatter", "How far are predictions from measurements?"
MOST_MARKED = 5


def scores_figure(rows: Sequence[tuple[str, float | None, float | None]]) -> Figure:
    """Return predicted against measured step times, from the name and both times of each row; the worst are marked."""
    known = [(name, predicted, measured) for name, predicted, measured in rows if predicted and measured]
    if not known:
        reason = "no row has both a prediction and a measurement"
        return Figure(NAME, KIND, QUESTION, f"Not shown: {reason}.", missing=reason)
    errors = [predicted / measured - 1 for _, predicted, measured in known]
    worst = sorted(range(len(known)), key=lambda place: -abs(errors[place]))[:MOST_MARKED]
    inside = sum(abs(error) <= BAND_FRACTION for error in errors)
    columns = {
        "id": Column("row", [name for name, _, _ in known]),
        "measured": Column("measured step time", [measured for _, _, measured in known], "s", 4),
        "predicted": Column("predicted step time", [predicted for _, predicted, _ in known], "s", 4),
        "error": Column("error", [format_change(error) for error in errors]),
        "worst": Column("one of the largest errors", [place in worst for place in range(len(known))]),
    }
    options = {
        "x": "measured",
        "y": "predicted",
        "x_scale": "log",
        "y_scale": "log",
        "name": "id",
        "marked": "worst",
        "lines": [{"label": "within 10 %", "slope": 1.0, "band_fraction": BAND_FRACTION}],
    }
    message = (
        f"{inside} of {len(known)} predictions lie within 10 % of the measured step time; the {len(worst)} with the "
        "largest errors are marked."
    )
    return Figure(NAME, KIND, QUESTION, message, columns, options)
