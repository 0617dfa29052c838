"""The store: listed in bounded time, read and never left."""

import json
import os
from pathlib import Path

import pytest

from charllm.api.simulation import simulate
from charllm.errors import SpecError
from charllm.explorer import store
from charllm.explorer.store import find_inside, is_stored, list_store
from charllm.report.page.planned import PLAN_FILE
from tests.explorer.runs import SMALL, write_broken, write_store
from tests.report.page.plans import plan_table


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_broken(write_store(tmp_path_factory.mktemp("explorer") / "store"))


def test_everything_that_charllm_wrote_is_listed(folder: Path) -> None:
    entries = {entry["path"]: entry for entry in list_store(folder)["entries"]}
    kinds = {path: (entry["kind"], entry["origin"], entry["state"]) for path, entry in entries.items()}
    assert kinds == {
        "runs/two": ("run", "simulated", "ended"),
        "runs/four": ("run", "simulated", "ended"),
        "study": ("study", "simulated", "ended"),
        "running": ("recording", "measured", "running"),
        "killed": ("recording", "measured", "silent"),
    }
    assert entries["runs/two"]["title"].startswith("llama3-8b on h200x8")
    assert f"charllm show {folder / 'killed'}" in entries["killed"]["note"]


def test_what_cannot_be_read_is_skipped_with_the_reason(folder: Path) -> None:
    skipped = {each["path"]: each["reason"] for each in list_store(folder)["skipped"]}
    assert set(skipped) == {"half", "empty", "foreign", "deep", "future", "link", "pipe"}
    assert "schema_version 99" in skipped["future"]
    assert "got text that is not JSON from line 1 on" in skipped["half"]
    assert "link out of the store" in skipped["link"]


def test_listing_writes_nothing(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    list_store(folder)
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(
    "path",
    ["", "..", "../outside", "runs/../../outside", "/etc", "elsewhere", "nowhere", "file", "a\0b", "link", "pipe",
     "x" * 5000, "runs/two/result.json"],
)  # fmt: skip
def test_paths_that_lead_out_or_nowhere_are_refused(folder: Path, path: str) -> None:
    with pytest.raises(SpecError) as refused:
        find_inside(folder, path)
    assert refused.value.field == "path"


def test_a_folder_inside_is_found(folder: Path) -> None:
    assert find_inside(folder, "runs/two") == (folder / "runs" / "two").resolve()
    assert is_stored(find_inside(folder, "study"))
    assert not is_stored(find_inside(folder, "killed"))


def test_a_huge_store_is_listed_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(300):
        (tmp_path / f"{number:04d}").mkdir()
    monkeypatch.setattr(store, "MOST_FOLDERS", 200)
    (told,) = list_store(tmp_path)["skipped"]
    assert told["reason"] == "only the first 200 folders were looked at, which hold 0 runs"
    monkeypatch.setattr(store, "LONGEST_S", -1.0)
    assert "the first 0 folders" in list_store(tmp_path)["skipped"][0]["reason"]


def test_a_loop_of_links_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    os.symlink(tmp_path, tmp_path / "a" / "up")
    assert list_store(tmp_path)["entries"] == []
    assert list_store(tmp_path)["skipped"] == []


def test_plans_are_listed_by_their_best_strategy(tmp_path: Path) -> None:
    for name, text in {"good": json.dumps(plan_table()), "half": '{"best": [', "foreign": "{}"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / PLAN_FILE).write_text(text)
    found = list_store(tmp_path)
    assert [(entry["kind"], entry["title"]) for entry in found["entries"]] == [
        ("plan", "plan: tp 4 x pp 4 x dp 2, microbatch 1")
    ]
    assert {each["path"] for each in found["skipped"]} == {"half", "foreign"}


def test_runs_with_one_title_are_told_apart_by_what_differs(tmp_path: Path) -> None:
    for name, recompute in (("plain", "none"), ("full", "full")):
        simulate(**SMALL, recompute=recompute, out=tmp_path / name)  # type: ignore[arg-type]
    titles = {entry["path"]: entry["title"] for entry in list_store(tmp_path)["entries"]}
    assert titles["plain"].endswith("tokens; recompute none")
    assert titles["full"].endswith("tokens; recompute full")
