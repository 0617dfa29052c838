"""A strategy in words."""

from charllm.result.answers import describe_degrees
from charllm.spec.run import RunSpec
from charllm.units import MEGA


def name_strategy(run: RunSpec) -> str:
    """Name the settings that strategies of one job differ in: degrees, microbatch, recomputation, sharding, caps."""
    degrees, training, asked = run.parallelism, run.training, run.conditions
    words = [
        describe_degrees({"parallelism": {axis: getattr(degrees, axis) for axis in ("tp", "cp", "pp", "dp", "ep")}})
    ]
    words += [f"vpp {degrees.vpp}"] if degrees.vpp > 1 else []
    words += [f"etp {degrees.etp}"] if run.model.experts and degrees.etp != 1 else []
    words += [f"ZeRO {degrees.zero}"] if degrees.zero and degrees.data_ranks > 1 else []
    words += [f"shards of {degrees.shard_size}"] if degrees.shard_size else []
    words += ["no sp"] if degrees.tp > 1 and not degrees.sp else []
    words.append(f"microbatch {training.micro_batch_size}")
    layers = "" if training.recompute_layers is None else f" of {training.recompute_layers} layers"
    words += [f"{training.recompute} recomputation{layers}"] if training.recompute != "none" else []
    words += [degrees.schedule] if degrees.pp > 1 and degrees.schedule not in ("1f1b", "interleaved") else []
    words += [f"overlap {','.join(degrees.overlap)}"] if degrees.overlap else []
    words += [f"{asked.power_cap_w:g} W"] if asked.power_cap_w else []
    words += [f"{asked.clock_cap_hz / MEGA:.0f} MHz"] if asked.clock_cap_hz else []
    return ", ".join(words)
