"""What the documents show is what the program prints today; every example is run, or parsed where it needs a GPU."""

import re
from pathlib import Path

import pytest

import charllm
from charllm.api.report import page_of
from charllm.catalog.tables import entries
from charllm.cli import COMMANDS
from charllm.cli.parser import all_actions, build_parser
from charllm.evaluate.scoreboard import read_scoreboard
from charllm.units import format_percent
from tests.house.documents import NOT_EXECUTED, NOT_RUN, PAGES, ROOT, Trial, blocks, commands, prepare, try_page

README = (ROOT / "README.md").read_text()
LARGEST_PICTURE = 300_000
USERS = ("runs/", "nodes/", "site/", "demo/", "Megatron-LM/", "logs/")
"""Folders of files that users have, or that commands write."""
LANGUAGES = {"sh", "text", "python", "toml", "sql", "json", "diagram", "equation"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_do_what_the_page_says(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {block.language for block in blocks(page)} <= LANGUAGES
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    prepare(tmp_path)
    try_page(page, Trial())


def test_no_reason_to_leave_an_example_out_is_without_an_example() -> None:
    found = [block for page in PAGES for block in blocks(page)]
    written = [command for block in found if block.language == "sh" for command in commands(block)]
    assert [pattern for pattern in NOT_RUN if not any(re.match(pattern, command) for command in written)] == []
    python = [block.text for block in found if block.language == "python"]
    assert [words for words in NOT_EXECUTED if not any(words in text for text in python)] == []


def test_the_readme_counts_the_catalog() -> None:
    for kind in ("models", "nodes", "fabrics", "clusters"):
        assert f"{len(entries(kind))} {kind}" in README
    assert f"{len(entries('gpus'))} GPUs" in README
    assert f"{len(entries('frameworks'))} software profiles" in README


def test_the_readme_names_every_command() -> None:
    assert [name for name in COMMANDS if f"`charllm {name}" not in README] == []


def test_the_readme_is_read_in_a_few_minutes() -> None:
    assert len(README.splitlines()) <= 160


def test_the_guide_to_reports_explains_every_figure(tmp_path: Path) -> None:
    guide = re.sub(r"\s+", " ", (ROOT / "docs" / "guides" / "report.md").read_text())
    runs = [charllm.simulate(model="llama3-8b", cluster="h200x8", tp=degree, pp=2, gbs=32) for degree in (1, 2)]
    charllm.sweep(axes={"tp": [2, 4]}, base={"model": "llama3-8b", "cluster": "h200x8"}, out=tmp_path / "study")
    pages = [page_of(what) for what in (runs[0], runs, tmp_path / "study")]
    figures = [figure for page in pages for section in page.sections for figure in section.figures]
    # Each case of a study has the figures of a run in small; each run of a comparison has one of its power.
    questions = {figure.question for figure in figures if not re.match(r"case-|power-\d", figure.name)}
    assert {question for question in questions if question not in guide} == set()


def test_pictures_exist_and_are_small() -> None:
    shown = [
        (page.parent / target).resolve()
        for page in PAGES
        for target in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page.read_text())
    ]
    assert ROOT / "docs" / "pictures" / "report.png" in shown
    assert [path for path in shown if not path.exists() or path.stat().st_size > LARGEST_PICTURE] == []
    assert {path.resolve() for path in (ROOT / "docs" / "pictures").iterdir()} <= set(shown)


@pytest.mark.parametrize("document", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "examples/README.md"])
def test_links_lead_somewhere(document: str) -> None:
    path = ROOT / document
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if target.startswith("http"):
            continue
        name, _, anchor = target.partition("#")
        found = path.parent / name if name else path
        assert found.exists(), target
        headings = re.findall(r"^#+ (.+)$", found.read_text(), flags=re.MULTILINE) if anchor else []
        assert not anchor or anchor in {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in headings}


def test_the_readme_shows_the_errors_of_the_scoreboard() -> None:
    scores = {score[:5]: score for score in read_scoreboard()}
    held = scores["published", "family left out", "step time", "all", "all"]
    shown = f"{format_percent(held.median)} (90th percentile {100 * held.p90:.0f} %)"
    assert f"step time of {held.rows} published runs, each model family held out | {shown}" in README
    usual = scores["published, untuned hosts", "source left out", "step time", "all", "all"]
    assert f"step time of {usual.rows} runs as users have them" in README
    known = scores["known runs", "constants that ship", "step time", "all", "all"]
    shown = f"{format_percent(known.median)} ({100 * known.p90:.0f} %)"
    assert f"step time of {known.rows} well-known runs, described from their papers | {shown}" in README


def test_files_that_documents_name_exist() -> None:
    places = (ROOT, ROOT / "src" / "charllm", ROOT / "tests", ROOT / "src")
    for page in [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]:
        # The table of ARCHITECTURE.md names files of a room without the room; generated pages name theirs alike.
        for name in re.findall(r"`((?:\w+/)+\w+\.(?:py|json|css|md))", page.read_text()):
            known = any((place / name).exists() for place in places) or name.startswith(USERS)
            assert known, f"{page.name}: {name}"


@pytest.mark.parametrize(
    "name", ["time", "memory", "traffic", "power", "heat", "loop", "sensor", "uncertainty", "energy"]
)
def test_a_concept_has_its_equation_what_it_ignores_and_where_it_stands_in_the_code(name: str) -> None:
    text = (ROOT / "docs" / "concepts" / f"{name}.md").read_text()
    assert "```equation\n" in text
    assert "\n## Ignores\n" in text
    assert re.search(r"`\w+/\w+\.py`", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_named_in_a_sentence_exist_with_their_flags(page: Path) -> None:
    for words in re.findall(
        r"`(?:\.venv/bin/)?charllm ([a-z][^`]*)`", re.sub(r"(?ms)^```.*?^```$", "", page.read_text())
    ):
        name, *rest = re.split(r"[\s,]+", words.split(" -- ")[0])
        assert name in COMMANDS, words
        flags = {flag for action in all_actions(build_parser(name)) for flag in action.option_strings}
        assert {word for word in rest if word.startswith("-")} - flags == set(), words


@pytest.mark.parametrize("guide", sorted((ROOT / "docs" / "guides").glob("*.md")), ids=lambda guide: guide.stem)
def test_a_guide_ends_with_what_can_go_wrong(guide: Path) -> None:
    headings = re.findall(r"^## (.+)$", guide.read_text(), re.MULTILINE)
    assert headings[-1] == "What can go wrong"
