"""Every file in examples/ is run as its first lines say."""

import json
import re
from pathlib import Path

import pytest

from charllm.cli import main

ROOT = Path(__file__).parent.parent.parent
FILES = sorted((ROOT / "examples").glob("*.toml"))


@pytest.mark.parametrize("path", FILES, ids=[path.name for path in FILES])
def test_an_example_runs_from_the_root(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(ROOT)
    (command,) = re.findall(r"charllm (?:simulate|sweep) examples/[^\n]*", path.read_text())[:1]
    words = command.replace("runs/my_study", str(tmp_path / "study")).split()[1:]
    assert main([*words, "--json"]) == 0
    shown = capsys.readouterr().out
    if words[0] == "simulate":
        assert json.loads(shown)["metrics"]["step_time_s"] > 0
    else:
        assert len(shown.splitlines()) == 12


def test_the_list_of_examples_names_them_all() -> None:
    listed = (ROOT / "examples" / "README.md").read_text()
    assert all(f"]({path.name})" in listed for path in FILES)


def test_the_cluster_example_has_what_it_shows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["simulate", "examples/spec.toml", "--cluster", "examples/cluster.toml", "--json"]) == 0
    spec = json.loads(capsys.readouterr().out)["spec"]
    assert spec["cluster"]["cooling"]["inlet_c"] == [22, 24, 26, 30]
    assert [other["node"]["gpu"]["name"] for other in spec["cluster"]["mixed"]] == ["h100"]
    assert spec["cluster"]["node"]["gpu"]["name"] == "my-gpu"
