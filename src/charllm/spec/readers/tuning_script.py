"""A script that tunes a published model: its command's flags, or the settings file that it names, as a request."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

from charllm.errors import SpecError, Words
from charllm.spec.readers import recognize
from charllm.spec.readers.finetuning import read_finetuning
from charllm.spec.readers.finetuning_words import WORDS
from charllm.spec.readers.megatron.flags import Flags, collect_flags
from charllm.spec.readers.megatron.launch import Launch, count_nodes
from charllm.spec.readers.nemo.document import Document, load_document
from charllm.spec.readers.reading import Reading
from charllm.spec.readers.shell import Command, Inputs, Script, read_script
from charllm.spec.readers.shell.script import OPEN
from charllm.spec.readers.surroundings import with_surroundings
from charllm.spec.request import read_text

Table = dict[str, Any]

MARK = "per_device_train_batch_size"
HINTS = ("swift ", "swift/cli/", "llamafactory-cli", "axolotl", MARK)
TASKS = {"swift": ("sft", "pt", "rlhf"), "llamafactory-cli": ("train",), "axolotl": ("train",)}
"""Program: its commands that train."""
PROGRAMS = {"swift": recognize.SWIFT, "llamafactory-cli": recognize.LLAMA_FACTORY, "axolotl": recognize.AXOLOTL}
SWIFT_FILES = ("swift/cli/sft.py", "swift/cli/pt.py", "swift/cli/rlhf.py")
PARENTS = 5
_CHOSEN = re.compile(r"(?:^|[/_.-])(?:dpo|grpo|ppo|orpo|kto|rloo|simpo|reward|rm|gkd|cpo)(?:[_-]\w+)?\.py$")
"""Programs that train by preferences or rewards."""


def read_tuning_script(text: str, path: str, inputs: Inputs) -> Reading | None:
    """Read the command of a script that tunes a model; None where it starts none."""
    if not any(hint in text for hint in HINTS):
        return None
    script = read_script(text, path, inputs)
    for command in script.commands:
        found = _program(command.words)
        if found is not None:
            return with_surroundings(_read(script, command, path, *found), script)
    return None


def _program(words: list[str]) -> tuple[str, int] | None:
    """Return the program that a command tunes with, and where its own words begin."""
    for place, word in enumerate(words[:-1]):
        name = PurePath(word).name
        if words[place + 1] in TASKS.get(name, ()):
            return PROGRAMS[name], place + 2
    if any(
        word.endswith(SWIFT_FILES) or word.partition("=")[0].lstrip("-").replace("-", "_") == MARK for word in words
    ):
        # The last program counts: those before it start it.
        program = max((place for place, word in enumerate(words) if word.endswith(".py")), default=0)
        if PurePath(words[program]).name.startswith("olmo_core"):
            raise SpecError("--from", words[program], "a program whose sharding is known: OLMo-core's is not read")
        names = {"swift": recognize.SWIFT, "open_instruct": recognize.OPEN_INSTRUCT}
        started = "/".join(words[: program + 1])
        return next((names[name] for name in names if name in started), recognize.TRL), program + 1
    return None


def _read(script: Script, command: Command, path: str, program: str, start: int) -> Reading:
    words = command.words[start:]
    flags = collect_flags(words, script, keeps_off=True)
    launcher = collect_flags([*command.outer, *command.words[:start]], script)
    values = _file_settings(words, path, program)
    values |= {key: value for key, value in _values(flags, program).items() if value is not None}
    values |= _launched(launcher, path, values)
    if values.get("stage") is None and program == recognize.LLAMA_FACTORY:
        values["stage"] = "sft"
    rewarded = "rlhf" in command.words[:start] or any(_CHOSEN.search(word) for word in command.words[:start])
    rlhf = {"rlhf_type": "rlhf"} if rewarded and "rlhf_type" not in values else {}
    reading = read_finetuning(Document({**values, **rlhf}, {}), path, program, launched=True)
    nodes, gpus = count_nodes(Launch(flags, launcher), script)
    processes = script.variables.get("NPROC_PER_NODE")
    if gpus is None and isinstance(processes, str) and processes.isdecimal() and len(processes) < 5:
        nodes, gpus = nodes or 1, int(processes)
    return replace(reading, nodes=nodes, gpus_per_node=gpus)


def _values(flags: Flags, program: str) -> Table:
    """Return flags by the names of their settings; a value that the script leaves open is an error where it counts."""
    spelling = WORDS[program]
    counted = {*spelling.micro, *spelling.sequence, *spelling.rank, "gradient_accumulation_steps", "deepspeed"}
    values: Table = {}
    for name, words in flags.values.items():
        key = flags.written.get(name, name).lstrip("-").replace("-", "_")
        if any(OPEN in word for word in words):
            if key in counted:
                raise flags.error(name, words[0], "a value")
            continue
        values[key] = _scalar(words[0]) if len(words) == 1 else list(words) or True
    return values


def _scalar(word: str) -> Any:
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    try:
        return int(word) if word.lstrip("-").isdecimal() and len(word) < 16 else float(word)
    except ValueError:
        return word


def _file_settings(words: list[str], path: str, program: str) -> Table:
    """Return the settings of the file that a command names, with the command's own over them."""
    named = next((word for word in words if word.endswith((".yaml", ".yml"))), "")
    if not named or any(word.startswith("--") for word in words[: words.index(named)]):
        return {}
    file = _beside(named, path)
    if file is None:
        raise SpecError("--from", path, f"{named}, the settings that the script starts {program} with, beside it")
    document = load_document(read_text(file, "--from"), str(file))
    values = {key: document.find(key) for key in document.table}
    given = [word.partition("=") for word in words if "=" in word and not word.startswith("--")]
    return {**values, **{key: _scalar(value) for key, _, value in given}}


def _launched(launcher: Flags, path: str, values: Mapping[str, Any]) -> Table:
    """Return what Accelerate's own file or flags add: what is sharded, and the format of products."""
    named = (launcher.values.get("--config-file") or [""])[0]
    file = _beside(named, path) if named else None
    if named and file is None:
        raise SpecError("--from", path, f"{named}, Accelerate's settings that the script names, beside it")
    document = load_document(read_text(file, "--from"), str(file)) if file else None
    kind = str(document.find("distributed_type")).upper() if document else ""
    found: Table = {}
    if document and kind == "FSDP":
        found["fsdp_config"] = document.find("fsdp_config") or {"sharding_strategy": "full_shard"}
    if document and kind == "DEEPSPEED" and "deepspeed" not in values:
        engine = document.find("deepspeed_config") or {}
        offload = {"device": engine.get("offload_optimizer_device", "none")}
        stage = engine.get("zero_stage", 2)
        named_file = engine.get("deepspeed_config_file")
        found["deepspeed"] = named_file or {"zero_optimization": {"stage": stage, "offload_optimizer": offload}}
    if "--deepspeed-config-file" in launcher and "deepspeed" not in values:
        found["deepspeed"] = (launcher.values["--deepspeed-config-file"] or [""])[0]
    elif "--use-deepspeed" in launcher and "deepspeed" not in {**values, **found}:
        stage = (launcher.values.get("--zero-stage") or ["2"])[0]
        found["deepspeed"] = {"zero_optimization": {"stage": _scalar(stage)}}
    if "--use-fsdp" in launcher:
        raise SpecError("--from", Words(f"{path}: --use_fsdp"), "Accelerate's settings in a file (--config_file)")
    flag = (launcher.values.get("--mixed-precision") or [""])[0]
    mixed = flag or (document.find("mixed_precision") if document else None)
    if mixed in ("bf16", "fp16") and not {"bf16", "fp16"} & set(values):
        found[mixed] = True
    return found


def _beside(named: str, path: str) -> Path | None:
    """Return a file that lies beside a script, or in the checkout above it."""
    relative = PurePath(named)
    if relative.is_absolute() or ".." in relative.parts or OPEN in named:
        return None
    candidates = [folder / relative for folder in list(Path(path).resolve().parents)[:PARENTS]]
    return next((candidate for candidate in candidates if candidate.is_file()), None)
