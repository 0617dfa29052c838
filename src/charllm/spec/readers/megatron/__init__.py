"""A Megatron-LM launch script, of any year and of its descendants, or its bare arguments, as a request."""

import re
from dataclasses import replace
from typing import Any

from charllm.errors import SpecError
from charllm.spec.readers import deepspeed
from charllm.spec.readers.megatron.deepspeed_config import apply_config, find_config
from charllm.spec.readers.megatron.family import find_family
from charllm.spec.readers.megatron.flags import Flags, count_of, sort_out, take_unknown
from charllm.spec.readers.megatron.launch import ENVIRONMENTS, Launch, count_nodes, find_launch
from charllm.spec.readers.megatron.model import missing_vocabulary, read_model
from charllm.spec.readers.megatron.parallelism import ask_for_stages, read_parallelism, split_shards
from charllm.spec.readers.megatron.software import read_software
from charllm.spec.readers.megatron.training import read_training
from charllm.spec.readers.megatron.tuning import OWN, SWIFT, named_model, read_adapters
from charllm.spec.readers.reading import Reading, Setting
from charllm.spec.readers.shell import NO_INPUTS, Inputs, Script, read_script
from charllm.spec.readers.surroundings import with_surroundings
from charllm.spec.readers.values import name_from

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


def read_megatron(text: str, path: str, inputs: Inputs = NO_INPUTS) -> Reading:
    """Read the training command of a launch script, or a bare argument string; nothing is executed."""
    text = text.replace("\ue000", "").replace("\ue001", "")
    if text.lstrip().startswith("--"):
        # Bare arguments may hold parentheses that a shell would want quoted.
        text = _PARENTHESES.sub(r"'\1'", text)
    script = read_script(text, path, inputs)
    reading = with_surroundings(_read(script, text, path), script)
    return _with_notes(reading, script, text, path, inputs)


def _read(script: Script, text: str, path: str) -> Reading:
    return read_launch(find_launch(script, text), script, path)


def read_launch(launch: Launch, script: Script, path: str) -> Reading:
    """Return the request of a training command."""
    flags = launch.flags
    family = find_family(flags)
    missing = take_unknown(flags, FIELDS)
    task = launch.program.removeprefix(f"{SWIFT} ") if launch.program.startswith(f"{SWIFT} ") else ""
    adapters, tuning = read_adapters(flags, task)
    strange, unmodelled, small = sort_out(flags, OWN if task or adapters else ())
    unmodelled += tuning
    model = read_model(flags, family, launch.program)
    parallelism = read_parallelism(flags, family, "experts" in model)
    training, others = read_training(flags, family, "experts" in model)
    training.update(adapters)
    if family.deepspeed:
        config, not_found = find_config(flags, script)
        apply_config(flags, config, not_found, parallelism, training, missing)
        more = deepspeed.sort_out(config)
        strange, unmodelled, small = strange + more[0], unmodelled + more[1], small + more[2]
    nodes, gpus = count_nodes(launch, script)
    parallelism.update(_by_replicas(flags, model, parallelism, _data_ranks(nodes, gpus, parallelism), missing))
    framework, software = read_software(flags, family, model, training, parallelism["ep"])
    request: Table = {"framework": framework}
    if launch.other_family:
        software.append(Setting(launch.program, launch.program, launch.line, launch.other_family))
    notes = _launch_notes(launch)
    if family.year_open and launch.program:
        notes.append(
            "attention is taken as one fused kernel, as in Megatron-LM since 2024; "
            "--set framework.attention=unfused for an older version"
        )
    if launch.program or flags.any(*TRAINING_MARKS):
        request |= {"parallelism": parallelism, "training": training}
    else:
        # A file that another script sources for its model: nothing is known of the training.
        notes.append("the file states a model and no training: batch, precision and parallelism come from other flags")
    for field in missing:
        part, _, key = field.partition(".")
        {**request, "model": model}.get(part, {}).pop(key, None)
    request |= _named_model(flags, path, model, missing)
    if "model" in missing:
        ask_for_stages(flags, missing)
    model_id = named_model(flags) if task and "model" in missing else ""
    if model_id:
        del missing["model"]
        # What the command adds to the model that it names.
        request |= {"model": {"mtp_layers": model["mtp_layers"]}} if model.get("mtp_layers") else {}
    if task and "seq_length" not in training:
        missing.setdefault("training.seq_length", "--seq N (without --max_length it is the longest of the model)")
    return Reading(
        request,
        tuple(strange),
        tuple(unmodelled + others + software),
        missing,
        tuple(small),
        tuple(notes),
        nodes,
        gpus,
        _microbatches(flags, training, missing),
        model_id=model_id,
    )


def _by_replicas(
    flags: Flags, model: Table, parallelism: Table, data_ranks: int | None, missing: dict[str, str]
) -> Table:
    """Return the degrees that follow from how many ranks hold a copy of the weights."""
    found = split_shards(flags, parallelism["zero"], data_ranks)
    if "--megablocks-expert-parallelism" in flags and "experts" in model:
        # MegaBlocks spreads experts over all replicas.
        found["ep"] = min(data_ranks or 1, model["experts"])
        if not data_ranks:
            missing["parallelism.ep"] = "--ep N (experts are spread over all replicas, which the script does not count)"
    return found


def _named_model(flags: Flags, path: str, model: Table, missing: dict[str, str]) -> Table:
    """Return the model under the name of its file; a script without sizes leaves the model to be named."""
    if not ("layers" in model or "hidden" in model or any(field.startswith("model.") for field in missing)):
        missing["model"] = "--model NAME (the script states no --num-layers and no --hidden-size)"
        return {}
    named = {"name": name_from(path, "megatron"), **model}
    if "vocab" in model or "model.vocab" in missing:
        return {"model": named}
    missing["model.vocab"] = missing_vocabulary(flags)
    return {"model": named}


def _microbatches(flags: Flags, training: Table, missing: dict[str, str]) -> int | None:
    """Return the microbatches of a replica where no global batch is given: one, unless a flag says otherwise."""
    if not flags.any(*TRAINING_MARKS):
        return None
    if "global_batch_size" in training or "training.global_batch_size" in missing:
        return None
    return count_of(flags, "--gradient-accumulation-steps", low=1) or 1


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
    sourced = {name: line for name, line in script.not_found.items() if not ENVIRONMENTS.search(name)}
    if sourced:
        notes.append(f"scripts that this one starts or sources are not in the same folder: {_listed(sourced)}")
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
