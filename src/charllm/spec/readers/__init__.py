"""Readers of foreign formats: each turns a file into a request and lists what the request does not hold."""

from charllm.spec.readers.reading import Reading
from charllm.spec.request import parse_json, read_text

SEPARATOR = "::"
"""Between a Python recipe and the function of it that is meant."""


def read_foreign(path: str) -> Reading:
    """Read a NeMo YAML, a torchtitan TOML, a Python recipe, a Hugging Face JSON, or else Megatron-LM arguments."""
    path, _, function = path.partition(SEPARATOR)
    text = read_text(path, "--from")
    suffix = path.lower().rpartition(".")[2]
    if suffix in ("yaml", "yml"):
        from charllm.spec.readers.nemo import read_nemo

        return read_nemo(text, path)
    if suffix == "toml":
        from charllm.spec.readers.torchtitan import read_torchtitan

        return read_torchtitan(text, path)
    if suffix == "py":
        from charllm.spec.readers.recipes import read_recipe

        return read_recipe(text, path, function)
    if suffix == "json" or text.lstrip().startswith("{"):
        from charllm.spec.readers.huggingface import read_hf_config

        return read_hf_config(parse_json(text, path, "--from"), path, text)
    from charllm.spec.readers.megatron import read_megatron

    return Reading(read_megatron(text, path))
