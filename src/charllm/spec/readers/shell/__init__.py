"""Shell scripts, read and never run: the commands that a script would start, with its variables filled in."""

from charllm.spec.readers.shell.script import NO_INPUTS, Command, Inputs, Script
from charllm.spec.readers.shell.statements import read_script

__all__ = ["NO_INPUTS", "Command", "Inputs", "Script", "read_script"]
