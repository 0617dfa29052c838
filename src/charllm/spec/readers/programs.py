"""Settings in YAML: which program they are for, and the reader of that program's files."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import PurePath

from charllm.errors import SpecError, Words
from charllm.spec.readers import recognize
from charllm.spec.readers.automodel import read_automodel
from charllm.spec.readers.finetuning import read_finetuning
from charllm.spec.readers.finetuning_words import WORDS
from charllm.spec.readers.gpt_neox import read_gpt_neox
from charllm.spec.readers.hyperpod import read_hyperpod
from charllm.spec.readers.llm_foundry import read_llm_foundry
from charllm.spec.readers.megatron.settings import read_flagscale, read_primus
from charllm.spec.readers.nanotron import read_nanotron
from charllm.spec.readers.nemo import read_settings
from charllm.spec.readers.nemo.document import Document, load_document
from charllm.spec.readers.reading import Reading
from charllm.spec.readers.verl import read_verl

READERS: dict[str, Callable[[Document, str], Reading]] = {
    recognize.GPT_NEOX: read_gpt_neox,
    recognize.PRIMUS: read_primus,
    recognize.FLAGSCALE: read_flagscale,
    recognize.NANOTRON: read_nanotron,
    recognize.LLM_FOUNDRY: read_llm_foundry,
    recognize.AUTOMODEL: read_automodel,
    recognize.VERL: read_verl,
    recognize.HYPERPOD: read_hyperpod,
    **{program: partial(read_finetuning, program=program) for program in WORDS},
}
"""Program: the reader of its files. Files of other programs are refused by that program's name."""
REMEDIES = {
    recognize.GENERATION: "a file that trains: nothing is trained here",
    "Accelerate": "the script or settings that it launches: this file has no model and no batch",
}


def read_yaml(text: str, path: str, environment: Mapping[str, str] | None = None) -> Reading:
    """Read a settings file of a training program; NeMo's where no other program is recognised."""
    document = load_document(text, path, environment)
    program = recognize.find_program(document.table)
    if not program:
        return read_settings(document, path)
    if program not in READERS:
        known = ", ".join(["NeMo", *READERS])
        expected = REMEDIES.get(program, f"a file of {known}: files of {program} are not read")
        raise SpecError("--from", Words(f"{PurePath(path).name}, a file of {program}"), expected)
    return READERS[program](document, path)
