"""Which tests execute which lines: one run of the chosen tests under coverage.py, a context for each test.

A fixture that several tests share counts for all tests of its file, and what is cached between tests is dropped before
each, so that the first test does not hide the others. Lines that coverage.py cannot see (compiled functions, constants
of a module, defaults of a class) count as executed where a line that names them is.
"""

import ast
import functools
import re
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

Lines = dict[int, set[str]]
QUIET = ("--assert=plain", "--no-header")
"""Options of pytest: plain assertions need no rewriting of what is imported already."""


class TestMap(NamedTuple):
    """The chosen tests, as they ran without a mutant."""

    __test__ = False

    seconds: dict[str, float]
    """Test: how long it took without coverage.py's own time being taken out."""
    lines: dict[str, Lines]
    """File of the package: line: the tests that executed it."""
    failed: list[str]


class Recorder:
    """A pytest plugin that tells coverage.py which test runs."""

    def __init__(self, coverage: Any, folders: tuple[str, ...]) -> None:
        self.coverage = coverage
        self.cleared = (*(f"charllm.{folder}." for folder in folders), "tests.")
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        for name, module in list(sys.modules.items()):
            if name.startswith(self.cleared):
                for value in vars(module).values():
                    if isinstance(value, functools._lru_cache_wrapper):
                        value.cache_clear()
        self.coverage.switch_context(item.nodeid)
        start = time.perf_counter()
        done = yield
        self.seconds[item.nodeid] = time.perf_counter() - start
        self.coverage.switch_context("")
        return done

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Generator[None, Any, Any]:
        if fixturedef.scope == "function":
            return (yield)
        node = request.node
        self.coverage.switch_context(node.nodeid)
        done = yield
        self.coverage.switch_context(request._pyfuncitem.nodeid)
        return done

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


def record_map(package: Path, folders: tuple[str, ...], tests: tuple[str, ...]) -> TestMap:
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
            found[line] = {name for context in contexts if context for name in _tests_of(context, recorder.seconds)}
        lines[str(Path(path).relative_to(package))] = found
    return TestMap(recorder.seconds, lines, recorder.failed)


def _tests_of(context: str, tests: dict[str, float]) -> Iterator[str]:
    """Yield the test of a context, or all below it where it is a file, a class or a folder."""
    if context in tests:
        yield context
    else:
        yield from (test for test in tests if test.startswith(context))


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
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(one.lineno for one in decorators)])


def tests_of_line(sources: Sources, found: TestMap, file: str, line: int, seen: set[str]) -> set[str]:
    """Return the tests that execute a line, or else the lines that name what it belongs to."""
    span, names = sources.statement(file, line)
    lines = found.lines.get(file, {})
    tests = set().union(*(lines.get(one, set()) for one in span))
    if tests:
        return tests
    by_name: defaultdict[str, set[str]] = defaultdict(set)
    for name in names:
        if name in seen:
            continue
        seen.add(name)
        for at, number in sources.mentions(name):
            if at != file or number not in span:
                by_name[name] |= tests_of_line(sources, found, at, number, seen)
    return set().union(*by_name.values())
