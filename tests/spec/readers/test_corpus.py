"""The corpus of real public files, and how it is scored."""

import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.reader_corpus import load_entries, score_entry

SCRIPT = """torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py \\
  --num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 128 \\
  --micro-batch-size 1 --global-batch-size 16 --bf16 --use-mcore-models --tensor-model-parallel-size 2 $EXTRA
"""


def entry(**keys: Any) -> dict[str, Any]:
    return {"repo": "me/mine", "path": "train.sh", **keys}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "me" / "mine").mkdir(parents=True)
    (tmp_path / "me" / "mine" / "train.sh").write_text(SCRIPT, encoding="utf-8")
    return tmp_path


def test_the_corpus_names_files_commits_and_what_they_say() -> None:
    entries = load_entries()
    assert len(entries) >= 75
    assert len({item["repo"] for item in entries}) >= 12
    for item in entries:
        assert re.fullmatch(r"[0-9a-f]{40}", item["commit"]), item["path"]
        assert ("refused" in item) != bool(item.get("expect")), item["path"]


@pytest.mark.parametrize(
    ("keys", "verdict"),
    [
        ({"expect": {"parallelism.tp": 2, "nodes": 2, "framework.base": "megatron"}}, "right"),
        ({"expect": {"parallelism.tp": 4}}, "silently wrong"),
        ({"expect": {"parallelism.tp": 4}, "env": {"EXTRA": "--turbo"}}, "wrong, with a warning"),
        ({"refused": "offload"}, "silently wrong"),
        ({"refused": "a vision tower", "env": {"EXTRA": "--img-h 9"}}, "refused"),
        ({"refused": "BERT", "env": {"EXTRA": "--img-h 9"}}, "refused, should be right"),
        ({"expect": {"parallelism.tp": 2}, "env": {"EXTRA": "--img-h 9"}}, "refused, should be right"),
        ({"expect": {"parallelism.tp": 2}, "path": "gone.sh"}, "absent"),
    ],
)
def test_a_file_is_scored_by_what_it_says(folder: Path, keys: dict[str, Any], verdict: str) -> None:
    assert score_entry(entry(**keys), folder).verdict == verdict
