"""Run the notebook with its outputs: `python docs/notebook.py` for those stored, `make docs` for those of the site."""

import ast
import contextlib
import io
import json
import os
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parent / "guides" / "python.ipynb"


def run_notebook() -> str:
    """Return the notebook as JSON, with what each cell prints and shows."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for count, cell in enumerate(code, 1):
        cell["execution_count"], cell["outputs"] = count, _run("".join(cell["source"]), names, count)
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _run(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Run a cell; what its last line gives is shown, as in a notebook."""
    tree, printed, last = ast.parse(source), io.StringIO(), None
    shown = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)
        if isinstance(shown, ast.Expr):
            last = eval(compile(ast.Expression(shown.value), "cell", "eval"), names)
    text = printed.getvalue()
    outputs: list[dict[str, Any]] = []
    if text:
        outputs.append({"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)})
    if last is not None:
        data = {"text/plain": repr(last).splitlines(keepends=True)}
        if hasattr(last, "_repr_html_"):
            data["text/html"] = last._repr_html_().splitlines(keepends=True)
        outputs.append({"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"})
    return outputs


if __name__ == "__main__":
    NOTEBOOK.write_text(run_notebook(), encoding="utf-8")
