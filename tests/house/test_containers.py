"""Versions that installs are held to: constraints.txt, and containers that use it (CI has no Docker to build them)."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
RECIPES = ["Dockerfile", "Dockerfile.rocm"]
OWN = {"numpy", "torch", "amdsmi"}
"""What belongs to the base image of a container."""


def plain(name: str) -> str:
    return name.lower().replace("_", "-")


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {plain(name): pin for name, pin in (line.split("==") for line in lines if not line.startswith("#"))}


def requirements() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    return [read for line in (*project["dependencies"], *extras) if (read := Requirement(line)).name != "charllm"]


@pytest.mark.parametrize("needed", requirements(), ids=str)
def test_what_the_project_needs_has_a_version_that_it_allows(needed: Requirement) -> None:
    assert constraints()[plain(needed.name)] in needed.specifier


def test_the_tests_run_with_the_versions_that_installs_are_held_to() -> None:
    pins = constraints()
    assert {name: version(name).split("+")[0] for name in pins} == pins


def installed(recipe: str) -> dict[str, str | None]:
    text = (ROOT / "containers" / recipe).read_text()
    command = re.search(r"pip install [^\n]*-c \S+beside.txt \\\n((?: +\S+(?: \\)?\n)+)", text)
    assert command
    words = [line.strip(" \\") for line in command[1].splitlines()]
    return {name: pin or None for name, _, pin in (word.partition("==") for word in words)}


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_container_takes_the_versions_of_the_tests_beside_what_its_base_brings(recipe: str) -> None:
    text = (ROOT / "containers" / recipe).read_text()
    (dropped,) = re.findall(r"grep -v -E '\^\(([\w|]+)\)=='", text)
    assert set(dropped.split("|")) <= OWN
    for name, pin in installed(recipe).items():
        assert (pin is None) == (name in constraints() and name not in dropped.split("|")), name
    needed = {requirement.name for requirement in requirements()} | {"megatron-core"}
    assert set(installed(recipe)) <= needed


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_base_of_a_container_and_what_it_copies_are_named(recipe: str) -> None:
    text = (ROOT / "containers" / recipe).read_text()
    (base,) = re.findall(r"^FROM (\S+)$", text, re.MULTILINE)
    assert ":" in base
    assert not base.endswith(":latest")
    copied = [word for line in re.findall(r"^COPY (.+)$", text, re.MULTILINE) for word in line.split()[:-1]]
    assert copied
    assert all((ROOT / name).exists() for name in copied)


def test_one_release_is_named_everywhere() -> None:
    (release,) = re.findall(r'__version__ = "(.+)"', (ROOT / "src/charllm/__init__.py").read_text())
    assert f"version: {release}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"## [{release}] - " in (ROOT / "CHANGELOG.md").read_text()
