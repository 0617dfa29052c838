"""The documents as data: their fenced blocks, what each is, and how it is tried."""

import contextlib
import doctest
import importlib.util
import io
import json
import re
import shlex
import tomllib
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from charllm.cli import main
from charllm.cli.parser import build_parser
from tests.cli.test_reading import FILES

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MOST_SHOWN = 3000
"""Characters of an output that a failure shows."""
DRAWN = ("diagram", "equation")
"""Languages of blocks that are looked at only."""
NOT_RUN = {
    r"charllm (apply|bench|preflight|smoke)\b": "needs a GPU",
    r"charllm caps .*--apply\b": "needs a GPU",
    r"charllm emulate (?!.*--predict)": "needs a GPU",
    r"charllm measure (?!.*--telemetry none)": "needs a GPU",
    r"charllm serve\b": "serves until it is stopped; tests/explorer runs it",
    r"charllm watch .*--prometheus": "serves until the run ends; tests/cli/test_watch.py runs it",
    r"charllm sweep .*--measure": "needs a GPU",
    r"charllm reproduce charllm-ppt( --full)?$": "takes minutes; tests/reproduce runs a part of it",
    r"charllm sweep .*--runner (slurm|ray)": "needs a cluster; tests/slurm and tests/sweep run it",
    r"charllm calibrate runs/(ops|mine)": "takes 20 s, or a record that needs a GPU; tests/calibrate fits both",
    r"charllm (show|watch) runs/mine": "shows a record that needs a GPU",
}
"""Commands that are parsed and not run, with the reason."""
REFUSAL = r"(?m)^charllm: .* (needs|got) "
"""Output that says why a request was refused."""
NOT_EXECUTED = {
    "for batch in data": "stands inside the reader's training loop",
    "runs/mine": "reads a record that needs a GPU",
}
"""Words of Python blocks that are compiled and not executed, with the reason."""


@dataclass(frozen=True)
class Block:
    """One fenced block of a document."""

    line: int
    language: str
    text: str


def blocks(path: Path) -> list[Block]:
    """Return the fenced blocks of a document in order."""
    text = path.read_text()
    return [
        Block(text.count("\n", 0, found.start()) + 1, found[1], found[2])
        for found in re.finditer(r"^```([^\n]*)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    ]


def commands(block: Block) -> list[str]:
    """Return the commands of a block, lines that end in a backslash joined."""
    joined = block.text.replace("\\\n", " ")
    lines = [re.sub(r"\s+#\s.*", "", line).strip().removeprefix(".venv/bin/") for line in joined.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def charllm_words(command: str) -> list[str]:
    """Return the words of a command from `charllm` on; none where it is another program."""
    words = shlex.split(command)
    head = next((place for place, word in enumerate(words) if word == "charllm"), None)
    launched = words[0] in ("charllm", "torchrun", "srun", "salloc", "COLUMNS=140")
    return words[head:] if head is not None and launched else []


def why_not_run(command: str) -> str:
    """Return why a command is only parsed; empty: it is run."""
    if not command.startswith("charllm"):
        return "starts another program"
    return next((reason for pattern, reason in NOT_RUN.items() if re.match(pattern, command)), "")


def prepare(folder: Path) -> None:
    """Put the files that the documents name into a folder."""
    for name in ("examples", "src"):
        (folder / name).symlink_to(ROOT / name)
    for name, write in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(write())


def try_page(page: Path, trial: "Trial") -> None:
    """Try the blocks of a document in order."""
    found = blocks(page)
    for block, following in zip_longest(found, found[1:]):
        trial.try_block(block, following.text if following is not None and following.language == "text" else "")


@dataclass
class Trial:
    """The blocks of one document, tried in order in one folder."""

    printed: str | None = None
    """Output of the commands of the last block; None: they were only parsed."""
    names: dict[str, Any] = field(default_factory=dict)

    def try_block(self, block: Block, following: str) -> None:
        """Try one block; `following` is the output that is shown after it."""
        if block.language not in DRAWN:
            getattr(self, f"try_{block.language}")(block.text, block, following)

    def try_sh(self, _: str, block: Block, following: str) -> None:
        """Run the commands of a block, or parse those that need a GPU, a cluster or minutes."""
        outputs = [self.run(command, refused=bool(re.search(REFUSAL, following))) for command in commands(block)]
        self.printed = None if None in outputs else "".join(map(str, outputs))

    def run(self, command: str, refused: bool) -> str | None:
        """Run one command in this process and return what it printed; None where it was only parsed."""
        words = charllm_words(command)
        if not words:
            check_other_program(command)
            return None
        words, target = (words[:-2], words[-1]) if ">" in words else (words, "")
        own = words[2:]
        if why_not_run(command):
            _, unknown = build_parser(words[1]).parse_known_args(own)
            assert not unknown, command
            return None
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = main(words[1:])
        assert (code == 0) is not refused, f"{command}: exit code {code}\n{output.getvalue()[-MOST_SHOWN:]}"
        if target:
            Path(target).write_text(output.getvalue())
        return output.getvalue()

    def try_text(self, text: str, block: Block, _: str) -> None:
        """Compare a shown output with what was printed: line by line, in order; `...` stands for any lines."""
        if self.printed is None:
            return
        printed = iter([line.rstrip() for line in self.printed.splitlines()])
        for line in text.splitlines():
            known = line == "..." or line.rstrip() in printed
            assert known, f"line {block.line}: not printed: {line}\n{self.printed[:MOST_SHOWN]}"

    def try_python(self, text: str, block: Block, _: str) -> None:
        """Run a block of Python; one with prompts also shows its results."""
        if ">>>" in text:
            example = doctest.DocTestParser().get_doctest(text, self.names, f"line {block.line}", None, 0)
            runner, output = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS), io.StringIO()
            failed = runner.run(example, clear_globs=False, out=output.write).failed
            assert not failed, output.getvalue()
            self.names = example.globs
            return
        code = compile(text, f"line {block.line}", "exec")
        if not any(words in text for words in NOT_EXECUTED):
            exec(code, self.names)

    def try_toml(self, text: str, _: Block, __: str) -> None:
        """Read a table; one whose first line is `# NAME.toml` becomes that file."""
        tomllib.loads(text)
        named = re.match(r"# (\S+\.toml)\n", text)
        if named:
            Path(named[1]).write_text(text)

    def try_json(self, text: str, _: Block, __: str) -> None:
        """Read a JSON value."""
        json.loads(text)

    def try_sql(self, text: str, _: Block, __: str) -> None:
        """Run a query over files that the commands before it wrote, where they were run."""
        import duckdb

        if self.printed is None:
            assert duckdb.extract_statements(text)
        else:
            duckdb.sql(text)


def check_other_program(command: str) -> None:
    """Check that what another program is asked to do exists in this repository."""
    words = shlex.split(command)
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE), command
    elif words[:2] == ["python", "-m"]:
        assert importlib.util.find_spec(words[2]), command
    elif words[0] == "python":
        assert (ROOT / words[1]).exists(), command
    else:
        assert words[0] in ("pip", "git", "cd"), f"who runs this? {command}"
