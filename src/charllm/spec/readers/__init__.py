"""Readers of foreign formats: each turns a file into a request and lists what the request does not hold."""

from charllm.spec.readers.deepspeed import is_deepspeed, read_deepspeed
from charllm.spec.readers.huggingface import read_hf_config
from charllm.spec.readers.megatron import read_megatron
from charllm.spec.readers.nemo import read_nemo
from charllm.spec.readers.reading import Reading
from charllm.spec.readers.shell.script import NO_INPUTS, Inputs
from charllm.spec.request import read_json, read_text


def read_foreign(path: str, inputs: Inputs = NO_INPUTS) -> Reading:
    """Read a NeMo YAML, a Hugging Face or DeepSpeed JSON, or else a script with Megatron-LM arguments."""
    text = read_text(path, "--from")
    suffix = path.lower().rpartition(".")[2]
    if suffix in ("yaml", "yml"):
        return Reading(read_nemo(text, path))
    if suffix == "json" or text.lstrip().startswith("{"):
        table = read_json(path, "--from")
        return read_deepspeed(table, path) if is_deepspeed(table) else Reading({"model": read_hf_config(table, path)})
    return read_megatron(text, path, inputs)


__all__ = ["Inputs", "Reading", "read_foreign"]
