"""The glossary explains the words that users meet: in --help, in headings of tables, in the choices of the code."""

import re
from collections.abc import Iterator
from itertools import pairwise

import pytest

from charllm.cli import COMMANDS, main
from charllm.cli.parser import build_parser
from charllm.network.algorithms import ALGORITHMS
from charllm.result.metrics import AXES, CAUSES
from charllm.result.provenance import STANDINGS
from charllm.result.shape import ORIGINS
from charllm.spec.framework import DISPATCHERS
from charllm.spec.schedules import SCHEDULES
from charllm.timeline.labels import LABELS
from charllm.workload.op import COLLECTIVES
from tests.house.documents import ROOT

GLOSSARY = (ROOT / "docs" / "concepts" / "glossary.md").read_text().lower()
CHOICES = [*AXES, *CAUSES, *STANDINGS, *ORIGINS, *DISPATCHERS, *SCHEDULES, *LABELS, *COLLECTIVES, *ALGORITHMS]
COMMON_NAMES = {
    "CSV", "JSON", "TOML", "UUIDs", "PyTorch", "DeepSpeed", "NeMo", "PyPI", "HTML", "HTTP", "URL", "ZB", "LM", "IDs",
}  # fmt: skip
"""Names in --help that are not ours to explain: file formats, programs."""
TABLES = (
    "simulate --model mixtral-8x7b --cluster charllm-ppt-h200 --ep 8 --pp 2 --gbs 64 --recompute full",
    "sweep examples/study.toml",
    "messages --model llama3-8b --cluster h200x8 --tp 2",
    *(f"catalog {kind}" for kind in ("models", "gpus", "nodes", "fabrics", "clusters")),
)
PLAIN = {
    "s", "w", "c", "mhz", "gib", "k", "of", "in", "per", "all", "each", "count", "total", "name", "share", "calls",
    "kind", "bandwidth", "bf16", "way", "seq", "length", "nodes", "nic", "nics", "gpus", "ranks", "messages", "groups",
    "stages", "layers", "power_cap_w", "shared", "with", "over", "by", "tp", "pp", "step", "median", "w/gpu", "",
}  # fmt: skip
"""Words of headings that are units, plain English, or plurals of words that are explained."""


def explained(word: str) -> bool:
    spelled = re.escape(word.lower()).replace("_", "[ _-]").replace(r"\-", "[ _-]")
    return re.search(rf"(?<!\w){spelled}(?!\w)", GLOSSARY.replace("`", "")) is not None


def test_every_choice_of_the_code_is_explained() -> None:
    assert [word for word in CHOICES if not explained(word)] == []


def test_every_short_name_in_help_is_explained() -> None:
    texts = "".join(build_parser(name).format_help() for name in COMMANDS)
    # A word in capitals alone is the place of a value (FILE, NAME); units and short names of things have their entry.
    names = set(
        re.findall(r"(?<![\w-])(?=\w*[a-z])[A-Z]\w*[A-Z]\w*|(?<![\w-])(?:GPU|NIC|MFU|NVML|DCGM|FSDP)s?\b", texts)
    )
    found = {name.removesuffix("s") for name in names - COMMON_NAMES}
    assert {name for name in found if not explained(name)} == set()
    assert "MFU" in found


def headings(printed: str) -> Iterator[str]:
    """Yield the headings of the tables in a text: the line above each line of dashes."""
    lines = printed.splitlines()
    for line, below in pairwise(lines):
        if re.fullmatch(r"-+(  -+)*\s*", below):
            yield from re.split(r"\s{2,}", line.strip())


def test_every_heading_of_a_table_is_explained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "400")
    for command in TABLES:
        assert main(command.split()) == 0
    found = {
        word for heading in headings(capsys.readouterr().out) if not explained(heading) for word in heading.split()
    }
    strange = {word for word in found if word.strip(",%").lower() not in PLAIN and not explained(word.strip(","))}
    assert strange == set()


def test_a_word_stands_in_one_place() -> None:
    entries = re.findall(r"^\| ([^|]+) \|", GLOSSARY, flags=re.MULTILINE)
    words = [word.strip() for entry in entries if entry not in ("word", "---") for word in entry.split(",")]
    twice = {word for word in words if words.count(word) > 1}
    assert twice <= {"measured"}
