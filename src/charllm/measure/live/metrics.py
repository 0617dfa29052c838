"""A snapshot in Prometheus' words: names with units, HELP and TYPE, labels; a reading that is missing has no sample."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from charllm.errors import MissingExtra
from charllm.gpu.limits import LIMITS
from charllm.measure.live.rows import is_counter
from charllm.measure.live.snapshot import GpuNow, NodeNow, Snapshot
from charllm.measure.live.watcher import Watcher, is_silent
from charllm.measure.quantities import QUANTITIES

GPU_LABELS = ("node", "gpu", "uuid", "rank")


class Metric(NamedTuple):
    """A quantity of a GPU as a metric."""

    name: str
    help: str
    quantity: str
    counter: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    """Labels that tell quantities of one metric apart."""


NAMES = {
    "power_instant_w": "gpu_power_watts",
    "power_average_w": "gpu_power_average_watts",
    "power_limit_w": "gpu_power_limit_watts",
    "memory_power_w": "gpu_memory_power_watts",
    "energy_j": "gpu_energy_joules",
    "temperature_c": "gpu_temperature_celsius",
    "memory_temperature_c": "gpu_memory_temperature_celsius",
    "hotspot_c": "gpu_hotspot_celsius",
    "margin_k": "gpu_slowdown_margin_celsius",
    "clock_hz": "gpu_clock_hertz",
    "memory_clock_hz": "gpu_memory_clock_hertz",
    "memory_used_bytes": "gpu_memory_used_bytes",
    "utilization_fraction": "gpu_utilization_ratio",
    "memory_utilization_fraction": "gpu_memory_utilization_ratio",
    "sm_active_fraction": "gpu_multiprocessor_active_ratio",
    "tensor_active_fraction": "gpu_tensor_active_ratio",
    "dram_active_fraction": "gpu_dram_active_ratio",
    "ecc_errors": "gpu_ecc_errors",
    "faults": "gpu_faults",
}
"""Quantity of a GPU: its metric."""
GPU_METRICS = (
    *(Metric(name, QUANTITIES[quantity].meaning, quantity, is_counter(quantity)) for quantity, name in NAMES.items()),
    *(
        Metric("gpu_throttled_seconds", "Time throttled by this cause.", quantity, True, (("cause", cause),))
        for quantity, cause in (
            ("power_limited_s", "power"),
            ("thermally_limited_s", "thermal"),
            ("board_limited_s", "board"),
        )
    ),
    *(
        Metric(f"gpu_{link}_bytes", f"Bytes over {text}.", f"{link}_{way}_bytes", True, (("direction", way),))
        for link, text in (("pcie", "PCIe"), ("link", "all scale-up links"))
        for way in ("sent", "received")
    ),
)
JOB_METRICS: tuple[tuple[str, str, str, bool], ...] = (
    ("job_steps", "Steps that the job has marked.", "steps", True),
    ("job_step_seconds", "Mean time of the newest steps.", "step_time_s", False),
    ("job_tokens_per_second", "Throughput of the newest steps.", "tokens_per_s", False),
    ("job_loss", "Newest loss that the job has marked.", "loss", False),
    ("job_tokens_per_joule", "Tokens of the newest steps divided by the energy of all GPUs.", "tokens_per_j", False),
)
HOST_UNITS = {
    "_bytes": "bytes", "_j": "joules", "_w": "watts", "_c": "celsius", "_hz": "hertz", "_fraction": "ratio",
    "_s": "seconds",
}  # fmt: skip
"""Suffix of a host quantity: the unit that Prometheus spells out."""


def load_prometheus() -> Any:
    """Return prometheus_client, which only this needs."""
    try:
        import prometheus_client
        import prometheus_client.core
    except ImportError:
        raise MissingExtra("metrics for Prometheus need prometheus-client", "live") from None
    return prometheus_client


class RunCollector:
    """Gives prometheus_client the metrics of a run as they are when it asks."""

    def __init__(self, folder: Path) -> None:
        self._watcher = Watcher(folder)
        self._core = load_prometheus().core

    def collect(self) -> Iterator[Any]:
        """Yield the metric families."""
        snapshot = self._watcher.look()
        # Readings that nobody renews are not how a GPU is now; their age tells.
        fresh = [gpu for node in snapshot.nodes if not is_silent(node) for gpu in node.gpus]
        yield from self._gpu_families(fresh)
        yield from self._job_families(snapshot)
        yield from self._host_families(snapshot.nodes)

    def _family(self, name: str, text: str, labels: tuple[str, ...], *, counter: bool = False) -> Any:
        kind = self._core.CounterMetricFamily if counter else self._core.GaugeMetricFamily
        return kind(f"charllm_{name}", text, labels=labels)

    def _gpu_families(self, gpus: Sequence[GpuNow]) -> Iterator[Any]:
        families: dict[str, Any] = {}
        for metric in GPU_METRICS:
            more = tuple(name for name, _value in metric.labels)
            family = families.setdefault(
                metric.name, self._family(metric.name, metric.help, (*GPU_LABELS, *more), counter=metric.counter)
            )
            for gpu in gpus:
                value = gpu.readings.values.get(metric.quantity)
                if value is not None:
                    family.add_metric([*_labels(gpu), *(text for _name, text in metric.labels)], value)
        yield from (family for family in families.values() if family.samples)
        held = self._family(
            "gpu_clock_limited", "Whether the GPU is throttled by this cause now.", (*GPU_LABELS, "cause")
        )
        for gpu in gpus:
            if "limits" in gpu.readings.values:
                for cause in LIMITS:
                    if cause != "idle":
                        held.add_metric([*_labels(gpu), cause], float(cause in gpu.limited_by))
        if held.samples:
            yield held

    def _job_families(self, snapshot: Snapshot) -> Iterator[Any]:
        for name, text, field, counter in JOB_METRICS:
            value = getattr(snapshot.job, field)
            if value is not None:
                family = self._family(name, text, (), counter=counter)
                family.add_metric([], float(value))
                yield family
        running = self._family("job_running", "Whether the run is being recorded.", ())
        running.add_metric([], float(snapshot.state == "running"))
        yield running

    def _host_families(self, nodes: tuple[NodeNow, ...]) -> Iterator[Any]:
        age = self._family("reading_age_seconds", "Age of the newest reading.", ("node",))
        families: dict[str, Any] = {}
        for node in nodes:
            if node.age_s is not None:
                age.add_metric([node.name], node.age_s)
            for column, value in ({} if is_silent(node) else node.host.values).items():
                quantity, _colon, of = column.partition(":")
                name = host_name(quantity)
                family = families.setdefault(
                    name,
                    self._family(name, f"{quantity} of the host.", ("node", "of"), counter=is_counter(quantity)),
                )
                family.add_metric([node.name, of], value)
        yield from (family for family in (age, *families.values()) if family.samples)


def _labels(gpu: GpuNow) -> list[str]:
    return [gpu.node, str(gpu.gpu), gpu.uuid, "" if gpu.rank is None else str(gpu.rank)]


def host_name(quantity: str) -> str:
    """Return the name of a host quantity with its unit spelled out."""
    for suffix, unit in HOST_UNITS.items():
        if quantity.endswith(suffix):
            return f"host_{quantity.removesuffix(suffix)}_{unit}"
    return f"host_{quantity}"


def text_of(folder: Path) -> Callable[[], bytes]:
    """Return what writes a run's metrics as Prometheus reads them."""
    client = load_prometheus()
    registry = client.CollectorRegistry(auto_describe=False)
    registry.register(RunCollector(folder))
    return lambda: bytes(client.generate_latest(registry))
