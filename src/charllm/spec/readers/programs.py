"""Settings in YAML: which program they are for, and the reader of that program's files."""

from collections.abc import Callable, Mapping

from charllm.errors import SpecError, Words
from charllm.spec.readers import recognize
from charllm.spec.readers.nemo import read_settings
from charllm.spec.readers.nemo.document import Document, load_document
from charllm.spec.readers.reading import Reading

READERS: dict[str, Callable[[Document, str], Reading]] = {}
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
        raise SpecError("--from", Words(f"{path}, a file of {program}"), expected)
    return READERS[program](document, path)
