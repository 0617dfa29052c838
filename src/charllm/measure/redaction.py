"""What a record says of a command and its environment: everything but what might be a secret."""

import re
import shlex
from collections.abc import Mapping, Sequence

KEPT_VARIABLES = re.compile(
    r"^(CUDA|NCCL|TORCH|OMP|GLOO|HIP|ROCR|NVTE|SLURM_JOB|SLURM_NNODES|(LOCAL_)?RANK|WORLD_SIZE)"
)
SECRET_WORDS = re.compile(r"(key|token(?!iz)|secret|passw|passphrase|pwd|credential|auth)", re.IGNORECASE)
SECRET_TAIL = re.compile(rf"({SECRET_WORDS.pattern}[\w-]*[\"'\])]*\s*[=:\s]).*", re.IGNORECASE | re.DOTALL)
"""The name of a secret, what divides it from its value, and all that follows."""
SECRET_NAME = re.compile(
    rf"^(-[^=]*|[\w-]*){SECRET_WORDS.pattern}[\w.-]*$|{SECRET_WORDS.pattern}[\w-]*\W*[=:]\W*$", re.IGNORECASE
)
"""A word of a command whose value is the next one: a flag, or a name that ends the word."""
URL_LOGIN = re.compile(r"(://)[^/@\s]+@")
SHORTEST_SECRET = 6
"""Shorter values of secret variables are not searched for: they would redact ordinary words."""


def describe_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that shape a run; what might be a secret is never among them."""
    return {
        name: redact(value, environment)
        for name, value in sorted(environment.items())
        if KEPT_VARIABLES.match(name) and not SECRET_WORDS.search(name)
    }


def describe_command(command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return a command for the record, with what might be a secret redacted."""
    shown: list[str] = []
    hide_next = False
    for word in command:
        shown.append("***" if hide_next else redact(word, environment))
        hide_next = bool(SECRET_NAME.search(word))
    return shown


def redact(text: str, environment: Mapping[str, str]) -> str:
    """Redact what follows the name of a secret, logins in addresses, and values of secret variables."""
    text = URL_LOGIN.sub(r"\1***@", SECRET_TAIL.sub(r"\1***", text))
    for name, value in environment.items():
        if len(value) >= SHORTEST_SECRET and SECRET_WORDS.search(name):
            text = text.replace(value, "***")
    return text


def redact_shell_words(text: str, environment: Mapping[str, str]) -> str:
    """Return words as of a shell for the record, as they are where none might be a secret."""
    words = shlex.split(text)
    shown = describe_command(words, environment)
    return text if shown == words else shlex.join(shown)
