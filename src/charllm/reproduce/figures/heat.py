"""Temperature of every GPU of every configuration (figure 17), thermal imbalance over time, clock lost by cause."""

from collections.abc import Mapping, Sequence

from charllm.catalog.resolve import resolve_run
from charllm.report.claims import HEAT_LOSS_FRACTION
from charllm.report.figure import Column, Figure
from charllm.report.page.cases import StudiedCase, conditions_of, title
from charllm.report.page.view import RunView
from charllm.reproduce.looks import Row, Rows
from charllm.reproduce.paper import H100, H200, MI250, run_of
from charllm.result.metrics import CAUSE_WORDS, CAUSES, METRICS
from charllm.simulate.cold import tabulate_warm_up
from charllm.simulate.predict import predict
from charllm.units import PERCENT

DRAWN = {"": METRICS["temperature_mean_c"], "-clock": METRICS["clock_mean_hz"]}
"""Suffix of a figure's name: the metric of its cells."""
SHOWN_CASE, WARM_UP_S = "gpt3-175b tp2-pp16 / act", 300.0
WARM_UP = "warm-up"
"""Under which the warm-up stands among the rows."""
MAPS = ((H200, "figure-17", "Figure 17: {} of every GPU, 32 H200", " / base"),
        (MI250, "mi250-heat", "MI250: {} of every GCD, 32 GCDs", " / act"))  # fmt: skip


def temperatures(cases: Mapping[str, Sequence[StudiedCase]], _rows: Rows) -> list[Figure]:
    """Return the mean temperature and the mean clock of every GPU, a row for each configuration."""
    found = []
    for study, name, question, ends in MAPS:
        listed = [case for case in cases.get(study, ()) if case.name.endswith(ends) and case.ran]
        gpus = [
            (title(case).removesuffix(ends), place, row)
            for case in listed
            if (view := case.open_view()) is not None
            for place, row in front_to_rear(view)
        ]
        for suffix, metric in DRAWN.items() if gpus else ():
            cells = [(case, place, row[metric.name] / metric.scale) for case, place, row in gpus]
            asked = question.format(metric.label)
            found.append(gpu_map(name + suffix, asked, cells, metric.label, metric.unit, conditions_of(listed)))
    return found


def gpu_map(
    name: str, question: str, cells: Sequence[tuple[str, str, float]], label: str, unit: str, conditions: str,
    note: str = "",
) -> Figure:  # fmt: skip
    """Return a heat map of a number of every GPU of every configuration."""
    columns = {
        "case": Column("configuration", [case for case, _, _ in cells]),
        "gpu": Column("GPU (node.slot)", [place for _, place, _ in cells]),
        "value": Column(label, [value for _, _, value in cells], unit, 3),
    }
    options = {"row": "case", "column": "gpu", "value": "value", "label": label, "unit": unit}
    case, place, highest = max(cells, key=lambda cell: cell[2])
    message = (
        f"Columns are GPUs (node.slot), in each node those in front first; r: a rear slot. Highest: GPU {place} of "
        f"{case}, {highest:,.4g} {unit}.{note}"
    )
    return Figure(name, "heatmap", question, message, columns, options, conditions)


def front_to_rear(view: RunView) -> list[tuple[str, Row]]:
    """Return the GPUs of a run, nodes in order, in each node those in front first, and their names."""
    upstream = view.cluster.node.upstream if view.cluster is not None else ()

    def is_rear(row: Row) -> bool:
        return bool(upstream) and upstream[row["slot"]] >= 0

    ordered = sorted(view.result.gpus, key=lambda row: (row["node"], is_rear(row), row["slot"]))
    return [(f"{row['node']}.{row['slot']}{'r' if is_rear(row) else ''}", row) for row in ordered]


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
