"""What the documents show is what the program prints today."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from charllm.catalog.tables import KINDS, entries

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```\n(.*?)```", README, flags=re.DOTALL)
EXAMPLES = [
    (block.strip(), BLOCKS[index + 1])
    for index, block in enumerate(BLOCKS)
    if block.startswith(".venv/bin/charllm simulate")
]


@pytest.mark.parametrize(("command", "shown"), EXAMPLES, ids=["fits", "does not fit"])
def test_the_readme_shows_what_is_printed(command: str, shown: str) -> None:
    words = command.split()[1:]
    command_line, piped = [sys.executable, "-m", "charllm", *words], {**os.environ, "COLUMNS": "100"}
    done = subprocess.run(command_line, capture_output=True, text=True, check=False, env=piped)
    printed = {line.rstrip() for line in (done.stdout + done.stderr).splitlines()}
    for line in shown.splitlines():
        assert line in printed or line == "...", line


def test_the_readme_counts_the_catalog() -> None:
    for kind in ("models", "nodes", "fabrics", "clusters"):
        assert f"{len(entries(kind))} {kind}" in README
    assert f"{len(entries('gpus'))} GPUs" in README
    assert f"{len(entries('frameworks'))} software profiles" in README


def test_the_reference_names_every_entry(tmp_path: Path) -> None:
    code = (
        (ROOT / "docs" / "reference.py")
        .read_text()
        .replace('Path(__file__).parent / "reference"', f"Path({str(tmp_path)!r})")
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    catalog = (tmp_path / "catalog.md").read_text()
    assert all(f"`{name}`" in catalog for kind in KINDS for name in entries(kind))
    assert "global_batch_size" in (tmp_path / "spec.md").read_text()


@pytest.mark.parametrize("document", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/index.md"])
def test_links_lead_somewhere(document: str) -> None:
    path = ROOT / document
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
        assert target.startswith("http") or (path.parent / target).exists(), target


def test_the_glossary_explains_every_axis() -> None:
    glossary = (ROOT / "docs" / "concepts" / "glossary.md").read_text()
    assert all(word in glossary for word in ("tp", "cp", "dp", "pp", "ep", "etp", "edp"))
