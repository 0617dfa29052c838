"""Hydra on NeMo's own configuration files with an export laid over them, and NeMo's own checks of the result.

The environment variable CHECKOUT is NeMo's folder. Beside it, PYTHONPATH needs the Megatron-LM of that release (its
requirements/manifest.json). NeMo's `_validate_and_override_config` and `build_transformer_config` are called on a model
that was not built: building one needs GPUs. The composed settings are given back, for charllm's reader.
"""

import contextlib
import json
import os
import sys
import tempfile
import warnings
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from stand_ins import stand_in  # type: ignore[import-not-found]

EXAMPLES = Path(os.environ["CHECKOUT"]) / "examples" / "nlp" / "language_modeling"
FILES = {
    False: (EXAMPLES / "conf", "megatron_gpt_config"),
    True: (EXAMPLES / "tuning" / "conf", "megatron_gpt_finetuning_config"),
}
"""Whether adapters are trained: folder and name of the program's own file."""
PARALLEL = ("tensor_model", "pipeline_model", "context")


def compose(case: dict[str, Any], folder: Path) -> Any:
    """Return the program's own file with the export and the words of the command line over it."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir

    (folder / "charllm").mkdir()
    (folder / "charllm" / "run.yaml").write_text(case["file"], encoding="utf-8")
    home, name = FILES[case["tunes"]]
    words = [word for word in case["words"] if not word.startswith("--config-dir")]
    with initialize_config_dir(str(home), version_base=None):
        return hydra_compose(name, overrides=[f"hydra.searchpath=[file://{folder}]", *words])


def build(config: Any) -> None:
    """Let NeMo check the settings and build the configuration of its layers."""
    import torch
    from nemo.collections.nlp.models.language_modeling.megatron_gpt_model import MegatronGPTModel
    from nemo.utils.app_state import AppState

    precision = str(config.trainer.precision)
    dtype = {"bf16": torch.bfloat16, "16": torch.float16}.get(precision, torch.float32)
    model = MegatronGPTModel.__new__(MegatronGPTModel)
    scaler = SimpleNamespace(scaler=SimpleNamespace(scale=print))
    trainer = SimpleNamespace(precision=precision, precision_plugin=scaler)
    model.__dict__.update(_cfg=config.model, _trainer=trainer, torch_dtype=dtype, params_dtype=dtype)
    model.__dict__.update(autocast_dtype=dtype, megatron_timers=None, _parameters={}, _buffers={}, _modules={})
    MegatronGPTModel.trainer = property(lambda self: self._trainer)
    degrees = [config.model.get(f"{axis}_parallel_size") or 1 for axis in PARALLEL]
    AppState().data_parallel_size = config.trainer.num_nodes * config.trainer.devices // prod(degrees)
    model._validate_and_override_config()
    model.build_transformer_config()


def check(case: dict[str, Any]) -> tuple[str | None, str]:
    """Return why a case is refused (None where it is accepted), and the composed settings."""
    from omegaconf import OmegaConf

    with tempfile.TemporaryDirectory() as folder:
        try:
            config = compose(case, Path(folder))
            build(config)
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:400], ""
    ours = {name: config[name] for name in ("trainer", "model")}
    return None, OmegaConf.to_yaml(OmegaConf.create(ours), resolve=False)


if __name__ == "__main__":
    cases = json.load(sys.stdin)
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(sys.stderr):
        import logging

        logging.disable(logging.CRITICAL)
        stand_in()
        found = {case["name"]: check(case) for case in cases}
    print(json.dumps(found))
