"""What does a cap cost and save? Throughput, tokens per joule and money against caps, the knees as lines."""

from collections.abc import Mapping
from typing import Any

from charllm.report.figure import Column, Figure
from charllm.result.metrics import quantity, selected
from charllm.units import format_change

DRAWN = selected("tokens_per_s", "tokens_per_j", "money_per_trillion_tokens")
QUESTION = "What does a cap cost, and what does it save?"


def caps_figure(table: Mapping[str, Any]) -> Figure:
    """Return the points of a cap advisor over the cap; of caps of stages over the cap of all that they stand for."""
    name = next(name for name in table["points"][0] if name.startswith(("cap_", "uniform_cap_")))
    points = sorted(table["points"], key=lambda point: float(point[name]))
    money = {"money_per_trillion_tokens": f"{table['currency']}/T tokens"}
    metrics = {key: (quantity(key).label, money.get(key, quantity(key).unit)) for key in DRAWN}
    columns = {
        "cap": Column(f"{table['kind']} cap", [point[name] / table["scale"] for point in points], table["unit"]),
        **{key: Column(label, [point[key] for point in points], unit, 4) for key, (label, unit) in metrics.items()},
    }
    knee = table["points"][table["knees"]["knee"]]
    at = f"knee, {knee[name] / table['scale']:.0f} {table['unit']}"
    panels = [
        {"label": label, "unit": unit, "mean": key, "lines": [{"label": at, "value": knee[key]}]}
        for key, (label, unit) in metrics.items()
    ]
    message = (
        f"The knee lies at {knee[name] / table['scale']:.0f} {table['unit']} ({table['definitions']['knee']}): time "
        f"{format_change(knee['time_change_fraction'])}, energy {format_change(knee['energy_change_fraction'])}."
    )
    return Figure("caps", "bands", QUESTION, message, columns, {"x": "cap", "panels": panels}, str(table["run"]))
