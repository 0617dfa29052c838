"""Which command of a script trains, on how many nodes and GPUs it is started, and its flags."""

import re
import shlex
from dataclasses import dataclass

from charllm.errors import SpecError
from charllm.spec.readers.megatron.flags import Flags, canonical, collect_flags
from charllm.spec.readers.megatron.tuning import SWIFT, fill_swift, is_swift
from charllm.spec.readers.shell import Command, Script
from charllm.spec.readers.shell.script import items_of
from charllm.spec.readers.shell.slurm import slurm_counts

MARKS = ("--num-layers", "--hidden-size", "--micro-batch-size", "--tensor-model-parallel-size", "--seq-length")
ENOUGH = 2
"""Marks that make a command a training command."""

_OTHER_WORK = re.compile(
    r"preprocess|convert|merge|generat|inference|server|evaluate|evalharness|eval_harness|analy[sz]e|quantize|export|"
    r"download|hf2|2hf|checkpoint/|ckpt|prune|prepare|profile_",
    re.IGNORECASE,
)
_OWN = "a model that the program builds with settings of its own"
_FAMILIES = {"t5": "an encoder-decoder", "bert": "BERT", "ict": "a retriever", "retro": "retrieval (RETRO)",
             "vlm": "a vision tower", "vision": "a vision model", "mimo": "a vision tower", "llava": "a vision tower",
             "biencoder": "a retriever", "realm": "a retriever", "vl": "a vision tower",
             "starcoder": _OWN, "bloom": _OWN, "falcon": _OWN, "chatglm": _OWN, "glm130b": _OWN, "galactica": _OWN,
             "baichuan": _OWN, "baichuan2": _OWN}  # fmt: skip
"""Part of a program's name: what it trains beside or instead of a decoder that the flags describe."""
ENVIRONMENTS = re.compile(
    r"conda|activate|bashrc|profile|modules?\b|venv|setvars|/etc/|env\.sh|setup|start-", re.IGNORECASE
)
"""Files that set up programs and paths, and no training settings."""
_WHOLE = re.compile(r"\d{1,7}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Launch:
    """A training command taken apart."""

    flags: Flags
    launcher: Flags
    program: str = ""
    line: int | None = None
    others: int = 0
    """Further training commands of the script that differ from this one."""

    @property
    def other_family(self) -> str:
        """What the program trains, by its name, if it is no decoder; empty for one."""
        name = self.program.rpartition("/")[2].lower().removesuffix(".py")
        parts = re.split(r"[_\d.-]+", name)
        return next(
            (what for word, what in _FAMILIES.items() if word in parts or word in re.split(r"[_.-]+", name)), ""
        )


def find_launch(script: Script, source: str) -> Launch:
    """Find the training command of a script; a file without commands is taken as arguments to be sourced."""
    commands = [_inner(command) for command in script.commands]
    launches = [_split(script, command, source) for command in commands if _is_training(command)]
    training = [launch for launch in launches if not _OTHER_WORK.search(launch.program.rpartition("megatron/")[2])]
    if training:
        first = training[0]
        others = sum(launch.flags.values != first.flags.values for launch in training[1:])
        return Launch(first.flags, first.launcher, first.program, first.line, others)
    if script.exited is not None:
        raise SpecError("--from", script.path, f"{_why_nothing(script)}a training command before that")
    if launches:
        raise SpecError("--from", script.path, f"a training script: {launches[0].program} trains nothing")
    return _sourced(script, source)


def _inner(command: Command) -> Command:
    """Return the command that a launcher is given as one word after -c, or else the command itself."""
    for place, word in enumerate(command.words[:-1]):
        text = command.words[place + 1]
        if word in ("-c", "-lc", "--command", "--cmd") and " --" in text and "\n" not in text:
            try:
                words = shlex.split(text)
            except ValueError:
                continue
            return command._replace(words=words, outer=(*command.outer, *command.words[:place]))
    return command


def _is_training(command: Command) -> bool:
    if is_swift(command.words):
        return True
    names = {canonical(word.partition("=")[0]) for word in " ".join(command.words).split() if word.startswith("--")}
    return sum(mark in names for mark in MARKS) >= ENOUGH


def _split(script: Script, command: Command, source: str) -> Launch:
    """Cut a command where the program begins: flags before it belong to the launcher."""
    words = command.words
    if is_swift(words):
        flags = collect_flags(words[2:], script, source)
        fill_swift(flags)
        outer = collect_flags(command.outer, script)
        return Launch(flags, outer, f"{SWIFT} {words[1]}", command.line)
    place = next((index for index, word in enumerate(words) if re.search(r"\.py$", word)), None)
    if place is None:
        place = _module_place(words)
    if place is None:
        return Launch(
            collect_flags(words, script, source), collect_flags([*command.outer, *words], script), "", command.line
        )
    launcher = collect_flags([*_long(command.outer), *_long(words[:place])], script)
    return Launch(collect_flags(words[place + 1 :], script, source), launcher, words[place], command.line)


def _long(words: tuple[str, ...] | list[str]) -> list[str]:
    """Spell the short options of launchers out."""
    return [{"-N": "--nodes", "-n": "--ntasks"}.get(word, word) for word in words]


def _module_place(words: list[str]) -> int | None:
    for index, word in enumerate(words[:-1]):
        if word == "-m" and not words[index + 1].startswith("torch.distributed"):
            return index + 1
    return None


def _sourced(script: Script, source: str) -> Launch:
    # A bare argument string is a command that begins with a flag.
    words = [word for command in script.commands if command.words[0].startswith("--") for word in command.words]
    found = collect_flags(words, script, source)
    if not any(mark in found for mark in MARKS):
        values = [item for value in script.variables.values() for item in items_of(value)]
        words = [word for value in values for word in (value.split() if "--" in value else [value])]
        found = collect_flags(words, script, source)
        tokenizer = script.variables.get("TOKENIZER_MODEL")
        if isinstance(tokenizer, str) and "--tokenizer-model" not in found:
            found.values["--tokenizer-model"] = [tokenizer]
    if not any(mark in found for mark in MARKS):
        raise SpecError(
            "--from", script.path, f"{_why_nothing(script)}Megatron-LM arguments, such as {', '.join(MARKS)}"
        )
    return Launch(found, found)


def _why_nothing(script: Script) -> str:
    if script.asked_arguments:
        return f"--args 'WORDS', the script's arguments {', '.join(script.asked_arguments)}, and "
    if script.exited is not None:
        return f"--args 'WORDS' or --env NAME=VALUE, without which the script exits on line {script.exited}, and "
    missing = next((name for name in script.not_found if not ENVIRONMENTS.search(name)), None)
    return f"the script {missing}, which this one starts, beside it, and " if missing else ""


def count_nodes(launch: Launch, script: Script) -> tuple[int | None, int | None]:
    """Return nodes and GPUs of a node that the launcher or Slurm's header asks for, where they are plain numbers."""
    slurm = slurm_counts([*script.headers, *_slurm_words(launch)])
    nodes = _first(launch.launcher, ("--nnodes", "--num-nodes", "--nodes")) or slurm.get("nodes")
    gpus = _first(launch.launcher, ("--nproc-per-node", "--num-gpus", "--gpus-per-node", "--num-gpus-per-node"))
    gpus = gpus or slurm.get("gpus")
    if gpus is None and (slurm.get("tasks") or 0) > 1:
        gpus = slurm["tasks"]
    if (
        nodes is None
        and gpus is not None
        and launch.launcher.any("--nproc-per-node", "--num-gpus")
        and "--nnodes" not in launch.launcher
    ):
        nodes = 1
    if nodes is None or gpus is None:
        return _from_world(launch, script, nodes, gpus)
    return nodes, gpus


def _slurm_words(launch: Launch) -> list[str]:
    wanted = ("--nodes", "--ntasks-per-node", "--gres", "--gpus-per-node", "--ntasks")
    return [f"{name}={launch.launcher.values[name][0]}" for name in wanted if launch.launcher.values.get(name)]


def _from_world(launch: Launch, script: Script, nodes: int | None, gpus: int | None) -> tuple[int | None, int | None]:
    world = _whole(script.variables.get("WORLD_SIZE", "")) or _first(launch.flags, ("--world-size",))
    if world and gpus and nodes is None and world % gpus == 0:
        return world // gpus, gpus
    return nodes, gpus


def _first(flags: Flags, names: tuple[str, ...]) -> int | None:
    for name in names:
        values = flags.values.get(name)
        found = _whole(values[0]) if values else None
        if found:
            return found
    return None


def _whole(value: object) -> int | None:
    """Read a number of the launcher, whose other notations (2:4, gpu) leave it unknown."""
    return int(value) or None if isinstance(value, str) and _WHOLE.fullmatch(value) else None
