"""The threat model: each promise names the tests that hold it, and these tests exist."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threats.md").read_text()
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def promises() -> list[str]:
    """Return the rows of the tables of promises."""
    tables = re.findall(r"(?m)^\| promise \| test \|\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE)
    return [row for table in tables for row in table.splitlines()]


def test_every_promise_names_a_test_and_every_test_that_is_named_exists() -> None:
    assert len(promises()) > 40
    for row in promises():
        assert NAMED.search(row.split("|")[2]), row
    for file, name in NAMED.findall(PAGE):
        tree = ast.parse((ROOT / file).read_text())
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, f"{file}::{name}"


def test_every_adversary_has_promises() -> None:
    sections = re.split(r"(?m)^## ", PAGE)[2:]
    titles = {section.splitlines()[0] for section in sections}
    assert titles >= {
        "A stored folder",
        "A script, a spec or a log",
        "A trace",
        "A local user",
        "A web page",
        "Another node",
    }
    assert all(NAMED.search(section) for section in sections)


def test_every_command_that_listens_is_listed() -> None:
    """A socket is opened to listen in few files; a new one belongs in the table."""
    table = PAGE.partition("## What listens where")[2].partition("\n## ")[0]
    listens = re.compile(r"create_server\(|HTTPServer\)|\.bind\(\(")
    files = {path for path in (ROOT / "src" / "charllm").rglob("*.py") if listens.search(path.read_text())}
    assert {path.name for path in files} == {"server.py", "rendezvous.py", "endpoint.py", "addresses.py"}
    assert all(name in table for name in ("charllm serve", "head of the run", "--prometheus", "--runner ray"))
