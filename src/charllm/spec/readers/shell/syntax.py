"""Syntax trees of shell text, by tree-sitter's Bash grammar."""

from functools import lru_cache
from typing import Any

from charllm.errors import MissingExtra, SpecError

Node = Any
"""A node of tree-sitter; its package is loaded only when a script is read."""

MAX_DEPTH = 300


@lru_cache(maxsize=1)
def _parser() -> Any:
    try:
        import tree_sitter
        import tree_sitter_bash
    except ImportError:
        raise MissingExtra("reading a launch script needs tree-sitter", "readers") from None
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


@lru_cache(maxsize=32)
def parse(text: str) -> Node:
    """Parse a script; text that is no shell gives a tree with error nodes, not an exception."""
    root = _parser().parse(text.encode("utf-8", "replace")).root_node
    level, depth = [root], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise SpecError("--from", f"text nested over {MAX_DEPTH} deep", "a shell script")
        level = [child for node in level for child in node.children]
    return root


def text_of(node: Node) -> str:
    """Return the source of a node."""
    return str(node.text.decode("utf-8", "replace"))


def line_of(node: Node) -> int:
    """Return the line on which a node begins, counted from 1."""
    return int(node.start_point[0]) + 1


def holds_exit(node: Node) -> bool:
    """Say whether a branch can end the script."""
    if node.type == "command" and text_of(node).split(maxsplit=1)[:1] in (["exit"], ["usage"]):
        return True
    return any(holds_exit(child) for child in node.children)


def branch_parts(node: Node) -> tuple[list[Node], list[Node]]:
    """Split an if, elif or while into the statements of its test and those of its body."""
    tests: list[Node] = []
    body: list[Node] = []
    part = tests
    for child in node.children:
        if child.type in ("then", "do"):
            part = body
        elif child.type in ("elif_clause", "else_clause"):
            continue
        elif child.type == "do_group":
            body += [inner for inner in child.children if inner.is_named]
        elif child.is_named:
            part.append(child)
    return tests, body


def case_parts(item: Node) -> tuple[list[str], list[Node]]:
    """Split one branch of a case into its patterns and its statements."""
    patterns: list[str] = []
    body: list[Node] = []
    before = True
    for child in item.children:
        if child.type == ")":
            before = False
        elif before and child.is_named:
            patterns.append(text_of(child).strip("\"'"))
        elif not before and child.is_named:
            body.append(child)
    return patterns, body
