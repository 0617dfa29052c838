"""Strategies are tried in the program that is to run them; where that needs an extra, it is said which."""

import sys

import pytest

from charllm.api.plan import plan
from charllm.catalog.export import export_run
from charllm.catalog.resolve import resolve_run
from charllm.errors import MissingExtra
from charllm.spec.readers.shell import syntax


@pytest.fixture
def without_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tree-sitter be missing, as in an installation without extras."""
    monkeypatch.setitem(sys.modules, "tree_sitter", None)
    for cached in (syntax._parser, syntax.parse):
        cached.cache_clear()


@pytest.mark.usefixtures("without_readers")
def test_a_plan_without_the_readers_extra_says_what_was_not_checked() -> None:
    found = plan(model="gpt2", cluster="h200x1", gbs=8, tp=1, pp=1, cp=1, mbs=1)
    assert found.best
    told = "not checked: whether megatron accepts these strategies (pip install 'charllm[readers]')"
    assert [warning for warning in found.warnings if "megatron" in warning] == [told]


@pytest.mark.usefixtures("without_readers")
def test_an_export_without_it_names_the_extra() -> None:
    run = resolve_run({"model": "llama3-8b", "cluster": "h200x8"})
    with pytest.raises(MissingExtra, match=r"megatron.*tree-sitter: pip install 'charllm\[readers\]'"):
        export_run(run, "megatron")
