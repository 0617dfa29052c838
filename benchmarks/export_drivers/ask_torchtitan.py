"""torchtitan's own ConfigManager and ParallelDims, and its pipeline's checks of stages and batch."""

import contextlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any


def check(case: dict[str, Any]) -> str | None:
    """Return why torchtitan refuses a case; None where it accepts it."""
    from torchtitan.config.manager import ConfigManager
    from torchtitan.distributed import ParallelDims

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.toml"
        path.write_text(case["file"], encoding="utf-8")
        try:
            config = ConfigManager().parse_args([f"--job.config_file={path}"])
            asked = config.parallelism
            dims = ParallelDims(
                dp_replicate=asked.data_parallel_replicate_degree,
                dp_shard=asked.data_parallel_shard_degree,
                cp=asked.context_parallel_degree,
                tp=asked.tensor_parallel_degree,
                pp=asked.pipeline_parallel_degree,
                ep=asked.expert_parallel_degree,
                etp=asked.expert_tensor_parallel_degree,
                world_size=case["world"],
            )
            return _model_error(config) or _pipeline_error(config, dims)
        except SystemExit as error:
            return f"exit {error.code}"
        except Exception as error:
            return f"{type(error).__name__}: {error}"


def _model_error(config: Any) -> str | None:
    from torchtitan.protocols.train_spec import get_train_spec

    flavors = get_train_spec(config.model.name).model_args
    return None if config.model.flavor in flavors else f"flavor {config.model.flavor}: one of {', '.join(flavors)}"


def _pipeline_error(config: Any, dims: Any) -> str | None:
    """Check what torchtitan checks when it cuts the model: stages of its schedule, whole microbatches, all modules."""
    from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class
    from torchtitan.protocols.train_spec import get_train_spec

    asked = config.parallelism
    if dims.pp == 1:
        return None
    stages = asked.module_fqns_per_model_part
    layers = get_train_spec(config.model.name).model_args[config.model.flavor].n_layers
    modules = ["tok_embeddings", *(f"layers.{layer}" for layer in range(layers)), "norm", "output"]
    if [name for stage in stages for name in stage] != modules:
        return f"modules of the stages are not those of the model: {layers} layers"
    single = issubclass(get_schedule_class(asked.pipeline_parallel_schedule), PipelineScheduleSingle)
    if len(stages) % dims.pp or (single and len(stages) != dims.pp):
        return f"{len(stages)} stages on {dims.pp} ranks with {asked.pipeline_parallel_schedule}"
    if config.training.local_batch_size % asked.pipeline_parallel_microbatch_size:
        return "a local batch that is no multiple of the microbatch"
    return None


if __name__ == "__main__":
    cases = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):
        found = {case["name"]: check(case) for case in cases}
    json.dump(found, sys.stdout)
