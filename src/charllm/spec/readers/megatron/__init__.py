"""A Megatron-LM launch script, of any year and of its descendants, or its bare arguments, as a request."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from charllm.errors import SpecError
from charllm.spec.readers import deepspeed
from charllm.spec.readers.megatron.family import find_family
from charllm.spec.readers.megatron.flags import Flags, count_of, sort_out, take_unknown
from charllm.spec.readers.megatron.launch import Launch, count_nodes, find_launch
from charllm.spec.readers.megatron.model import guess_vocabulary, missing_vocabulary, read_model
from charllm.spec.readers.megatron.parallelism import read_parallelism, split_shards
from charllm.spec.readers.megatron.software import read_software
from charllm.spec.readers.megatron.training import read_training
from charllm.spec.readers.reading import Reading, Setting
from charllm.spec.readers.shell import NO_INPUTS, Inputs, Script, read_script
from charllm.spec.readers.values import name_from
from charllm.spec.request import MAX_FILE_BYTES

Table = dict[str, Any]

MOST_UNDECIDED = 8
"""Undecided tests of a script that are tried both ways."""
MOST_NAMED = 6
TRAINING_MARKS = ("--micro-batch-size", "--global-batch-size", "--bf16", "--fp16", "--lr", "--train-iters")
FIELDS = {
    "--num-layers": "model.layers",
    "--hidden-size": "model.hidden",
    "--ffn-hidden-size": "model.ffn",
    "--num-attention-heads": "model.heads",
    "--num-query-groups": "model.kv_heads",
    "--num-key-value-heads": "model.kv_heads",
    "--vocab-size": "model.vocab",
    "--padded-vocab-size": "model.vocab",
    "--extra-vocab-size": "model.vocab",
    "--num-experts": "model.experts",
    "--moe-ffn-hidden-size": "model.expert_ffn",
    "--tensor-model-parallel-size": "parallelism.tp",
    "--pipeline-model-parallel-size": "parallelism.pp",
    "--context-parallel-size": "parallelism.cp",
    "--expert-model-parallel-size": "parallelism.ep",
    "--zero-stage": "parallelism.zero",
    "--seq-length": "training.seq_length",
    "--max-position-embeddings": "model.seq_length",
    "--micro-batch-size": "training.micro_batch_size",
    "--global-batch-size": "training.global_batch_size",
}
"""Flag: field that --set can give where the script takes the value from elsewhere."""
_PARENTHESES = re.compile(r"(?<!\S)([^\s'\"]*\([^\s'\"]*\)[^\s'\"]*)")
_ENVIRONMENTS = re.compile(
    r"conda|activate|bashrc|profile|modules?\b|venv|setvars|/etc/|env\.sh|setup|start-", re.IGNORECASE
)
"""Files that set up programs and paths, and no training settings."""


def read_megatron(text: str, path: str, inputs: Inputs = NO_INPUTS) -> Reading:
    """Read the training command of a launch script, or a bare argument string; nothing is executed."""
    text = text.replace("\ue000", "").replace("\ue001", "")
    if text.lstrip().startswith("--"):
        # Bare arguments may hold parentheses that a shell would want quoted.
        text = _PARENTHESES.sub(r"'\1'", text)
    script = read_script(text, path, inputs)
    reading = _read(script, text, path)
    return _with_notes(reading, script, text, path, inputs)


def _read(script: Script, text: str, path: str) -> Reading:
    launch = find_launch(script, text)
    flags = launch.flags
    missing = take_unknown(flags, FIELDS)
    family = find_family(flags)
    config, config_missing = _deepspeed_config(flags, script)
    model = read_model(flags, family, launch.program)
    sparse = "experts" in model
    parallelism = read_parallelism(flags, family, sparse)
    training, unmodelled = read_training(flags, family, sparse)
    strange: list[Setting] = []
    small: list[Setting] = []
    if family.deepspeed:
        _apply_deepspeed(flags, config, config_missing, parallelism, training, missing)
        strange, more, small = deepspeed.sort_out(config)
        unmodelled += more
    nodes, gpus = count_nodes(launch, script)
    data_ranks = _data_ranks(nodes, gpus, parallelism)
    parallelism.update(split_shards(flags, parallelism["zero"], data_ranks))
    if "--megablocks-expert-parallelism" in flags and sparse:
        # MegaBlocks spreads experts over all replicas.
        parallelism["ep"] = min(data_ranks or 1, model["experts"])
        if not data_ranks:
            missing["parallelism.ep"] = (
                "--ep N (experts are spread over all replicas, whose number the script leaves open)"
            )
    framework, more = read_software(flags, family, model, training, parallelism["ep"])
    unmodelled += more
    if launch.other_family:
        unmodelled.append(Setting(launch.program, launch.program, launch.line, launch.other_family))
    found = sort_out(flags)
    notes = _launch_notes(launch)
    request: Table = {"framework": framework, "parallelism": parallelism, "training": training}
    # A script that takes its sizes from a checkpoint leaves the model to be named.
    if not launch.program and not flags.any(*TRAINING_MARKS):
        # A file that another script sources for its model: nothing is known of the training.
        request = {"framework": framework}
        notes.append(
            "the file states a model and no training: batch, precision and parallelism are left to other flags"
        )
    for field in missing:
        request.get(field.partition(".")[0], {}).pop(field.partition(".")[2], None)
        model.pop(field.removeprefix("model."), None)
    if "layers" in model or "hidden" in model or any(field.startswith("model.") for field in missing):
        request["model"] = {"name": name_from(path, "megatron"), **model}
        guessed = guess_vocabulary(flags, path) if "vocab" not in model and "model.vocab" not in missing else None
        if guessed is not None:
            request["model"]["vocab"] = guessed[0]
            notes.append(
                f"model.vocab is {guessed[0]}, after the file name {guessed[1]}, as the tokenizer has no name; "
                "--set model.vocab=N sets another"
            )
        elif "vocab" not in model:
            missing.setdefault("model.vocab", missing_vocabulary(flags))
    else:
        missing["model"] = "--model NAME (the script states no --num-layers and no --hidden-size)"
    return Reading(
        request,
        tuple(strange + found[0]),
        tuple(found[1] + unmodelled),
        missing,
        tuple(found[2] + small),
        tuple(notes),
        nodes,
        gpus,
        _microbatches(flags, training, missing),
    )


def _microbatches(flags: Flags, training: Table, missing: dict[str, str]) -> int | None:
    """Return the microbatches of a replica where no global batch is given: one, unless a flag says otherwise."""
    if not flags.any(*TRAINING_MARKS):
        return None
    if "global_batch_size" in training or "training.global_batch_size" in missing:
        return None
    return count_of(flags, "--gradient-accumulation-steps", low=1) or 1


def _deepspeed_config(flags: Flags, script: Script) -> tuple[Table, str]:
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


def _apply_deepspeed(
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
        for field, value in deepspeed.batch_of(config).items():
            training.setdefault(field, value)
    elif "--zero-stage" in flags:
        parallelism["zero"] = min(count_of(flags, "--zero-stage") or 0, 3)
    elif config_missing:
        del parallelism["zero"]
        missing["parallelism.zero"] = f"--zero N (ZeRO stage in {config_missing}, which does not lie beside the script)"
        parallelism["zero"] = 0
    if training["precision"] == "bf16" and parallelism["zero"] == 0 and (config or "--zero-stage" in flags):
        # DeepSpeed's bf16 optimizer shards its state over replicas even at stage 0.
        parallelism["zero"] = 1


def _data_ranks(nodes: int | None, gpus: int | None, parallelism: Table) -> int | None:
    """Return dp x cp when the script says on how many GPUs it runs."""
    ranks, rest = divmod((nodes or 0) * (gpus or 0), parallelism["tp"] * parallelism["pp"])
    return ranks if ranks and not rest and not ranks % parallelism["cp"] else None


def _launch_notes(launch: Launch) -> list[str]:
    if not launch.others:
        return []
    return [
        f"the script starts {launch.others + 1} different training commands; the first is read (line {launch.line})"
    ]


def _with_notes(reading: Reading, script: Script, text: str, path: str, inputs: Inputs) -> Reading:
    """Add what was assumed: empty variables, tests that could not be decided, scripts that could not be read."""
    notes = [*reading.notes, *_undecided_notes(reading, script, text, path, inputs)]
    if script.asked_arguments:
        notes.append(
            "arguments that the script compares were not given and are taken as empty: "
            f"{_listed(script.asked_arguments)}; --args 'WORDS' gives them"
        )
    if script.assumed_empty:
        notes.append(
            f"variables that the script compares but does not set are taken as empty: {_listed(script.assumed_empty)}; "
            "--env NAME=VALUE sets one"
        )
    sourced = {name: line for name, line in script.not_found.items() if not _ENVIRONMENTS.search(name)}
    if sourced:
        notes.append(f"scripts that this one starts or sources do not lie beside it: {_listed(sourced)}")
    lost = {word: command.line for command in script.commands for word in command.words[:1] if word.startswith("--")}
    if lost and len(lost) < len(script.commands):
        notes.append(f"not passed to the training program, as the line before does not continue: {_listed(lost)}")
    return replace(reading, notes=tuple(notes))


def _listed(found: dict[str, int]) -> str:
    names = [f"{name[:80]} (line {line})" for name, line in found.items()]
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _undecided_notes(reading: Reading, script: Script, text: str, path: str, inputs: Inputs) -> list[str]:
    """Try each undecided test the other way, and say which fields depend on it."""
    notes = []
    for number, (line, shown) in enumerate(script.undecided[:MOST_UNDECIDED]):
        try:
            other = _read(read_script(text, path, inputs, flipped=number), text, path)
        except SpecError:
            continue
        changed = _changed(reading, other)
        if changed:
            notes.append(
                f"line {line}: `{shown[:80]}` cannot be decided without running the script; the other answer changes "
                f"{', '.join(changed[:MOST_NAMED])}"
            )
    return notes


def _changed(reading: Reading, other: Reading) -> list[str]:
    """List the fields in which two readings differ."""
    changed = []
    for part in {**reading.request, **other.request}:
        ours, theirs = reading.request.get(part), other.request.get(part)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            changed += [f"{part}.{key}" for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
        elif ours != theirs:
            changed.append(part)
    for name in ("nodes", "gpus_per_node", "unmodelled"):
        changed += [name] if getattr(reading, name) != getattr(other, name) else []
    return changed
