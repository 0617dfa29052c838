"""The DeepSpeed configuration of a Megatron-DeepSpeed script: found beside it or written by it, and applied."""

import json
from pathlib import Path
from typing import Any

from charllm.spec.readers import deepspeed
from charllm.spec.readers.megatron.flags import Flags, count_of
from charllm.spec.readers.shell import Script
from charllm.spec.request import MAX_FILE_BYTES

Table = dict[str, Any]


def find_config(flags: Flags, script: Script) -> tuple[Table, str]:
    """Return the DeepSpeed configuration that a script writes or names, and its name where it cannot be read."""
    flag = next((name for name in ("--deepspeed-config", "--deepscale-config") if name in flags), None)
    named = (flags.values[flag] or [""])[0] if flag else ""
    if not named:
        return {}, ""
    text = script.files.get(named)
    if text is None:
        text = _beside(script, named)
    try:
        table = json.loads(script.shown(text)) if text else None
    except (ValueError, RecursionError):
        table = None
    return (table, "") if isinstance(table, dict) else ({}, script.shown(named))


def _beside(script: Script, named: str) -> str | None:
    name = Path(script.shown(named)).name
    path = script.folder / name if script.folder and name and name.isprintable() else None
    try:
        if path is not None and path.is_file() and path.stat().st_size <= MAX_FILE_BYTES:
            return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError):
        return None
    return None


def apply_config(
    flags: Flags, config: Table, config_missing: str, parallelism: Table, training: Table, missing: dict[str, str]
) -> None:
    """Take batch, precision and ZeRO from the configuration, else from the flags."""
    if config:
        sharded, overlap = deepspeed.zero_of(config)
        parallelism.update(sharded)
        if overlap and parallelism["zero"]:
            parallelism["overlap"] = [*parallelism["overlap"], "dp"]
        precision = deepspeed.precision_of(config)
        if precision and training["precision"] == "fp32":
            training["precision"] = precision
        training.update(deepspeed.offload_of(config))
        for field, value in deepspeed.batch_of(config).items():
            training.setdefault(field, value)
    elif "--zero-stage" in flags:
        parallelism["zero"] = min(count_of(flags, "--zero-stage") or 0, 3)
    elif config_missing:
        missing["parallelism.zero"] = f"--zero N (ZeRO stage in {config_missing}, which does not lie beside the script)"
    if training["precision"] == "bf16" and parallelism["zero"] == 0 and (config or "--zero-stage" in flags):
        # DeepSpeed's bf16 optimizer shards its state over replicas even at stage 0.
        parallelism["zero"] = 1
