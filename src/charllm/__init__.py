"""Step time, power and temperature of distributed LLM training.

    import charllm

    result = charllm.simulate(model="llama3-70b", cluster="h200x32", tp=4, pp=4, gbs=128)
    result.metrics.step_time_s, result.metrics.power_mean_w, result.metrics.temperature_peak_c

simulate            memory, step time, power and temperature of one run
generate            prefill and decode of a static batch: time, memory, power and temperature
rl                  one step of reinforcement learning: rollouts, updates, transfer of weights
budget              what a job takes on several machines: GPUs, days, money, MW, MWh, CO2
plan                the best strategy of a job under limits, with the reasons
sweep               simulate or measure every case of a study, or of axes
caps                step time, energy and cost against power or clock caps, for all GPUs or each stage
emulate             one rank of a large job on the GPU of this machine; predict_emulation needs no GPU
measure             power, clocks and temperature of the code inside a ``with`` block; measure_command: of a command
callbacks           one line that marks a training: Hugging Face, Lightning, torchtitan, any loop in torch
convert             a recording of another tool (nvidia-smi, DCGM, Prometheus, a log) as a run
export              write a run for Megatron-LM, NeMo, torchtitan or Slurm
replay              step time of a profiler trace with one thing changed
compare_ops         compare a traced step with another trace or a simulation, kernel by kernel
trace               break down the step time of profiler traces by kernel and rank
messages            collectives and sends of each rank in one step; compare them with execution traces
preflight, smoke    check GPUs, links, network and hosts; run every kind of measurement once
query               SQL over stored runs and studies, as a pandas DataFrame
load, compare       a stored run or study; two runs side by side
report              a run, a study or several runs as one HTML file
reproduce           repeat a publication: runs, figures, a verdict on each finding
characterize        power states, temperature groups, step period and outlier GPUs of a recording
doctor              the GPU, link, node or host that slows a run, and what to do about it
place               optimise ranks on slots, layers per stage and power limits
catalog             models, GPUs, nodes, clusters, frameworks and studies, with sources

Keywords have the names of the command-line flags. A wrong request raises `SpecError`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

# As in `typing`, whose import would take longer than all of this file.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from charllm.api.caps import Caps, caps
    from charllm.api.conversion import convert
    from charllm.api.doctor import Diagnosis, doctor
    from charllm.api.emulation import emulate, predict_emulation
    from charllm.api.export import Export, export
    from charllm.api.generation import generate
    from charllm.api.listing import catalog
    from charllm.api.measurement import measure, measure_command
    from charllm.api.messages import messages
    from charllm.api.ops_comparison import OpsComparison, compare_ops
    from charllm.api.place import Placement, place
    from charllm.api.plan import budget, plan
    from charllm.api.preflight import preflight
    from charllm.api.replay import Replayed, replay
    from charllm.api.report import report
    from charllm.api.rl import rl
    from charllm.api.simulation import simulate
    from charllm.api.smoke import smoke
    from charllm.api.stored import Comparison, characterize, compare, load, query
    from charllm.api.study import Sweep, sweep
    from charllm.api.trace import Traced, trace
    from charllm.errors import CharllmError, SpecError
    from charllm.reproduce.run import Reproduced, reproduce
    from charllm.result.result import RunResult

__version__ = "0.2.0"
__all__ = [
    "Caps", "CharllmError", "Comparison", "Diagnosis", "Export", "OpsComparison", "Placement", "Replayed", "Reproduced",
    "RunResult", "SpecError", "Sweep", "Traced", "budget", "caps", "catalog", "characterize", "compare", "compare_ops",
    "convert", "doctor", "emulate", "export", "generate", "load", "measure", "measure_command", "messages", "place",
    "plan", "predict_emulation", "preflight", "query", "replay", "report", "reproduce", "rl", "simulate", "smoke",
    "sweep", "trace",
]  # fmt: skip
_PUBLIC = {
    "api.caps": "Caps caps",
    "api.conversion": "convert",
    "api.doctor": "Diagnosis doctor",
    "api.emulation": "emulate predict_emulation",
    "api.export": "Export export",
    "api.generation": "generate",
    "api.listing": "catalog",
    "api.measurement": "measure measure_command",
    "api.messages": "messages",
    "api.ops_comparison": "OpsComparison compare_ops",
    "api.place": "Placement place",
    "api.plan": "budget plan",
    "api.preflight": "preflight",
    "api.replay": "Replayed replay",
    "api.report": "report",
    "api.rl": "rl",
    "api.simulation": "simulate",
    "api.smoke": "smoke",
    "api.stored": "Comparison characterize compare load query",
    "api.study": "Sweep sweep",
    "api.trace": "Traced trace",
    "errors": "CharllmError SpecError",
    "reproduce.run": "Reproduced reproduce",
    "result.result": "RunResult",
}
_HOMES = {name: f"{__name__}.{module}" for module, names in _PUBLIC.items() for name in names.split()}
"""Public name: the module that holds it, imported when the name is first used."""
_ROOMS = ("catalog", "measure", "plan", "report", "reproduce", "simulate", "sweep", "trace")
"""Functions whose name is also that of a subpackage."""


class _FrontDoor(ModuleType):
    """This package. Python binds a subpackage to its name here once it is imported; a public function keeps its name.

    Such a function has the attributes of the subpackage too, so that ``import charllm.simulate.predict as p`` works.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name == "callbacks":
            return import_module("charllm.callbacks")
        if name not in _HOMES:
            raise AttributeError(f"module 'charllm' has no attribute {name!r}", name=name, obj=self)
        value = getattr(import_module(_HOMES[name]), name)
        if name in _ROOMS:
            shared = vars(import_module(f"{__name__}.{name}"))
            shared.update(vars(value))
            value.__dict__ = shared
        super().__setattr__(name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _FrontDoor
