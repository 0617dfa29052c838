"""The Python guide names every keyword, and its notebook runs as it stands (its examples: test_documents.py)."""

import ast
import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest

import charllm

GUIDES = Path(__file__).parent.parent.parent / "docs" / "guides"


def test_the_guide_names_every_keyword() -> None:
    words = set(re.findall(r"\w+", (GUIDES / "python.md").read_text()))
    keywords = set(inspect.signature(charllm.simulate).parameters) - {"fields"}
    assert keywords <= words


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Run a cell and return the value of its last line, which a notebook would show."""
    tree = ast.parse(source)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        exec(compile(tree, "cell", "exec"), names)
        return None
    exec(compile(ast.Module(tree.body[:-1], []), "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def test_the_notebook_runs_from_its_first_cell_to_its_last(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    cells = [cell for cell in json.loads((GUIDES / "python.ipynb").read_text())["cells"] if cell["cell_type"] == "code"]
    names: dict[str, Any] = {}
    shown, said = [], []
    for cell in cells:
        shown.append(run_cell("".join(cell["source"]), names))
        said.append(capsys.readouterr().out)
    assert "llama3-70b on h200x32" in shown[0]._repr_html_()
    printed = "".join(said)
    for told in ("compute", "hottest: rank", "settings that differ", "500 W cap", "tokens/s; power: None"):
        assert told in printed
    assert len(names["cases"]) >= 2
    if names["plt"] is None:
        assert "mbs 1 " in printed
        assert "rank 31, stage 3" in printed
    # Stored as `python docs/notebook.py` runs it: what a cell shows or prints stands below it.
    assert "llama3-70b on h200x32" in "".join(cells[0]["outputs"][0]["data"]["text/html"])
    assert [bool(cell["outputs"]) for cell in cells] == [bool(one or two) for one, two in zip(shown, said, strict=True)]
