"""Recommendations for machines and operation: each a simulated change, its gain, and where it reverses."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from charllm.catalog.resolve import resolve_cluster
from charllm.report.claims import Accuracy, Claim
from charllm.reproduce.conditions import Setting
from charllm.reproduce.finding import Configuration, Configurations, Number, percent_less, percent_more
from charllm.reproduce.findings.hardware import best_of_each, best_percent, candidates
from charllm.reproduce.paper import H100, H200, MODELS, Request, degrees, dense_runs, run_of, runs_of, with_change
from charllm.result.differences import ANY
from charllm.units import GIB

SPEED, EFFICIENCY = percent_more("tokens_per_s"), percent_more("tokens_per_j")
FASTER, CHEAPER = Accuracy("step time", ANY, "%"), Accuracy("energy", ANY, "%")
SPREAD = (
    "gpt3-175b tp8-pp4 / act", "gpt3-175b tp2-pp16 / act", "llama3-70b tp4-pp4 / act", "llama3-70b tp8-fsdp4 / act",
    "mixtral-8x22b ep8-tp1-pp4 / act", "mixtral-8x22b ep8-tp4 / act", "mixtral-8x7b ep8-tp1 / act",
)  # fmt: skip
"""Representative H200 runs: tensor and pipeline parallelism, FSDP, expert groups inside nodes and across."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """Advice, the change that is simulated to judge it, and its gain."""

    name: str
    claim: str
    counterfactual: str
    unit: str
    configurations: Configurations
    worth: float = 1.0
    """A smaller gain counts as none."""
    accuracy: Accuracy | None = None
    """Which differences its gains are; None: no error of them is known."""
    arms: tuple[Setting, ...] = ()
    """Further conditions under which it is judged."""
    cost: str = ""
    """What the change costs that is not in the gain."""

    @property
    def gain(self) -> Claim:
        """That the change gains, as a claim: judged by the rule of findings."""
        return Claim(name=self.name, text=self.claim, unit=self.unit, least=self.worth, accuracy=self.accuracy)

    @property
    def runs(self) -> list[Request]:
        """All runs that it needs, under every condition."""
        runs = [run for one in self.configurations.values() for run in one.runs]
        return [*runs, *(arm.apply(run) for arm in self.arms for run in runs)]


def _chosen() -> dict[str, Request]:
    return {case.removesuffix(" / act"): run_of(H200, case) for case in SPREAD}


def _pairs(change: Mapping[str, object], effect: Number, runs: Mapping[str, Request]) -> Configurations:
    return {name: Configuration((with_change(run, dict(change)), run), effect) for name, run in runs.items()}


def nics() -> Recommendation:
    """A NIC for each GPU."""
    return Recommendation(
        name="nics-per-gpu",
        accuracy=FASTER,
        claim="Give every GPU its own NIC.",
        counterfactual="eight NICs of 100 Gb/s per node instead of one, 32 H200",
        unit="% higher throughput",
        configurations=_pairs({"cluster": {"fabric": {"nics_per_node": 8}}}, SPEED, _chosen()),
        arms=(Setting(nic=4.0), Setting(nic=8.0)),
        cost="seven more NICs and switch ports per node",
    )


def memory() -> Recommendation:
    """Larger memory against more GPUs."""
    return Recommendation(
        name="memory-not-count",
        accuracy=CHEAPER,
        claim="Prefer larger GPU memory to more GPUs for models that need recomputation or are communication-bound.",
        counterfactual="32 H200 (141 GB) instead of 64 H100 (80 GB), each with its most efficient strategy that fits",
        unit="% more tokens per joule",
        configurations=best_of_each("tokens_per_j"),
        arms=(Setting(nic=4.0), Setting(nic=8.0)),
        cost="training time: the finding scale-up says where 64 GPUs are faster",
    )


def larger_memory() -> Recommendation:
    """The same GPUs with more memory."""
    h200 = resolve_cluster("charllm-ppt-h200").gpu.memory_bytes
    change = {"cluster": {"node": {"gpu": {"memory_bytes": h200}}}}
    found = {}
    for model in MODELS:
        now = candidates(H100, model)
        larger = [with_change(run, change) for run in now]
        found[model] = Configuration((*larger, *now), best_percent(len(larger), "tokens_per_s"))
    return Recommendation(
        name="memory-size",
        accuracy=FASTER,
        claim="Give GPUs enough memory to train without recomputation.",
        counterfactual=f"{h200 / GIB:.0f} GiB instead of 80 GB of memory on 64 H100, each with its fastest strategy "
        "that fits",
        unit="% higher throughput",
        configurations=found,
        cost="the price of memory; its bandwidth is unchanged",
    )


def airflow() -> Recommendation:
    """No slot behind another."""
    change = {"cluster": {"node": {"upstream": [-1] * 8, "preheat_k_per_w": 0.0, "rear_sink_fraction": 1.0}}}
    return Recommendation(
        name="airflow-order",
        accuracy=FASTER,
        claim="Do not place one GPU behind another in the airflow.",
        counterfactual="every slot of the H200 node at the inlet, with the heat sink of a front slot",
        unit="% higher throughput",
        configurations=_pairs(change, SPEED, dense_runs("act")),
        arms=(Setting(inlet_c=35.0), Setting(inlet_c=45.0), Setting(inlet_c=35.0, flow=0.7), Setting(inlet_c=50.0)),
        cost="a wider chassis or air ducts",
    )


def slot_caps() -> Recommendation:
    """A lower power cap for rear slots."""
    found = {}
    for name, run in dense_runs("act").items():
        cluster = resolve_cluster(run["cluster"])
        rear = [slot for slot in range(cluster.node.gpus) if cluster.node.upstream_slots(slot)]
        gpus = [node * cluster.node.gpus + slot for node in range(cluster.nodes) for slot in rear]
        capped = {"conditions": {"capped_gpus": gpus, "capped_power_w": 0.93 * cluster.gpu.power_cap_w}}
        found[name] = Configuration((with_change(run, capped), run), EFFICIENCY)
    return Recommendation(
        name="slot-caps",
        accuracy=CHEAPER,
        claim="Set a lower power cap for rear slots than for front slots.",
        counterfactual="rear slots of every node capped at 93 % of the board's limit",
        unit="% more tokens per joule",
        configurations=found,
        worth=0.5,
        arms=(Setting(inlet_c=35.0), Setting(inlet_c=45.0), Setting(inlet_c=50.0)),
        cost="throughput: a capped GPU slows down its group",
    )


def liquid() -> Recommendation:
    """Liquid cooling."""
    return Recommendation(
        name="liquid-cooling",
        accuracy=CHEAPER,
        claim="Use liquid cooling.",
        counterfactual="cold plates instead of air cooling, with coolant at the former inlet temperature",
        unit="% more tokens per joule",
        configurations=_pairs({"cluster": {"cooling": {"kind": "liquid"}}}, EFFICIENCY, _chosen()),
        arms=(Setting(inlet_c=35.0), Setting(inlet_c=45.0)),
        cost="plumbing; power of pumps and chillers, less that of the fans",
    )


def smoothing() -> Recommendation:
    """A clock limit against oscillations of power."""
    found = {}
    for name, run in {**dense_runs("act"), **{k: v for k, v in _chosen().items() if "mixtral" in k}}.items():
        clock_hz = 0.8 * resolve_cluster(run["cluster"]).gpu.clock_max_hz
        found[name] = Configuration(
            (with_change(run, {"conditions": {"clock_cap_hz": clock_hz}}), run), percent_less("cluster_power_swing_w")
        )
    return Recommendation(
        name="power-smoothing",
        claim="Limit the maximum clock where power oscillations are a problem for the grid or the power supplies.",
        counterfactual="maximum clock limited to 80 %",
        unit="% smaller 0.1-3 Hz oscillation of cluster power",
        configurations=found,
        worth=5.0,
        arms=(Setting(inlet_c=35.0), Setting(cap=0.85)),
        cost="throughput, where the power cap does not already hold the clock lower",
    )


def fabric() -> Recommendation:
    """A faster fabric."""
    return Recommendation(
        name="fabric",
        accuracy=FASTER,
        claim="Build nodes with at least 400 Gb/s where strategies send gradients, weights or tokens between nodes.",
        counterfactual="400 Gb/s per node instead of 100 Gb/s",
        unit="% higher throughput",
        configurations={
            name: Configuration((Setting(nic=4.0).apply(run), run), SPEED) for name, run in _chosen().items()
        },
        cost="NICs and switches",
    )


def inside_nodes() -> Recommendation:
    """Placement of expert groups."""
    runs = runs_of(H200, starts="mixtral-8x22b", ends=" / act")
    local = run_of(H200, "mixtral-8x22b ep8-tp1-pp4 / act")
    found = {
        name.removesuffix(" / act"): Configuration((local, run), SPEED)
        for name, run in runs.items()
        if degrees(run)[0] > 1
    }
    return Recommendation(
        name="experts-inside-nodes",
        accuracy=Accuracy("step time", "strategy", "%"),
        claim="Keep expert groups within a node and use pipeline parallelism between nodes.",
        counterfactual="expert groups inside nodes (EP8-TP1-PP4) instead of across nodes, Mixtral-8x22B",
        unit="% higher throughput",
        configurations=found,
        arms=(Setting(nic=4.0), Setting(nic=8.0)),
        cost="none, if the strategy fits in memory",
    )


RECOMMENDATIONS: dict[str, Callable[[], Recommendation]] = {
    "nics-per-gpu": nics,
    "fabric": fabric,
    "memory-not-count": memory,
    "memory-size": larger_memory,
    "experts-inside-nodes": inside_nodes,
    "airflow-order": airflow,
    "slot-caps": slot_caps,
    "liquid-cooling": liquid,
    "power-smoothing": smoothing,
}
