"""One figure of each kind, as pages make them, with values to choose."""

from collections.abc import Sequence
from typing import Any

from charllm.report.figure import Column, Figure


def bars(values: Sequence[Sequence[float]], limit: float | None = None) -> Figure:
    parts = ("compute", "tp_exposed", "bubble")
    rows = [
        (f"stage {at}", part, value) for at, row in enumerate(values) for part, value in zip(parts, row, strict=True)
    ]
    options: dict[str, Any] = {"bar": "bar", "part": "part", "value": "value", "order": list(parts), "palette": "part",
                               "unit": "s", "labels": {"bubble": "pipeline bubble"}}  # fmt: skip
    options |= {"limit": {"value": limit, "label": f"limit {limit:g} s"}} if limit is not None else {}
    columns = {name: Column(name, [row[place] for row in rows]) for place, name in enumerate(("bar", "part", "value"))}
    return Figure("seconds", "stacked-bars", "Where does the step time go?", "Compute.", columns, options)


def timeline(spans: Sequence[tuple[str, str, float, float]], signals: Sequence[tuple[float, float]] = ()) -> Figure:
    names = ("lane", "part", "start", "end")
    tables = {
        "spans": {name: Column(name, [span[place] for span in spans]) for place, name in enumerate(names)},
        "signals": {
            "gpu": Column("GPU", ["rank 0"] * len(signals)),
            "t": Column("time", [time for time, _ in signals], "s"),
            "power": Column("power", [watts for _, watts in signals], "W"),
            "clock": Column("clock", [None] * len(signals), "MHz"),
            "temperature": Column("temperature", [40.0 + watts / 100 for _, watts in signals], "C"),
        },
        "limits": {"gpu": Column("GPU", ["rank 0"]), "start": Column("start", [0.0]), "end": Column("end", [0.5]),
                   "cause": Column("cause", ["power"])},
    }  # fmt: skip
    lines = {"power": [{"label": "limit 700 W", "value": 700.0}], "clock": [], "temperature": []}
    options = {"lanes": list(dict.fromkeys(span[0] for span in spans)), "gpu": "rank 0", "lines": lines, "labels": {}}
    return Figure("when", "timeline", "What happens during a step?", "A step.", tables["spans"], options, "", tables)


def bands(means: Sequence[float]) -> Figure:
    columns = {
        "t": Column("time", [float(at) for at in range(len(means))], "s"),
        "low": Column("low", [value - 1 for value in means]),
        "mean": Column("mean", list(means)),
        "high": Column("high", [value + 1 for value in means]),
    }
    panel = {
        "label": "power",
        "unit": "W",
        "low": "low",
        "mean": "mean",
        "high": "high",
        "lines": [],
        "from_zero": False,
    }
    return Figure(
        "power", "bands", "How does power vary over a step?", "It moves.", columns, {"x": "t", "panels": [panel]}
    )


def node_map(values: Sequence[float], per_node: int = 8) -> Figure:
    count = len(values)
    columns = {
        "node": Column("node", [str(at // per_node) for at in range(count)]),
        "row": Column("row", [at % per_node // (per_node // 2) for at in range(count)]),
        "place": Column("place", [at % (per_node // 2) for at in range(count)]),
        "value": Column("above inlet", list(values), "K"),
        "ring": Column("paces", [at == 2 for at in range(count)]),
    }
    options = {"value": "value", "unit": "K", "label": "above inlet", "airflow": "front to rear", "inlet": "25 C"}
    return Figure("heat", "node-map", "Who is hot?", "The rear.", columns, options)


def heatmap(values: Sequence[Sequence[float | None]]) -> Figure:
    cells = [(f"row {at}", f"{place} C", value) for at, row in enumerate(values) for place, value in enumerate(row)]
    columns = {
        "row": Column("row", [row for row, _, _ in cells]),
        "inlet": Column("inlet", [inlet for _, inlet, _ in cells]),
        "value": Column("effect", [value for _, _, value in cells], "%"),
        "ring": Column("holds", [value is not None and value > 3 for _, _, value in cells]),
    }
    options = {
        "row": "row",
        "column": "inlet",
        "value": "value",
        "ring": "ring",
        "ring_label": "holds",
        "label": "effect",
    }
    return Figure("map", "heatmap", "When would it hold?", "When it is warm.", columns, options)


def scatter(points: Sequence[tuple[float, float]], front: Sequence[bool], scale: str = "linear") -> Figure:
    columns = {
        "x": Column("throughput", [x for x, _ in points], "tokens/s"),
        "y": Column("efficiency", [y for _, y in points], "tokens/J"),
        "case": Column("case", [f"case {at}" for at in range(len(points))]),
        "front": Column("front", list(front)),
    }
    options = {"x": "x", "y": "y", "name": "case", "front": "front", "x_scale": scale, "y_scale": scale,
               "lines": [{"label": "within 10 %", "slope": 1.0, "band_fraction": 0.1}]}  # fmt: skip
    return Figure("pareto", "scatter", "Which is best?", "Those.", columns, options)


def multiples(values: Sequence[float | None]) -> Figure:
    columns = {
        "group": Column("model", ["gpt3" if at % 2 else "llama3" for at in range(len(values))]),
        "case": Column("case", [f"gpt3 tp{at}" for at in range(len(values))]),
        "speed": Column("throughput", list(values), "tokens/s"),
        "peak": Column("peak", list(values), "C"),
        "note": Column("note", ["does not fit in the memory of the GPU by far" for _ in values]),
    }
    panels = [
        {"column": "speed", "label": "throughput", "unit": "tokens/s"},
        {"column": "peak", "label": "peak", "unit": "C"},
    ]
    options = {"facet": "group", "row": "case", "panels": panels, "note": "note"}
    return Figure("strategies", "multiples", "Which strategy?", "This one.", columns, options)


def tornado(effects: Sequence[float]) -> Figure:
    columns = {
        "change": Column("change", [f"change {at}" for at in range(len(effects))]),
        "effect": Column("effect", list(effects)),
        "fits": Column("fits", [at != 0 for at in range(len(effects))]),
        "low": Column("low", [effect - 0.1 for effect in effects]),
        "high": Column("high", [effect + 0.1 if at else None for at, effect in enumerate(effects)]),
    }
    options = {name: name for name in columns}
    return Figure("changes", "tornado", "What if?", "One change.", columns, options)


def sides(values: Sequence[tuple[float, float]]) -> Figure:
    rows = [
        (f"metric {at}", run, value) for at, pair in enumerate(values) for run, value in zip("ab", pair, strict=True)
    ]
    columns = {name: Column(name, [row[at] for row in rows]) for at, name in enumerate(("metric", "run", "value"))}
    columns["unit"] = Column("unit", ["C"] * len(rows))
    options = {"metric": "metric", "run": "run", "value": "value", "unit": "unit"}
    return Figure("sides", "sides", "How do they differ?", "By this.", columns, options)


def table(texts: Sequence[str]) -> Figure:
    return Figure(
        "list", "table", "Which?", "These.", {"text": Column("text", list(texts)), "n": Column("n", [1.5] * len(texts))}
    )


def commands(texts: Sequence[str]) -> Figure:
    columns = {"for": Column("for", ["charllm"] * len(texts)), "text": Column("text", list(texts))}
    return Figure("type", "commands", "Which command do I run?", "This.", columns, {"label": "for", "text": "text"})
