"""Files that a shell script writes, edits or reads: here-documents, templates, other scripts beside it."""

import re
from pathlib import Path

from charllm.spec.readers.shell import conditions
from charllm.spec.readers.shell.script import Script
from charllm.spec.readers.shell.syntax import Node
from charllm.spec.readers.shell.words import heredoc, text

MAX_SCRIPT = 2**20
SHELLS = ("bash", "sh", "zsh", "dash", "ksh", "/bin/bash", "/bin/sh", "/usr/bin/bash")


def redirections(script: Script, node: Node) -> tuple[str, str | None]:
    """Return the file that a command writes to, and the text of a here-document that it reads."""
    target, body = "", None
    waiting = list(node.children[1:])
    while waiting:
        child = waiting.pop(0)
        if child.type == "file_redirect" and not any(part.type == "file_descriptor" for part in child.children):
            named = [part for part in child.children if part.is_named]
            if named and child.children[0].type in (">", ">>", "&>", ">|"):
                target = text(script, named[-1])
        elif child.type == "heredoc_body":
            body = heredoc(script, child)
        elif child.type == "heredoc_redirect":
            waiting += child.children
        elif child.type == "herestring_redirect":
            body = text(script, child.children[-1])
    return target, body


def edited(script: Script, nodes: list[Node]) -> str | None:
    """Return a template beside the script after the ``sed s/A/B/`` commands of a pipeline; None when there is none."""
    content: str | None = None
    for command in _commands_in(nodes):
        words = conditions.words_of(script, command)
        if words[:1] != ["sed"]:
            return None
        for word in words[1:]:
            change = re.fullmatch(r"s(\W)(.*?)\1(.*?)\1g?", word, re.DOTALL)
            if change is None and not word.startswith("-"):
                content = find_file(script, word)
            elif change is not None and content is not None:
                content = script.checked(content.replace(change[2], change[3]))
            elif change is not None:
                # The file to edit stands after the change.
                content = find_file(script, words[-1])
                content = None if content is None else content.replace(change[2], change[3])
                break
    return content


def _commands_in(nodes: list[Node]) -> list[Node]:
    found: list[Node] = []
    for node in nodes:
        found += [node] if node.type == "command" else _commands_in(node.children)
    return found


def find_file(script: Script, name: str) -> str | None:
    """Return the text of another script: one written by this script, or one that lies beside it."""
    if name in script.files:
        return script.files[name]
    plain_name = re.sub(r"^.*\ue001", "", name).lstrip("/")
    if script.folder is None or not plain_name or not plain_name.isprintable() or ".." in Path(plain_name).parts:
        return None
    for path in (script.folder / plain_name, script.folder / Path(plain_name).name):
        try:
            if path.is_file() and path.stat().st_size <= MAX_SCRIPT:
                return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError, ValueError):
            return None
    return None


def feeds_shell(words: list[str]) -> bool:
    """Say whether a command takes a here-document as a script."""
    return words[0] in ("sbatch", *SHELLS) and not any(word.endswith(".sh") for word in words)
