"""Which tests execute which lines: one run of the chosen tests under coverage.py, a context for each test.

What is cached is dropped before each file of tests, so that one file does not hide what others execute; within a file
tests share fixtures and caches, so that any of them may fail for what another executed. Lines that coverage.py cannot
see (compiled functions, constants of a module, defaults of a class) count as executed where a line that names them is.
"""

import ast
import functools
import re
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

Lines = dict[int, set[str]]
QUIET = ("--assert=plain", "--no-header")
"""Options of pytest: plain assertions need no rewriting of what is imported already."""
ENOUGH_TESTS = 10
"""Tests of a line below which those of its callers are added: a test may call what mostly runs as machine code."""


class Executed(NamedTuple):
    """The chosen tests, as they ran without a mutant."""

    seconds: dict[str, float]
    """Test: seconds of the processor that it took, under coverage.py."""
    lines: dict[str, Lines]
    """File of the package: line: the tests that executed it."""
    failed: list[str]


class Recorder:
    """A pytest plugin that tells coverage.py which test runs."""

    def __init__(self, coverage: Any, folders: tuple[str, ...]) -> None:
        self.coverage = coverage
        self.cleared = (*(f"charllm.{folder}." for folder in folders), "tests.")
        self.file = ""
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        file = item.nodeid.split("::")[0]
        if file != self.file:
            self.file = file
            self.drop_caches()
        self.coverage.switch_context(item.nodeid)
        start = time.process_time()
        done = yield
        self.seconds[item.nodeid] = time.process_time() - start
        self.coverage.switch_context("")
        return done

    def drop_caches(self) -> None:
        """Forget what functions of the mutated folders have returned."""
        for name, module in list(sys.modules.items()):
            if name.startswith(self.cleared):
                for value in vars(module).values():
                    if isinstance(value, functools._lru_cache_wrapper):
                        value.cache_clear()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


def record_map(package: Path, folders: tuple[str, ...], tests: Sequence[str]) -> Executed:
    """Run the chosen tests in this process, under coverage.py, and return what they executed."""
    import coverage

    cover = coverage.Coverage(
        data_file=None, include=[f"{package / folder}/*" for folder in folders], config_file=False
    )
    recorder = Recorder(cover, folders)
    cover.start()
    pytest.main([*QUIET, *tests], plugins=[recorder])
    cover.stop()
    data, lines = cover.get_data(), {}
    for path in data.measured_files():
        found: Lines = {}
        for line, contexts in data.contexts_by_lineno(path).items():
            found[line] = {context for context in contexts if context}
        lines[str(Path(path).relative_to(package))] = found
    return Executed(recorder.seconds, lines, recorder.failed)


def split_by_file(found: Executed) -> dict[str, Executed]:
    """Return what each file of tests executed."""
    parts = {test.split("::")[0]: Executed({}, {}, []) for test in found.seconds}
    for test, seconds in found.seconds.items():
        parts[test.split("::")[0]].seconds[test] = seconds
    for test in found.failed:
        parts[test.split("::")[0]].failed.append(test)
    for file, lines in found.lines.items():
        for line, tests in lines.items():
            for test in tests:
                parts[test.split("::")[0]].lines.setdefault(file, {}).setdefault(line, set()).add(test)
    return parts


def merge_files(parts: Sequence[Executed]) -> Executed:
    """Return what several files of tests executed."""
    whole = Executed({}, {}, [])
    for part in parts:
        whole.seconds.update(part.seconds)
        whole.failed.extend(part.failed)
        for file, lines in part.lines.items():
            for line, tests in lines.items():
                whole.lines.setdefault(file, {}).setdefault(line, set()).update(tests)
    return whole


class Sources:
    """The sources of the mutated folders, for finding who names a function or a constant."""

    def __init__(self, package: Path, folders: tuple[str, ...]) -> None:
        self.text = {
            str(path.relative_to(package)): path.read_text().splitlines()
            for folder in folders
            for path in sorted((package / folder).rglob("*.py"))
        }
        self.trees = {file: ast.parse("\n".join(lines)) for file, lines in self.text.items()}

    def statement(self, file: str, line: int) -> tuple[range, list[str]]:
        """Return the lines of the smallest statement around a line, and the names by which others reach it."""
        span, names, node = range(line, line + 1), list[str](), self.trees[file].body
        while True:
            inner = [one for one in node if _first_line(one) <= line <= (one.end_lineno or 0)]
            if not inner:
                return span, names
            at = inner[0]
            if isinstance(at, ast.FunctionDef | ast.ClassDef):
                names = [at.name]
            elif not names and isinstance(at, ast.Assign | ast.AnnAssign | ast.Expr):
                targets = (
                    at.targets if isinstance(at, ast.Assign) else [at.target] if isinstance(at, ast.AnnAssign) else []
                )
                names = [one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)]
            body = [one for field in ("body", "orelse", "finalbody") for one in getattr(at, field, [])]
            if body and line >= _first_line(body[0]):
                node = body
                continue
            last = at.end_lineno or line
            return range(at.lineno, _first_line(body[0]) if body else last + 1), names

    def mentions(self, name: str) -> Iterator[tuple[str, int]]:
        """Yield where a name is used."""
        word = re.compile(rf"\b{re.escape(name)}\b")
        for file, lines in self.text.items():
            for number, text in enumerate(lines, 1):
                if word.search(text) and not text.startswith(("from ", "import ")):
                    yield file, number


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(one.lineno for one in decorators)])


def tests_of_line(sources: Sources, found: Executed, file: str, line: int, seen: set[str]) -> set[str]:
    """Return the tests that execute a line, and where these are few, the lines that name what it belongs to."""
    span, names = sources.statement(file, line)
    lines = found.lines.get(file, {})
    tests = set().union(*(lines.get(one, set()) for one in span))
    if len(tests) >= ENOUGH_TESTS:
        return tests
    by_name: defaultdict[str, set[str]] = defaultdict(set)
    for name in names:
        if name in seen:
            continue
        seen.add(name)
        for at, number in sources.mentions(name):
            if at != file or number not in span:
                by_name[name] |= tests_of_line(sources, found, at, number, seen)
    return tests.union(*by_name.values())
