"""Readers of foreign formats: each turns one into a request."""

from typing import Any

from charllm.spec.readers.huggingface import read_hf_config
from charllm.spec.readers.megatron import read_megatron
from charllm.spec.readers.nemo import read_nemo
from charllm.spec.request import read_json, read_text


def read_foreign(path: str) -> dict[str, Any]:
    """Return the request in a file: a NeMo YAML, a Hugging Face JSON, or else Megatron-LM arguments."""
    text = read_text(path, "--from")
    suffix = path.lower().rpartition(".")[2]
    if suffix in ("yaml", "yml"):
        return read_nemo(text, path)
    if suffix == "json" or text.lstrip().startswith("{"):
        return {"model": read_hf_config(read_json(path, "--from"), path)}
    return read_megatron(text, path)
