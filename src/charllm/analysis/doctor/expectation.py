"""What a healthy run of the same spec would show: which differences between GPUs are their roles."""

from charllm.analysis.doctor.diagnose import Expectation
from charllm.analysis.doctor.observation import Observation
from charllm.errors import CharllmError
from charllm.simulate.predict import predict
from charllm.simulate.telemetry import show_telemetry, use_ports


def expect(seen: Observation) -> Expectation | None:
    """Simulate a run as it was meant to be; None where its spec is not known, or cannot be simulated.

    Only ratios between its GPUs are used, so that an error of the prediction that all GPUs share does not matter.
    """
    if seen.run is None or seen.run.cluster.gpus != len(seen.node):
        return None
    try:
        found = predict(seen.run, ignore_memory=True)
    except CharllmError:
        return None
    shown = show_telemetry(found)
    nics = seen.run.cluster.nodes > 1 and seen.run.cluster.fabric.nics_per_node
    ports = use_ports(found.step, seen.step_time_s or shown.step_time_s) if nics else None
    return Expectation(shown.gpus, ports)
