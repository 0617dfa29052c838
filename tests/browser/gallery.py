"""A page with every kind of figure on made-up but plausible data, for tests of the front end and for looking at.

`python -m tests.browser.gallery FILE.html` writes it.
"""

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from charllm.report.figure import Column, Columns, Fact, Figure, Page, Section
from charllm.report.web.html import write_html

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"
PARTS = (
    "compute",
    "recompute",
    "optimizer",
    "tp_exposed",
    "pp_exposed",
    "dp_exposed",
    "straggler_wait",
    "bubble",
    "overhead",
)
LABELS = {
    "tp_exposed": "exposed tensor parallelism",
    "pp_exposed": "exposed pipeline transfers",
    "dp_exposed": "exposed data parallelism",
    "straggler_wait": "wait for slower GPUs",
    "bubble": "pipeline bubble",
}
SECONDS = {
    "stage 0": (15.9, 3.9, 0.31, 3.2, 3.1, 0.9, 0.6, 3.3, 0.5),
    "stage 1": (16.0, 3.9, 0.31, 3.2, 3.6, 0.9, 0.4, 2.9, 0.5),
    "stage 2": (16.0, 3.9, 0.31, 3.2, 3.4, 0.9, 0.3, 3.2, 0.5),
    "stage 3": (17.1, 3.9, 0.33, 3.2, 2.2, 1.1, 0.0, 3.4, 0.5),
    "mean": (16.25, 3.9, 0.315, 3.2, 3.08, 0.95, 0.33, 3.2, 0.5),
}
MEMORY = {
    "weights": (17.6, 17.0, 17.0, 17.9),
    "gradients": (17.6, 17.0, 17.0, 17.9),
    "optimizer": (26.4, 25.5, 25.5, 26.8),
    "activations": (31.0, 23.2, 15.5, 7.7),
    "scratch": (4.1, 4.1, 4.1, 9.2),
    "reserve": (2.2, 2.0, 1.9, 2.4),
    "communication": (2.0, 2.0, 2.0, 2.0),
    "context": (0.6, 0.6, 0.6, 0.6),
}
STEP_S = 31.7


def columns(**table: tuple[str, Sequence[Any]] | tuple[str, Sequence[Any], str]) -> Columns:
    """Return a table from name=(label, values) or name=(label, values, unit)."""
    return {name: Column(*entry) for name, entry in table.items()}


def seconds() -> Figure:
    rows = [(bar, part, value) for bar, own in SECONDS.items() for part, value in zip(PARTS, own, strict=True)]
    bars, parts, values = zip(*rows, strict=True)
    return Figure(
        "seconds",
        "stacked-bars",
        "Where do the seconds of a step go?",
        "Computation takes 51 % of the mean stage (16.3 of 31.7 s); exposed pipeline transfers and the pipeline bubble "
        "take 10 % each. Stage 3 computes longest, because it also holds the output layer.",
        columns(stage=("Stage", bars), part=("Part", parts), seconds=("Time", values, "s")),
        {
            "bar": "stage",
            "part": "part",
            "value": "seconds",
            "order": PARTS,
            "palette": "part",
            "labels": LABELS,
            "total": True,
            "mean_bar": "mean",
            "unit": "s",
            "horizontal": True,
        },
        conditions="Inlet 25 °C; power limit 700 W; Megatron-LM profile; defaults taken: seed 0.",
    )


def memory() -> Figure:
    rows = [(f"stage {stage}", kind, own[stage]) for stage in range(4) for kind, own in MEMORY.items()]
    stages, kinds, values = zip(*rows, strict=True)
    return Figure(
        "memory",
        "stacked-bars",
        "Does it fit in memory?",
        "Stage 0 needs most: 101.5 of 139.8 GiB, of which 31 GiB are activations of four microbatches in flight.",
        columns(stage=("Stage", stages), kind=("Kind", kinds), gib=("Memory of a GPU", values, "GiB")),
        {
            "bar": "stage",
            "part": "kind",
            "value": "gib",
            "order": tuple(MEMORY),
            "palette": "memory",
            "limit": {"value": 139.8, "label": "H200: 139.8 GiB"},
            "total": True,
            "unit": "GiB",
        },
        conditions="Peak of one rank of each stage.",
    )


def _spans(stages: int, microbatches: int) -> list[tuple[str, str, float, float, str]]:
    """Return a 1F1B schedule: forward passes, backward passes twice as long, transfers between them."""
    spans = []
    unit_s = STEP_S * 0.93 / (3 * (microbatches + stages - 1))
    for stage in range(stages):
        lane, busy_s = f"stage {stage}", 0.0
        order = [("F", at) for at in range(stages - stage)]
        for at in range(microbatches):
            order += [("B", at)] + ([("F", at + stages - stage)] if at + stages - stage < microbatches else [])
        for kind, at in order:
            ready_s = (stage + 3 * at if kind == "F" else 3 * at + stages + 2 * (stages - 1 - stage)) * unit_s
            start_s = max(busy_s, ready_s)
            if start_s > busy_s + 1e-9:
                spans.append((lane, "bubble", busy_s, start_s, ""))
            length_s = unit_s * (1 if kind == "F" else 2)
            name = "forward" if kind == "F" else "backward"
            again_s = 0.0 if kind == "F" else 0.25 * length_s
            if again_s:
                spans.append((lane, "recompute", start_s, start_s + again_s, f"microbatch {at}"))
            end_s = start_s + length_s * 0.9
            spans.append((lane, "compute", start_s + again_s, end_s, f"{name} of microbatch {at}"))
            spans.append((lane, "pp_exposed", end_s, start_s + length_s, f"send after {name} of microbatch {at}"))
            busy_s = start_s + length_s
        spans.append((lane, "straggler_wait", busy_s, STEP_S * 0.955, "waits for the slowest replica"))
        spans.append((lane, "dp_exposed", STEP_S * 0.955, STEP_S * 0.985, "reduce-scatter of gradients"))
        spans.append((lane, "optimizer", STEP_S * 0.985, STEP_S, "Adam"))
    return spans


def _signals(gpus: Sequence[str], samples: int) -> list[tuple[str, float, float, float, float]]:
    rows = []
    for place, gpu in enumerate(gpus):
        for at in range(samples):
            t_s = STEP_S * at / (samples - 1)
            wave = math.sin(t_s * 5 + place) + 0.3 * math.sin(t_s * 31 + place)
            busy = 0.35 if t_s > STEP_S * 0.96 else 1.0
            power_w = min(700.0, (640 + 45 * wave + 8 * place) * busy)
            clock_mhz = 1980 - (max(0.0, power_w - 620) * 3.1 if busy == 1.0 else 0.0)
            rows.append((gpu, t_s, power_w, clock_mhz, 64 + place + 2.4 * (1 - math.exp(-t_s / 9)) + 0.4 * wave))
    return rows


def timeline(stages: int = 4, microbatches: int = 16, samples: int = 600) -> Figure:
    gpus = ("node 0, slot 1", "node 2, slot 3", HOSTILE)
    lane, part, start, end, detail = zip(*_spans(stages, microbatches), strict=True)
    signals = _signals(gpus, samples)
    gpu, t_s, power_w, clock_mhz, temperature_c = zip(*signals, strict=True)
    held = [(own, t, t + STEP_S / samples, "power") for own, t, _, clock, _ in signals if clock < 1900]
    held += [("node 2, slot 3", 20.0, 22.5, "thermal")]
    return Figure(
        "timeline",
        "timeline",
        "What happens during a step?",
        "Stage 0 idles 3.3 s in the pipeline bubble at the end; GPU node 2, slot 3 runs at its power limit of 700 W "
        "during backward passes, which holds its clock 4 % below its maximum.",
        {},
        {
            "lanes": [f"stage {stage}" for stage in range(stages)],
            "gpus": gpus,
            "gpu": gpus[1],
            "lines": {
                "power": [{"label": "power limit 700 W", "value": 700.0}],
                "clock": [{"label": "maximum 1,980 MHz", "value": 1980.0}],
                "temperature": [{"label": "slowdown 89 °C", "value": 89.0}],
            },
        },
        conditions="One step in steady state; the lanes are of replica 0.",
        tables={
            "spans": columns(
                lane=("Stage", lane),
                part=("Part", part),
                start=("Start", start, "s"),
                end=("End", end, "s"),
                detail=("Detail", detail),
            ),
            "signals": columns(
                gpu=("GPU", gpu),
                t=("Time", t_s, "s"),
                power=("Power", power_w, "W"),
                clock=("Clock", clock_mhz, "MHz"),
                temperature=("Temperature", temperature_c, "°C"),
            ),
            "limits": columns(
                gpu=("GPU", [row[0] for row in held]),
                start=("Start", [row[1] for row in held], "s"),
                end=("End", [row[2] for row in held], "s"),
                cause=("Cause", [row[3] for row in held]),
            ),
        },
    )


def bands(samples: int = 800) -> Figure:
    times = [STEP_S * at / (samples - 1) for at in range(samples)]
    mean = [(620 + 60 * math.sin(5 * t)) * (0.4 if t > STEP_S * 0.96 else 1) for t in times]
    sensor = [value if at % 40 == 0 else None for at, value in enumerate(mean)]
    cluster = [32 * value * 1.32e-3 for value in mean]
    return Figure(
        "power",
        "bands",
        "How does power move within a step?",
        "GPUs draw 645 W on average; the highest reaches its limit of 700 W. The cluster swings between 11 and 29 kW, "
        "with a maximum ramp of 17.3 kW/s at the end of the step.",
        columns(
            t=("Time", times, "s"),
            low=("Minimum over GPUs", [value - 38 for value in mean], "W"),
            mean=("Mean over GPUs", mean, "W"),
            high=("Maximum over GPUs", [min(700.0, value + 41) for value in mean], "W"),
            sensor=("Sensor reading", sensor, "W"),
            cluster=("All GPUs", cluster, "kW"),
        ),
        {
            "x": "t",
            "panels": [
                {
                    "label": "Power of a GPU",
                    "unit": "W",
                    "low": "low",
                    "mean": "mean",
                    "high": "high",
                    "dots": "sensor",
                    "lines": [{"label": "power limit 700 W", "value": 700.0}],
                    "from_zero": True,
                },
                {"label": "Power of all 32 GPUs", "unit": "kW", "mean": "cluster", "from_zero": True},
            ],
        },
        conditions="Board power without fans and CPUs.",
    )


def node_map(nodes: int = 6, nodes_shown: int = 4) -> Figure:
    rows = []
    for node in range(nodes):
        for slot in range(8):
            row, place = slot // 4, slot % 4
            over_k = 27.5 + 8.2 * row + 1.7 * math.sin(3.1 * node + 2.3 * slot)
            rows.append(
                (
                    node,
                    slot,
                    row,
                    place,
                    f"{slot // 4}",
                    over_k,
                    25 + over_k,
                    640 + slot,
                    1890 - 9 * slot,
                    8 * node + slot,
                    node % 4,
                    (node, slot) == (2, 7),
                )
            )
    names = ("node", "slot", "row", "place", "tray", "over_k", "temperature", "power", "clock", "rank", "stage", "ring")
    heads = (
        ("Node", ""),
        ("Slot", ""),
        ("Row", ""),
        ("Place", ""),
        ("Tray", ""),
        ("Above inlet", "K"),
        ("Temperature", "°C"),
        ("Power", "W"),
        ("Clock", "MHz"),
        ("Rank", ""),
        ("Stage", ""),
        ("Paces the job", ""),
    )
    table = {
        name: Column(label, [row[at] for row in rows], unit, 3 if name == "over_k" else None)
        for at, (name, (label, unit)) in enumerate(zip(names, heads, strict=True))
    }
    return Figure(
        "heat",
        "node-map",
        "Which GPUs are hot, and which is the bottleneck?",
        "Rear GPUs are 8 K warmer than those in front of them. Node 2, slot 7 is the bottleneck: 37 K above the "
        "inlet, clock 5 % below maximum.",
        table,
        {
            "value": "over_k",
            "unit": "K",
            "scale": "cividis",
            "label": "Above the inlet temperature",
            "airflow": "front to rear",
            "nodes_shown": nodes_shown,
            "inlet": 25.0,
        },
        conditions="Mean over a step in steady state; inlet 25 °C.",
    )


def heatmap() -> Figure:
    cells = [
        (f"airflow x {flow:g}", f"{inlet} C", (inlet - 20) / flow - 20, (inlet - 20) / flow > 40)
        for flow in (1.0, 0.7, 0.5)
        for inlet in (20, 25, 30, 35, 40, 45, 50)
    ]
    cells.append(("airflow x 0.5", "55 C", None, False))  # type: ignore[arg-type]
    names = ("row", "inlet", "effect", "ring")
    table = columns(**{name: (name, [cell[at] for cell in cells]) for at, name in enumerate(names)})
    options = {"row": "row", "column": "inlet", "value": "effect", "ring": "ring", "ring_label": "holds", "unit": "%",
               "label": "effect"}  # fmt: skip
    return Figure("map", "heatmap", "When would it hold?", "It holds where it is warm.", table, options)


def links() -> Figure:
    rows = [
        ("all-reduce (tp)", "tp", 16.8, 236.0),
        ("all-gather (tp)", "tp", 8.4, 198.0),
        ("send (pp)", "pp", 33.6, 21.3),
        ("reduce-scatter (dp)", "dp", 4400.0, 41.2),
        ("all-gather (dp)", "dp", 2200.0, 43.0),
        ("all-to-all (ep)", "ep", 1.2, 9.1),
    ]
    name, axis, size, speed = zip(*rows, strict=True)
    return Figure(
        "links",
        "scatter",
        "Are the links used well?",
        "Collectives of data parallelism reach 86 % of the NIC's peak; pipeline sends of 34 MB reach 43 %.",
        columns(
            name=("Collective", name),
            axis=("Axis", axis),
            size=("Message size", size, "MB"),
            speed=("Achieved bandwidth", speed, "GB/s"),
        ),
        {
            "x": "size",
            "y": "speed",
            "x_scale": "log",
            "y_scale": "log",
            "colour": "axis",
            "name": "name",
            "lines": [{"label": "NVLink peak 450 GB/s", "y": 450.0}, {"label": "NIC peak 50 GB/s", "y": 50.0}],
        },
        conditions="Bus bandwidth as nccl-tests defines it.",
    )


def pareto(points: int = 120) -> Figure:
    rows = []
    for at in range(points):
        tp, pp = 2 ** (at % 4), 2 ** (at // 4 % 4)
        speed = 1050 - 60 * abs(math.log2(tp) - 2) - 45 * pp / 4 + 40 * math.sin(at * 1.7)
        rows.append(
            (
                f"tp {tp}, pp {pp}, mbs {1 + at % 3}",
                tp,
                ("simulated", "measured", "emulated")[at % 7 % 3],
                speed,
                1.52 + 0.0004 * (speed - 900) + 0.08 * math.sin(at * 2.3),
                0.05 * speed,
            )
        )
    front = [all(o[3] <= row[3] or o[4] <= row[4] for o in rows) for row in rows]
    best = max(range(points), key=lambda at: rows[at][3])
    return Figure(
        "pareto",
        "scatter",
        "Which strategy is fast and saves energy?",
        f"Of {points} configurations, {sum(front)} are on the Pareto front; {rows[best][0]} is fastest with "
        f"{rows[best][3]:.0f} tokens/s/GPU.",
        columns(
            name=("Configuration", [row[0] for row in rows]),
            tp=("Tensor parallelism", [row[1] for row in rows]),
            origin=("Origin", [row[2] for row in rows]),
            speed=("Throughput", [row[3] for row in rows], "tokens/s/GPU"),
            energy=("Energy efficiency", [row[4] for row in rows], "tokens/J"),
            low=("Efficiency, low", [row[4] * 0.97 for row in rows], "tokens/J"),
            high=("Efficiency, high", [row[4] * 1.03 for row in rows], "tokens/J"),
            front=("On the front", front),
            details=("Details", [{"flags": f"--tp {row[1]} --name {HOSTILE}", "source": "this study"} for row in rows]),
        ),
        {
            "x": "speed",
            "y": "energy",
            "colour": "origin",
            "shape": "origin",
            "name": "name",
            "low": "low",
            "high": "high",
            "filters": ["tp", "origin", "speed"],
            "front": "front",
            "details": "details",
        },
        conditions="Llama3-70B on 32 H200; intervals of 3 %.",
    )


def accuracy() -> Figure:
    rows = [
        ("MLPerf", 3.1, 3.3),
        ("MLPerf", 9.8, 9.4),
        ("MLPerf", 0.61, 0.55),
        ("Megatron-LM", 16.2, 17.1),
        ("Megatron-LM", 28.4, 27.1),
        ("paper", 4.7, 5.6),
        ("paper", 12.9, 12.4),
        ("paper", 1.4, 1.48),
    ]
    source, measured, predicted = zip(*rows, strict=True)
    return Figure(
        "accuracy",
        "scatter",
        "How wrong may it be?",
        "Five of eight published runs lie within 10 % of their prediction; the median error is 6 %.",
        columns(
            source=("Source", source),
            measured=("Measured step time", measured, "s"),
            predicted=("Predicted step time", predicted, "s"),
            here=("This run", [at == 4 for at in range(len(rows))]),
            name=("Run", [f"{word} {at}" for at, word in enumerate(source)]),
        ),
        {
            "x": "measured",
            "y": "predicted",
            "x_scale": "log",
            "y_scale": "log",
            "colour": "source",
            "shape": "source",
            "name": "name",
            "marked": "here",
            "lines": [{"label": "within 10 %", "slope": 1.0, "band_fraction": 0.1}],
        },
    )


def multiples() -> Figure:
    facets, strategies = (
        ("Llama3-70B", "GPT3-175B", "Mixtral-8x7B"),
        ("tp 8, pp 4", "tp 4, pp 8", "tp 2, pp 16", "FSDP"),
    )
    rows = []
    for model, base in zip(facets, (1045.0, 412.0, 2310.0), strict=True):
        for at, strategy in enumerate(strategies):
            fits = (model, strategy) != ("GPT3-175B", "FSDP")
            speed = base * (1 - 0.07 * at) if fits else None
            rows.append(
                (
                    model,
                    strategy,
                    speed,
                    speed and speed * 0.93,
                    speed and speed * 1.07,
                    speed and speed / 645,
                    71.0 - at if fits else None,
                    12.0 + 2 * at if fits else None,
                    "" if fits else "does not fit",
                )
            )
    names = ("model", "strategy", "speed", "low", "high", "energy", "heat", "loss", "note")
    heads = (
        ("Model", ""),
        ("Strategy", ""),
        ("Throughput", "tokens/s/GPU"),
        ("Low", "tokens/s/GPU"),
        ("High", "tokens/s/GPU"),
        ("Energy efficiency", "tokens/J"),
        ("Peak temperature", "°C"),
        ("Clock loss", "%"),
        ("Note", ""),
    )
    return Figure(
        "strategies",
        "multiples",
        "Which strategy suits which model?",
        "tp 8, pp 4 is fastest for all three models; FSDP does not fit for GPT3-175B.",
        {
            name: Column(label, [row[at] for row in rows], unit, 3)
            for at, (name, (label, unit)) in enumerate(zip(names, heads, strict=True))
        },
        {
            "facet": "model",
            "row": "strategy",
            "note": "note",
            "panels": [
                {
                    "column": "speed",
                    "label": "Throughput",
                    "unit": "tokens/s/GPU",
                    "low": "low",
                    "high": "high",
                    "lower_is_better": False,
                },
                {"column": "energy", "label": "Energy efficiency", "unit": "tokens/J", "lower_is_better": False},
                {"column": "heat", "label": "Peak temperature", "unit": "°C", "lower_is_better": True},
                {"column": "loss", "label": "Clock loss", "unit": "%", "lower_is_better": True},
            ],
        },
    )


def tornado() -> Figure:
    rows = [
        ("overlap tp, dp, pp", 0.076, 0.061, 0.09, True, ""),
        ("microbatch size 2", 0.031, 0.012, 0.048, True, ""),
        ("inlet 18 °C instead of 25 °C", 0.009, 0.004, 0.014, True, ""),
        ("power limit 600 W", -0.052, -0.071, -0.04, True, "saves 11 % of energy"),
        ("recompute everything", -0.18, -0.2, -0.16, True, ""),
        ("no recomputation", 0.21, 0.19, 0.23, False, "needs 188 GiB of 139.8 GiB"),
        ("vpp 8", None, None, None, True, "80 layers cannot be divided into 32 chunks"),
    ]
    change, effect, low, high, fits, note = zip(*rows, strict=True)
    return Figure(
        "changes",
        "tornado",
        "What would one change bring?",
        "Overlapping communication brings most: +7.6 % throughput (6.1 to 9.0 %). Without recomputation the run "
        "would be 21 % faster, but it does not fit in memory.",
        columns(
            change=("Change", change),
            effect=("Change of throughput", effect),
            low=("Low", low),
            high=("High", high),
            fits=("Fits in memory", fits),
            note=("Note", note),
        ),
        {
            "change": "change",
            "effect": "effect",
            "low": "low",
            "high": "high",
            "fits": "fits",
            "note": "note",
            "unit": "%",
        },
    )


def sides() -> Figure:
    metrics = {
        "Step time": ("s", (31.7, 30.2, 30.9)),
        "Throughput": ("tokens/s/GPU", (1045.0, 1096.0, 1071.0)),
        "Mean power": ("W", (645.0, 661.0, 652.0)),
        "Peak temperature": ("°C", (71.0, 69.0, None)),
    }
    runs = (("prediction", "simulated"), ("job 4711", "measured"), ("rank 0 alone", "emulated"))
    rows: list[tuple[Any, ...]] = []
    for metric, (unit, values) in metrics.items():
        for (run, origin), value in zip(runs, values, strict=True):
            known = (0.95 * value, 1.05 * value, unit, value / values[0] - 1) if value else (None, None, unit, None)
            rows.append((metric, run, origin, value, *known))
    names = ("metric", "run", "origin", "value", "low", "high", "unit", "error")
    heads = ("Metric", "Run", "Origin", "Value", "Low", "High", "Unit", "Difference")
    return Figure(
        "sides",
        "sides",
        "Do prediction and measurement agree?",
        "The measured step is 4.7 % shorter than predicted, within its interval; power is 2.5 % higher.",
        {
            name: Column(head, [row[at] for row in rows])
            for at, (name, head) in enumerate(zip(names, heads, strict=True))
        },
        {
            "metric": "metric",
            "run": "run",
            "origin": "origin",
            "value": "value",
            "low": "low",
            "high": "high",
            "unit": "unit",
            "error": "error",
        },
    )


def assumptions() -> Figure:
    rows = [
        ("Airflow preheating", "5.4 K", "assumed", "no published measurement"),
        ("Board power", "700 W", "datasheet", "NVIDIA H200"),
        ("Attention ramp", "0.82", "measured", "op bench on one H200"),
        (HOSTILE, 'a, "b"', "assumed", HOSTILE),
    ] * 3
    what, value, kind, source = zip(*rows, strict=True)
    return Figure(
        "assumptions",
        "table",
        "Which data and assumptions is it based on?",
        "12 figures, of which 6 are assumed.",
        columns(
            what=("What", what),
            value=("Value", value),
            number=("Number", list(range(11, -1, -1))),
            kind=("Kind", kind),
            source=("Source", source),
        ),
        {"filters": ["kind"], "search": True},
    )


def commands() -> Figure:
    text = f"charllm simulate --model llama3-70b --cluster charllm-ppt-h200 --tp 4 --pp 4 --set model.name='{HOSTILE}'"
    return Figure(
        "commands",
        "commands",
        "Which command do I run?",
        "The best strategy as a command.",
        columns(label=("For", ["Simulate it"]), text=("Text", [text])),
        {"label": "label", "text": "text"},
    )


def gallery() -> Page:
    """Return the page with every kind of figure."""
    missing = Figure(
        "sensor", "bands", "What would a sensor show?", "", missing="No sensor data: the run was simulated."
    )
    return Page(
        "Llama3-70B on 32 H200 (tp 4, pp 4)",
        [
            "31.7 s a step (28.4 to 34.9 s), 1,045 tokens/s/GPU, model FLOPs utilisation 47 %.",
            "Power-limited: mean 645 W, peak 889 W (25 ms average), clock 12 % below maximum. Hottest GPU 71 °C, 18 K "
            "below slowdown: node 2, slot 7, behind slot 3.",
            "Best single change: overlap tp, dp and pp communication (+7.6 %).",
        ],
        [
            Fact("Step time", "31.7 s", "28.4 to 34.9 s", "seconds"),
            Fact("Throughput", "1,045 tokens/s/GPU", "950 to 1,166", "seconds"),
            Fact("Mean power", "645 W", "612 to 678 W", "power"),
            Fact("Peak temperature", "71 °C", "67 to 75 °C", "heat", "behind slot 3: 8 K are preheated air"),
            Fact("Clock below maximum", "12 %", "9 to 15 %", "timeline"),
            Fact("Best single change", "+7.6 %", "6.1 to 9.0 %", "changes", "overlap tp, dp, pp"),
        ],
        [
            Section("Time", [seconds(), timeline()]),
            Section("Power and heat", [bands(), node_map(), heatmap(), missing]),
            Section("Memory and links", [memory(), links()]),
            Section("Choices", [pareto(), multiples(), tornado(), commands()]),
            Section("Trust", [accuracy(), sides(), assumptions()]),
        ],
        origin="simulated",
        warnings=["Preheating of rear GPUs is assumed, not measured.", "No interval is known for peak power."],
        provenance={
            "charllm": "0.9.0",
            "spec": "3f2a9c01",
            "seed": 0,
            "made": "2026-11-16",
            "rests on": {"measured": [f"figure {at}" for at in range(14)], "assumed": ["preheating", "fan power"]},
        },
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(write_html(gallery()), encoding="utf-8")
