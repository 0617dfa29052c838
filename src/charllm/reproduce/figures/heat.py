"""Temperature of every GPU of every configuration (figure 17), and thermal imbalance over time."""

from collections.abc import Mapping, Sequence

from charllm.catalog.resolve import resolve_run
from charllm.report.figure import Column, Figure
from charllm.report.page.cases import StudiedCase, conditions_of, title
from charllm.reproduce.looks import Row, Rows
from charllm.reproduce.paper import H200, MI250, run_of
from charllm.result.metrics import METRICS
from charllm.simulate.cold import tabulate_warm_up
from charllm.simulate.predict import predict

DRAWN = METRICS["temperature_mean_c"]
SHOWN_CASE, WARM_UP_S = "gpt3-175b tp2-pp16 / act", 300.0
WARM_UP = "warm-up"
"""Under which the warm-up stands among the rows."""
MAPS = ((H200, "figure-17", "Figure 17: mean temperature of every GPU, 32 H200", " / base"),
        (MI250, "mi250-heat", "MI250: mean temperature of every GCD, 32 GCDs", " / act"))  # fmt: skip


def temperatures(cases: Mapping[str, Sequence[StudiedCase]], _rows: Rows) -> list[Figure]:
    """Return the mean temperature of every GPU, a row for each configuration."""
    found = []
    for study, name, question, ends in MAPS:
        listed = [case for case in cases.get(study, ()) if case.name.endswith(ends) and case.ran]
        cells = [
            (title(case).removesuffix(ends), f"{row['node']}.{row['slot']}", row["temperature_mean_c"])
            for case in listed
            if (view := case.open_view()) is not None
            for row in sorted(view.result.gpus, key=lambda row: (row["node"], row["slot"]))
        ]
        if cells:
            columns = {
                "case": Column("configuration", [case for case, _, _ in cells]),
                "gpu": Column("GPU (node.slot)", [gpu for _, gpu, _ in cells]),
                "degrees": Column(DRAWN.label, [degrees for _, _, degrees in cells], DRAWN.unit, 3),
            }
            options = {
                "row": "case",
                "column": "gpu",
                "value": "degrees",
                "label": DRAWN.label,
                "unit": "C",
            }
            hot = max(cells, key=lambda cell: cell[2])
            message = f"Columns are GPUs (node.slot). Highest mean: GPU {hot[1]} of {hot[0]}, {hot[2]:.1f} C."
            found.append(Figure(name, "heatmap", question, message, columns, options, conditions_of(listed)))
    return found


def imbalance(_cases: Mapping[str, Sequence[StudiedCase]], rows: Rows) -> list[Figure]:
    """Return the coolest, mean and hottest GPU from a cold start on."""
    table = rows.get(WARM_UP)
    if not table:
        return []
    ends = ("low", "mean", "high")
    words = dict(zip(ends, ("coolest GPU", "mean", "hottest GPU"), strict=True))
    columns = {"t": Column("time since the start", table["t_s"], "s", 4)}
    columns |= {end: Column(words[end], table[f"temperature_c_{end}"], "C", 4) for end in ends}
    panel = {"label": "temperature of a GPU, mean over a step", "unit": "C", **{end: end for end in ends}, "lines": [],
             "from_zero": False}  # fmt: skip
    spread = [(high or 0.0) - (low or 0.0) for high, low in
              zip(table["temperature_c_high"], table["temperature_c_low"], strict=True)]  # fmt: skip
    message = (
        f"{SHOWN_CASE}, one point per step, from idle: the hottest GPU is {spread[0]:.1f} K above the coolest at the "
        f"start and {spread[-1]:.1f} K after {WARM_UP_S:.0f} s. The artifact measures the eleventh step only."
    )
    question = "Thermal imbalance between GPUs from a cold start"
    return [Figure("imbalance", "bands", question, message, columns, {"x": "t", "panels": [panel]})]


def warm_up() -> Row:
    """Simulate the warm-up that `imbalance` shows: columns over time."""
    simulated = predict(resolve_run(run_of(H200, SHOWN_CASE)), ignore_memory=True).simulated
    return {} if simulated is None else tabulate_warm_up(simulated.machine, WARM_UP_S)
