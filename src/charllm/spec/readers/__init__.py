"""Readers of foreign formats: each turns a file into a request and lists what the request does not hold."""

from pathlib import PurePath

from charllm.errors import SpecError, Words
from charllm.spec.readers.reading import Reading
from charllm.spec.readers.shell.script import NO_INPUTS, Inputs
from charllm.spec.request import parse_json, read_text

SEPARATOR = "::"
"""Between a Python recipe and the function of it that is meant."""


def read_foreign(path: str, inputs: Inputs = NO_INPUTS) -> Reading:
    """Read a YAML of a training program, a torchtitan TOML, a Python recipe, a config or DeepSpeed JSON, or script."""
    path, _, function = path.partition(SEPARATOR)
    text = read_text(path, "--from")
    suffix = path.lower().rpartition(".")[2]
    if suffix in ("yaml", "yml"):
        from charllm.spec.readers.programs import read_yaml

        return read_yaml(text, path, inputs.environment)
    if suffix == "toml":
        from charllm.spec.readers.torchtitan import read_torchtitan

        return read_torchtitan(text, path)
    if suffix == "py":
        from charllm.spec.readers.recipes import read_recipe

        return read_recipe(text, path, function)
    if suffix == "json" or text.lstrip().startswith("{"):
        return _read_json(text, path)
    return _read_script(text, path, inputs)


def _read_script(text: str, path: str, inputs: Inputs) -> Reading:
    """Read a script: the configuration file that it writes for its program, or else the program's arguments."""
    from charllm.spec.readers.megatron import read_megatron
    from charllm.spec.readers.megatron.launch import MARKS
    from charllm.spec.readers.recognize import find_started
    from charllm.spec.readers.tuning_script import read_tuning_script
    from charllm.spec.readers.verl import read_verl_script
    from charllm.spec.readers.written import read_written

    readers = (read_written, read_verl_script, read_tuning_script)
    reading = next((found for read in readers if (found := read(text, path, inputs)) is not None), None)
    if reading is not None:
        return reading
    program = "" if any(mark in text for mark in MARKS) else find_started(text)
    if program:
        raise SpecError(
            "--from",
            Words(f"{PurePath(path).name}, a script that starts {program}"),
            "a script of Megatron-LM, ms-swift, LLaMA-Factory, Axolotl, transformers' Trainer or verl's SFT",
        )
    return read_megatron(text, path, inputs)


def _read_json(text: str, path: str) -> Reading:
    from charllm.spec.readers.deepspeed import is_deepspeed, read_deepspeed
    from charllm.spec.readers.huggingface import read_hf_config
    from charllm.spec.readers.ledger import Ledger

    table = parse_json(text, path, "--from")
    is_engine = isinstance(table, dict) and is_deepspeed(table)
    return read_deepspeed(Ledger(table), path) if is_engine else read_hf_config(table, path, text)


__all__ = ["Inputs", "Reading", "read_foreign"]
