"""Completion scripts: bash's is run in bash; the others are read."""

import contextlib
import io
import subprocess
from pathlib import Path

import pytest

from charllm.catalog.tables import entries
from charllm.cli import COMMANDS, main

TRY = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); COMPREPLY=()
_charllm charllm "${@: -1}" "${@: -2:1}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        assert main(["completion", "bash"]) == 0
    path = tmp_path_factory.mktemp("completion") / "charllm"
    path.write_text(text.getvalue())
    return path


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["si"], {"simulate"}),
        (["simulate", "--model", "llama3-7"], {"llama3-70b"}),
        (["simulate", "--cluster", "charllm-ppt-h2"], {"charllm-ppt-h200"}),
        (["simulate", "--sched"], {"--schedule"}),
        (["simulate", "--schedule", "zero"], {"zero-bubble"}),
        (["simulate", "--precision", "mx"], {"mxfp8"}),
        (["simulate", "--tp", ""], set()),
        (["sweep", "charllm-ppt-l"], {"charllm-ppt-lora-h200"}),
        (
            ["catalog", "gp"],
            {"gpus", *(name for kind in ("models",) for name in entries(kind) if name.startswith("gp"))},
        ),
        (["validate", "kn"], {"known"}),
        (["validate", "ops", "--gpu", "h200-"], {"h200-nvl"}),
        (["completion", "f"], {"fish"}),
    ],
)
def test_bash_offers_what_fits(script: Path, words: list[str], offered: set[str]) -> None:
    command = ["bash", "-c", TRY, "bash", str(script), "charllm", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert set(done.stdout.split()) == offered


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_know_every_command_and_name(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert all(command in text for command in COMMANDS)
    assert all(name in text for kind in ("models", "clusters", "frameworks", "studies") for name in entries(kind))
    if shell == "fish":
        assert all(line.startswith(("complete -c charllm", "#")) for line in text.splitlines())
        assert "complete -c charllm -n '__fish_seen_subcommand_from simulate' -l tp -r -d 'Tensor parallelism" in text
