"""What the loop says of CharLLM-PPT's claims on its own configurations: `python -m benchmarks.findings [--write]`.

Each claim is a number per configuration, swept over the inlet, and a mark that was set before it was computed. Nothing
is fitted here. Where air that is warmed upstream matters, the assumed preheat is also set to nothing and to twice.
Prints the tables; with --write, docs/findings.md (two minutes).
"""

import argparse
import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from charllm.catalog.resolve import resolve_run
from charllm.simulate.predict import simulate
from charllm.spec.request import merge

Request = dict[str, Any]

INLETS_C = (20.0, 25.0, 30.0, 35.0, 40.0, 45.0, 50.0)
USUAL_C, WARM_C = 25.0, 45.0
PREHEAT_K_PER_W = 0.0083
"""As the catalog assumes for HGX nodes."""
BASE: Request = {
    "cluster": {"base": "h200x32"},
    "framework": {
        "base": "nemo",
        "in_switch_reduction": False,
        "default_overlap": [],
        "default_interleaving": False,
    },
    "training": {"global_batch_size": 128},
}
ACT: Request = {"training": {"recompute": "full"}}
CC: Request = {"parallelism": {"overlap": ["tp", "dp"]}}
LORA: Request = {"training": {"lora_rank": 32, "lora_targets": ["qkv"]}, "parallelism": {"zero": 0}}
SHORT: Request = {"training": {"seq_length": 2048}}
GPT3 = {f"gpt3-175b tp{tp}-pp{32 // tp}": {"model": "gpt3-175b", "parallelism": {"tp": tp, "pp": 32 // tp}}
        for tp in (8, 4, 2, 1)}  # fmt: skip
LLAMA = {f"llama3-70b tp{tp}-pp{16 // tp}": {"model": "llama3-70b", "parallelism": {"tp": tp, "pp": 16 // tp}}
         for tp in (8, 4, 2, 1)}  # fmt: skip
FRONT, REAR = (1, 2, 5, 7), (0, 3, 4, 6)
"""Slots of an HGX node without and with another one upstream."""


class Seen(NamedTuple):
    """One run, as far as it matters here."""

    step_s: float
    tokens_per_j: float
    power_w: float
    sensor_w: float
    peak_c: float
    front_c: float
    rear_c: float
    lost: float
    """Clock lost to any cause, over the one asked for: the paper's throttling."""
    lost_to_heat: float


@lru_cache(maxsize=4096)
def _see(text: str) -> Seen:
    result = simulate(resolve_run(json.loads(text)), ignore_memory=True)
    metrics, rows = result.metrics, result.gpus

    def mean_c(slots: tuple[int, ...]) -> float:
        return fmean(row["temperature_mean_c"] for row in rows if row["slot"] in slots)

    loss = metrics["clock_loss_fraction"]
    return Seen(
        metrics["step_time_s"], metrics["tokens_per_j"], metrics["power_mean_w"], metrics["power_peak_sensor_w"],
        metrics["temperature_peak_c"], mean_c(FRONT), mean_c(REAR), sum(loss.values()), loss["thermal"],
    )  # fmt: skip


class Air(NamedTuple):
    """What GPUs are cooled with."""

    inlet_c: float = USUAL_C
    preheat_k_per_w: float = PREHEAT_K_PER_W


def see(air: Air, *changes: Request) -> Seen:
    """Predict one of the paper's runs in some air."""
    cluster = {"cooling": {"inlet_c": air.inlet_c}, "node": {"preheat_k_per_w": air.preheat_k_per_w}}
    request = merge(BASE, {"cluster": cluster})
    for change in changes:
        request = merge(request, change)
    return _see(json.dumps(request, sort_keys=True))


Number = Callable[[Air], float]


class Claim(NamedTuple):
    """A claim as numbers: one per configuration, and from where on it counts as seen."""

    name: str
    says: str
    unit: str
    cases: dict[str, Number]
    marks: dict[str, float]
    """Case: what its number has to exceed; a negative mark has to be undercut."""
    beside: dict[str, Number] = {}  # noqa: RUF012
    """Further numbers for the table."""
    on_preheat: bool = False
    size: float | None = None
    """What the largest number has to reach for the claim's own size."""
    note: str = ""

    def seen(self, case: str, air: Air) -> bool:
        """Tell whether a case shows it."""
        mark, number = self.marks[case], self.cases[case](air)
        return number > mark if mark >= 0 else number < mark


def claim(name: str, says: str, unit: str, cases: dict[str, Number], mark: float, **more: Any) -> Claim:
    """Return a claim with one mark for all cases."""
    return Claim(name, says, unit, cases, dict.fromkeys(cases, mark), **more)


def points_lost(case: Request, without: Request) -> Number:
    """Return how much more clock a run loses than another, in points."""
    return lambda air: 100 * (see(air, case).lost - see(air, without).lost)


def hotter_k(case: Request, without: Request) -> Number:
    return lambda air: see(air, case).peak_c - see(air, without).peak_c


def percent(field: str, case: Request, without: Request) -> Number:
    """Return by how many per cent a figure of one run is above that of another."""
    return lambda air: 100 * (getattr(see(air, case), field) / getattr(see(air, without), field) - 1)


def times(field: str, case: Request, without: Request) -> Number:
    return lambda air: getattr(see(air, case), field) / getattr(see(air, without), field)


def rear_front() -> Claim:
    runs = {name: merge(run, ACT) for name, run in {**GPT3, **LLAMA}.items()}

    def in_percent(run: Request) -> Number:
        return lambda air: 100 * (see(air, run).rear_c / see(air, run).front_c - 1)

    def in_kelvin(run: Request) -> Number:
        return lambda air: see(air, run).rear_c - see(air, run).front_c

    def above_inlet(run: Request) -> Number:
        return lambda air: 100 * ((see(air, run).rear_c - air.inlet_c) / (see(air, run).front_c - air.inlet_c) - 1)

    one = "gpt3-175b tp8-pp4"
    return claim(
        "rear-front", "Rear GPUs of a node are up to 27 % hotter than front ones.", "% of degrees Celsius",
        {name: in_percent(run) for name, run in runs.items()}, 10.0,
        beside={f"{one}, K": in_kelvin(runs[one]), f"{one}, % of K above inlet": above_inlet(runs[one])},
        on_preheat=True, size=27.0,
        note="At a given power the gap in kelvin does not depend on the inlet, so that its share of degrees Celsius "
        "falls when the inlet rises: 27 % would need about twice the assumed preheat, or a much cooler room. The whole "
        "gap of hot slots is measured (public traces of an 8-GPU node), how much of it is preheat is not: "
        "without preheat, and the sink's share as large as the traces then need, the gap at equal power is the same.",
    )  # fmt: skip


def deep_pipelines() -> Claim:
    shallow = {
        "gpt3-175b": merge(GPT3["gpt3-175b tp8-pp4"], ACT),
        "llama3-70b": merge(LLAMA["llama3-70b tp8-pp2"], ACT),
    }
    deep = {name: merge(run, ACT) for name, run in {**GPT3, **LLAMA}.items() if "tp8" not in name}
    return claim(
        "deep pipelines", "Deep pipelines (PP16 to 32) throttle more than tensor-parallel ones.",
        "points of clock lost",
        {name: points_lost(run, shallow[name.split()[0]]) for name, run in deep.items()}, 0.5,
        beside={f"{name}, hottest GPU, K": hotter_k(run, shallow["gpt3-175b"])
                for name, run in deep.items() if name.startswith("gpt3")},
        on_preheat=True,
        note="Each against TP8 of the same model. Tensor parallelism over NVLink rests between its products, and rests "
        "let the clock up; a deep pipeline works in longer stretches. Its GPUs lose more clock and are not hotter: the "
        "cap holds power in both, and deep pipelines wait longer for each other.",
    )  # fmt: skip


def overlap() -> Claim:
    runs = {name: run for name, run in {**GPT3, **LLAMA}.items() if "tp1-pp32" not in name}
    return claim(
        "overlap", "Overlap of computation and communication always raises peak temperature and throttling.",
        "points of clock lost", {name: points_lost(merge(run, CC), run) for name, run in runs.items()}, 0.1,
        beside={**{f"{name}, hottest GPU, K": hotter_k(merge(run, CC), run) for name, run in runs.items()},
                **{f"{name}, step time %": percent("step_s", merge(run, CC), run) for name, run in runs.items()}},
        note="Runs in which the flag acts (GPT-3 on TP1 has nothing to overlap). Throttling rises wherever "
        "tensor-parallel exchange is hidden; peak temperature does not, for the cap holds power either way. "
        "Overlap is faster all the same.",
    )  # fmt: skip


def microbatch() -> Claim:
    cases: dict[str, Number] = {}
    beside: dict[str, Number] = {}
    chosen = {**GPT3, **LLAMA}
    for name in ("gpt3-175b tp8-pp4", "gpt3-175b tp2-pp16", "llama3-70b tp4-pp4"):
        run = merge(chosen[name], ACT)
        for size in (2, 4, 8):
            larger = merge(run, {"training": {"micro_batch_size": size}})
            cases[f"{name} mbs {size}"] = percent("sensor_w", larger, run)
            beside[f"{name} mbs {size}, step time %"] = percent("step_s", larger, run)
            beside[f"{name} mbs {size}, points of clock lost"] = points_lost(larger, run)
    return claim(
        "microbatch", "Larger microbatches raise peak power even where throughput does not rise.",
        "% of the sensor's peak (25 ms) against mbs 1", cases, 0.5, beside=beside,
        note="The peak is that of a burst after a rest, before the governor answers: larger products draw more, and a "
        "larger bubble lets the clock climb further before they begin.",
    )  # fmt: skip


def recompute() -> Claim:
    runs = {name: run for name, run in {**GPT3, **LLAMA}.items() if name.split()[1] in
            ("tp2-pp16", "tp1-pp32", "tp8-pp2", "tp4-pp4")}  # fmt: skip
    cases = {name: points_lost(merge(run, ACT), run) for name, run in runs.items()}
    marks = {name: -0.1 if name.startswith("gpt3") else 0.1 for name in runs}
    return Claim(
        "recompute", "Recomputation lowers throttling of GPT3-175B on deep pipelines and raises it for Llama3-70B.",
        "points of clock lost", cases, marks,
        note="Holds for Llama3-70B up to 40 C, not for GPT3-175B: recomputation adds products and no rests, so that "
        "both lose more clock. Runs that would not fit without recomputation are priced all the same.",
    )  # fmt: skip


def lora() -> Claim:
    chosen = {name: merge({**GPT3, **LLAMA}[name], SHORT)
              for name in ("gpt3-175b tp8-pp4", "gpt3-175b tp2-pp16", "llama3-70b tp4-pp4")}  # fmt: skip
    full = {name: merge(run, ACT) for name, run in chosen.items()}
    beside: dict[str, Number] = {}
    for name, run in chosen.items():
        beside[f"{name}, mean power %"] = percent("power_w", merge(run, LORA), full[name])
        beside[f"{name}, hottest GPU, K"] = hotter_k(merge(run, LORA), full[name])
    return claim(
        "LoRA", "LoRA is more than ten times as efficient, at lower power and temperature.",
        "tokens a joule, times full",
        {name: times("tokens_per_j", merge(run, LORA), full[name]) for name, run in chosen.items()},
        1.0, beside=beside, size=10.0,
        note="At equal sequences and batch, against full training with recomputation. LoRA saves the products of "
        "weight gradients, their exchange and recomputation: less than a factor of two. What the paper compares is "
        "not known here; the artifact's LoRA runs have shorter sequences than its training runs.",
    )  # fmt: skip


def straggler() -> Claim:
    def weak(run: Request, gpu: int, power: float) -> Number:
        change = {"conditions": {"weak_gpus": [gpu], "weak_power_fraction": power}}
        return percent("step_s", merge(run, change), run)

    cases = {}
    for name, run in {**GPT3, **LLAMA}.items():
        if name.split()[1] in ("tp8-pp4", "tp2-pp16", "tp4-pp4"):
            cases[f"{name}, front, +15 %"] = weak(merge(run, ACT), 9, 1.15)
            cases[f"{name}, rear, +15 %"] = weak(merge(run, ACT), 8, 1.15)
            cases[f"{name}, rear, +30 %"] = weak(merge(run, ACT), 8, 1.3)
    return claim(
        "one straggler", "One GPU that draws more than others at equal work slows all.", "% of step time", cases, 0.5,
        on_preheat=True,
        note="One GPU of 32, in node 1. In a group that meets after every layer all wait for it; where the pipeline's "
        "slowest stage is another one, it hides in the bubble.",
    )  # fmt: skip


def brake() -> Claim:
    cases = {}
    for name, run in {**GPT3, **LLAMA}.items():
        if name.split()[1] in ("tp8-pp4", "tp2-pp16", "tp4-pp4"):
            for text, clock_hz in (("half clock", None), ("lowest clock", 345e6)):
                braked: Request = {"braked_nodes": [1]}
                change = {"conditions": {**braked, "brake_clock_hz": clock_hz} if clock_hz else braked}
                cases[f"{name}, {text}"] = times("step_s", merge(merge(run, ACT), change), merge(run, ACT))
    return claim("one braked node", "A power fault of one node made the job more than four times as slow.",
                 "times the step time", cases, 1.1, size=4.0,
                 note="Four times needs a brake close to the lowest clock; half the clock, the usual brake, costs what "
                 "computing takes of a step.")  # fmt: skip


def placement() -> Claim:
    run = merge(GPT3["gpt3-175b tp4-pp8"], ACT)
    rows = [node * 8 + slot for node in range(4) for slots in (FRONT, REAR) for slot in slots]
    apart = merge(run, {"conditions": {"gpu_of_rank": rows, "placement": "rows.json"}})
    uneven = {more: merge(apart, {"parallelism": {"layers_per_stage": [12 + more, 12 - more] * 4}}) for more in (1, 2)}
    cases = {"rows apart": apart, "rows apart, 13 / 11 layers": uneven[1], "rows apart, 14 / 10 layers": uneven[2]}

    def gain(case: Request) -> Number:
        return lambda air: 100 * (see(air, run).step_s / see(air, case).step_s - 1)

    return claim(
        "thermal placement", "Stages on cool and on hot slots, with fewer layers on the hot ones, gain 4 to 7 %.",
        "% of tokens a second", {name: gain(case) for name, case in cases.items()}, 1.0, on_preheat=True, size=4.0,
        note="GPT3-175B TP4-PP8: each node holds one stage on its four front slots and one on its four rear ones. "
        "Uneven layers cost what the longer stage takes longer; that pays only where heat holds the rear row.",
    )  # fmt: skip


def thermal() -> Claim:
    runs = {name: merge(run, ACT) for name, run in {**GPT3, **LLAMA}.items()}

    def lost(run: Request) -> Number:
        return lambda air: 100 * see(air, run).lost_to_heat

    def slower(run: Request) -> Number:
        return lambda air: 100 * (see(air, run).step_s / see(Air(USUAL_C, air.preheat_k_per_w), run).step_s - 1)

    return claim(
        "throttling by heat", "Air-cooled nodes lose clock to heat.", "points of clock lost to heat",
        {name: lost(run) for name, run in runs.items()}, 0.1,
        beside={f"{name}, step time % of that at 25 C": slower(run) for name, run in runs.items()}, on_preheat=True,
        note="The paper counts any loss of clock; at usual inlets all of it is the power cap's. How steeply a clock "
        "falls above its threshold is assumed (2 % a kelvin, half above slowdown).",
    )  # fmt: skip


CLAIMS = (rear_front, deep_pipelines, overlap, microbatch, recompute, lora, straggler, brake, placement, thermal)


def verdict(one: Claim) -> str:
    """Say whether a claim is seen at the usual inlet in all, some or none of its cases, and at its size."""
    seen = [one.seen(case, Air()) for case in one.cases]
    large = one.size is None or max(number(Air()) for number in one.cases.values()) >= one.size
    return "holds" if all(seen) and large else "partly" if any(seen) else "does not hold"


def first_inlet(one: Claim, case: str) -> str:
    """Return the lowest inlet from which on a case shows the claim at every higher one."""
    below = [inlet for inlet in INLETS_C if not one.seen(case, Air(inlet))]
    if not below:
        return "all"
    above = [inlet for inlet in INLETS_C if inlet > max(below)]
    if above:
        return f"{above[0]:.0f} C"
    return "none" if len(below) == len(INLETS_C) else f"not at {', '.join(f'{inlet:.0f}' for inlet in below)} C"


def describe(one: Claim) -> list[str]:
    """Return one claim as Markdown: what is seen, by inlet, and how far it rests on preheat."""
    head = ["configuration", *(f"{inlet:.0f} C" for inlet in INLETS_C), "seen from"]
    rows = [
        [case, *(f"{number(Air(inlet)):.2f}" for inlet in INLETS_C), first_inlet(one, case)]
        for case, number in one.cases.items()
    ]
    rows += [[name, *(f"{number(Air(inlet)):.2f}" for inlet in INLETS_C), ""] for name, number in one.beside.items()]
    marks = ", ".join(sorted({f"{'above' if mark >= 0 else 'below'} {mark:g}" for mark in one.marks.values()}))
    marks += f"; claimed size {one.size:g}" if one.size else ""
    said = f"Claim: {one.says} **{verdict(one)}** (seen: {marks} {one.unit}, at {USUAL_C:.0f} C)."
    text = [f"## {one.name}", "", said,
            "", f"In {one.unit}, by inlet:", "", *_markdown(head, rows), ""]  # fmt: skip
    if one.on_preheat:
        other = [(inlet, preheat) for inlet in (USUAL_C, WARM_C) for preheat in (0.0, 1.0, 2.0)]
        head = ["configuration", *(f"{inlet:.0f} C, preheat x {preheat:g}" for inlet, preheat in other)]
        rows = [
            [case, *(f"{number(Air(inlet, preheat * PREHEAT_K_PER_W)):.2f}" for inlet, preheat in other)]
            for case, number in one.cases.items()
        ]
        text += ["Rests on assumed preheat; with none, as assumed and twice:", "", *_markdown(head, rows), ""]
    return [*text, one.note, ""] if one.note else text


def _markdown(head: list[str], rows: list[list[str]]) -> list[str]:
    lines = [" | ".join(cells) for cells in (head, ["---"] * len(head), *rows)]
    return [f"| {line} |" for line in lines]


INTRODUCTION = f"""# The paper's findings, computed

What the closed loop says of the claims of CharLLM-PPT (MICRO'25) on its 32 H200, written by
`python -m benchmarks.findings --write`. Nothing is fitted to any of them: power, heat and clocks are calibrated on
single kernels, on an idle and soaked board and on public traces of a node. "Throttling" is any loss of clock, as the
paper reads it from clocks; its causes are separated in the last table. A claim *holds* when every configuration shows
it at an inlet of {USUAL_C:.0f} C and one its size, *partly* when some do. All claims are known from summaries of the
paper.

The last table says from which inlet on clocks are lost to heat: there the hot slots reach their limit and pace
everybody. How steeply clocks fall there is assumed. Below, a warmer inlet costs time through leakage alone.
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true", help="write docs/findings.md")
    arguments = parser.parse_args()
    parts, summary = [], []
    for build in CLAIMS:
        one = build()
        parts += describe(one)
        numbers = [number(Air()) for number in one.cases.values()]
        inlets = sorted({first_inlet(one, case) for case in one.cases})
        effect = f"{min(numbers):.2f} to {max(numbers):.2f} {one.unit}"
        summary.append([one.name, one.says, verdict(one), effect, ", ".join(inlets)])
        print("\n".join([*summary[-1], ""]), flush=True)
    head = ["finding", "claim", f"at {USUAL_C:.0f} C", "effect", "seen from inlet"]
    text = "\n".join([INTRODUCTION, *_markdown(head, summary), "", *parts])
    print(text)
    if arguments.write:
        (Path(__file__).parent.parent / "docs" / "findings.md").write_text(text.rstrip() + "\n")


if __name__ == "__main__":
    main()
