"""A script that writes a configuration file and starts NeMo or torchtitan with it."""

from dataclasses import replace

from charllm.spec.readers.reading import Reading
from charllm.spec.readers.shell import Inputs, Script, read_script
from charllm.spec.readers.shell.slurm import slurm_counts
from charllm.spec.readers.surroundings import with_surroundings

FLAGS = {".toml": "--job.config_file=", ".yaml": "--config-dir="}
"""Suffix of a written file: the flag by which its program is told of it, or of a folder above it."""


def read_written(text: str, path: str, inputs: Inputs) -> Reading | None:
    """Read the configuration that a script writes for its program; None where it starts none with one."""
    if "<<" not in text or not any(flag in text for flag in FLAGS.values()):
        return None
    script = read_script(text, path, inputs)
    for file, content in script.files.items():
        flag = FLAGS.get(file[-5:])
        if flag is not None and any(file.startswith(told) for told in _told(script, flag)):
            reading = with_surroundings(_read(content, file, inputs), script)
            counts = slurm_counts(script.headers)
            return replace(reading, nodes=counts.get("nodes"), gpus_per_node=counts.get("gpus"))
    return None


def _told(script: Script, flag: str) -> list[str]:
    """Return what the started commands say after a flag."""
    words = [word for command in script.commands for word in command.words]
    return [word.removeprefix(flag) for word in words if word.startswith(flag) and word != flag]


def _read(content: str, file: str, inputs: Inputs) -> Reading:
    if file.endswith(".toml"):
        from charllm.spec.readers.torchtitan import read_torchtitan

        return read_torchtitan(content, file)
    from charllm.spec.readers.programs import read_yaml

    return read_yaml(content, file, inputs.environment)
