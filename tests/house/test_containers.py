"""The container recipes: pins that parse and agree, and files that exist. Images are not built: CI has no Docker."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECIPES = {"Dockerfile": "nvidia", "Dockerfile.rocm": "rocm"}
PIN = re.compile(r"^\s+([a-z0-9-]+)==([\d.]+)(?: \\)?$", re.MULTILINE)


def pins(vendor: str) -> dict[str, str]:
    table = tomllib.loads((ROOT / "containers" / "versions.toml").read_text())
    return {**table[vendor], **table["both"]}


@pytest.mark.parametrize(("file", "vendor"), RECIPES.items())
def test_a_recipe_pins_what_the_table_says(file: str, vendor: str) -> None:
    text = (ROOT / "containers" / file).read_text()
    expected = pins(vendor)
    base = expected.pop("base")
    assert re.findall(r"^FROM (\S+)$", text, re.MULTILINE) == [base]
    assert ":" in base
    assert not base.endswith(":latest")
    assert dict(PIN.findall(text)) == expected


@pytest.mark.parametrize("file", RECIPES)
def test_what_a_recipe_copies_exists(file: str) -> None:
    text = (ROOT / "containers" / file).read_text()
    copied = [word for line in re.findall(r"^COPY (.+)$", text, re.MULTILINE) for word in line.split()[:-1]]
    assert copied
    assert all((ROOT / name).exists() for name in copied)


def test_no_pinned_package_is_one_that_the_project_does_not_use() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    named = {name for vendor in RECIPES.values() for name in pins(vendor)} - {"base", "megatron-core"}
    assert {name for name in named if name not in project} == set()
