import pytest

from charllm.catalog.tables import KINDS, aliases, catalog_hash, entries, find, find_name, read_entry, spell
from charllm.errors import SpecError


def test_spellings_fold() -> None:
    assert spell("  Llama_3.1  8B ") == "llama-3.1-8b"


@pytest.mark.parametrize(
    ("kind", "asked", "name"),
    [
        ("models", "GPT3-175B", "gpt3-175b"),
        ("models", "LLAMA3_70B", "llama3-70b"),
        ("gpus", "H100 96GB HBM2e 2.4TB/s 500W cap (Grand Teton)", "h100-hbm2e-500w"),
        ("fabrics", "DGX-H100", "ib-8x400g"),
        ("frameworks", "PyTorch FSDP", "fsdp"),
        ("models", "no such thing", None),
    ],
)
def test_names_are_found_by_any_known_spelling(kind: str, asked: str, name: str | None) -> None:
    assert find_name(kind, asked) == name


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(SpecError, match="did you mean llama3-70b"):
        find("models", "llama3-70", "model")


def test_a_figure_carries_its_source() -> None:
    citations = {"ds": "datasheet: a page"}
    entry = read_entry(
        "x", {"memory_gib": [2, "ds"], "vendor": "amd", "power_cap_w": [5, "assumed: no page"]}, citations, {}
    )
    assert entry.values["memory_bytes"] == 2 * 2**30
    assert entry.sources == {"memory_bytes": "datasheet: a page", "power_cap_w": "assumed: no page"}


def test_an_entry_starts_from_its_base() -> None:
    base = read_entry("base", {"layers": [3, "assumed: a"], "heads": [2, "assumed: b"]}, {}, {})
    entry = read_entry("child", {"base": "base", "layers": [4, "assumed: c"]}, {}, {"base": base})
    assert (entry.values["layers"], entry.values["heads"]) == (4, 2)
    assert (entry.sources["layers"], entry.sources["heads"]) == ("assumed: c", "assumed: b")


def test_every_alias_leads_to_an_entry() -> None:
    for kind, table in aliases().items():
        if kind in KINDS:
            assert set(table.values()) <= set(entries(kind)), kind


def test_the_fingerprint_is_short_and_stable() -> None:
    assert len(catalog_hash()) == 16
    assert catalog_hash() == catalog_hash()
