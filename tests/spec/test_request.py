import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.spec.request import (
    merge,
    parse_layer_split,
    parse_recompute,
    parse_settings,
    read_json,
    read_text,
    read_toml,
)


def test_tables_merge_and_names_become_a_base() -> None:
    assert merge({"model": "gpt2"}, {"model": {"layers": 3}}) == {"model": {"base": "gpt2", "layers": 3}}
    assert merge({"a": {"b": 1, "c": 2}}, {"a": {"b": 9}}) == {"a": {"b": 9, "c": 2}}
    assert merge({"model": {"layers": 3}}, {"model": "gpt2"}) == {"model": "gpt2"}


def test_a_change_in_another_unit_replaces_the_value() -> None:
    assert merge({"size_gib": 1}, {"size_gb": 3}) == {"size_bytes": 3e9}


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("cluster.nodes=8", {"cluster": {"nodes": 8}}),
        ("training.optimizer=none", {"training": {"optimizer": "none"}}),
        ('training.optimizer="none"', {"training": {"optimizer": "none"}}),
        ("parallelism.overlap=['tp']", {"parallelism": {"overlap": ["tp"]}}),
        ("model.tied_embeddings=true", {"model": {"tied_embeddings": True}}),
        ("a.b_ghz=1.5", {"a": {"b_hz": 1.5e9}}),
    ],
)
def test_settings_are_toml_values_or_bare_words(entry: str, expected: object) -> None:
    assert parse_settings([entry]) == expected


@pytest.mark.parametrize("entry", ["nodes", "=3", "a..b=1", "a.b.c.d.e.f.g.h.i=1", "a=1\nb=2"])
def test_settings_without_a_field_are_refused(entry: str) -> None:
    with pytest.raises(SpecError, match="--set"):
        parse_settings([entry])


def test_later_settings_win() -> None:
    assert parse_settings(["a.b=1", "a.b=2"]) == {"a": {"b": 2}}


def test_layer_splits_may_repeat() -> None:
    assert parse_layer_split("7,8x3,7") == [7, 8, 8, 8, 7]


@pytest.mark.parametrize("split", ["", "7,,8", "x3", "7x", "-1", "8x99999999999", "7.5"])
def test_broken_layer_splits_are_refused(split: str) -> None:
    with pytest.raises(SpecError, match="layers_per_stage"):
        parse_layer_split(split)


def test_recomputation_is_one_word_and_a_detail() -> None:
    assert parse_recompute("full:12") == {"recompute": "full", "recompute_layers": 12}
    assert parse_recompute("selective:mlp,moe_act") == {
        "recompute": "selective",
        "recompute_modules": ["mlp", "moe_act"],
    }
    assert parse_recompute("none") == {"recompute": "none"}
    with pytest.raises(SpecError):
        parse_recompute("none:3")


@pytest.mark.parametrize("text", ["a = ", "[" * 20_000, "a = 1\na = 2", "a = " + "[" * 20_000, "a = " + "9" * 5000])
def test_malformed_toml_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(SpecError, match="valid TOML"):
        read_toml(file, "SPEC")


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "[1]", "NaN", '{"a": ' + "9" * 5000 + "}"])
def test_malformed_json_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bad.json"
    file.write_text(text)
    with pytest.raises(SpecError, match="JSON"):
        read_json(file, "--model")


@pytest.mark.parametrize(
    "text",
    [".".join("a" * 20_000) + " = 1", "a = " + "[" * 40 + "]" * 40, "a = " + "9" * 400, "a = -9223372036854775809"],
)
def test_deep_tables_and_long_numbers_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "deep.toml"
    file.write_text(text)
    with pytest.raises(SpecError, match=r"at most 32|64 bits"):
        read_toml(file, "SPEC")
    with pytest.raises(SpecError):
        resolve_run({"model": "llama3-8b", "cluster": "h200x8", "training": {"global_batch_size": 10**400}})


@pytest.mark.parametrize("setting", ["a=" + "9" * 300, "a=" + "[" * 40 + "]" * 40])
def test_settings_are_bounded_too(setting: str) -> None:
    with pytest.raises(SpecError, match=r"at most 32|64 bits"):
        parse_settings([setting])


def test_missing_huge_and_binary_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="No such file"):
        read_toml(tmp_path / "none.toml", "SPEC")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="UTF-8"):
        read_toml(binary, "SPEC")
    binary.write_bytes(b"name = \x00")
    with pytest.raises(SpecError, match="NUL"):
        read_toml(binary, "SPEC")
    with pytest.raises(SpecError, match="a file of at most 2 B"):
        read_text(binary, "SPEC", max_bytes=2)
    for name in ("a\0b", "a\ud800b", "x" * 5000):
        with pytest.raises(SpecError, match=r"a file name|File name too long"):
            read_text(name, "SPEC")


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("a named pipe", lambda folder: os.mkfifo(folder / "spec")),
        ("a folder", lambda folder: (folder / "spec").mkdir()),
        ("a device", lambda folder: (folder / "spec").symlink_to("/dev/zero")),
    ],
)
def test_what_may_never_end_is_not_read(tmp_path: Path, kind: str, make: Callable[[Path], None]) -> None:
    make(tmp_path)
    with pytest.raises(SpecError, match=rf"spec', {kind}; expected a readable file: a regular one"):
        read_toml(tmp_path / "spec", "SPEC")


def test_byte_order_marks_and_foreign_line_ends_are_read(tmp_path: Path) -> None:
    file = tmp_path / "spec.toml"
    file.write_bytes(b'\xef\xbb\xbfmodel = "a"\r\ncluster = "b"\r\n')
    assert read_toml(file, "SPEC") == {"model": "a", "cluster": "b"}


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a = 1")))
    assert read_toml("-", "SPEC") == {"a": 1}
