"""Score the readers on real public files: ``python -m benchmarks.reader_corpus FOLDER``.

FOLDER holds the files as owner/name/path. What each says, found by reading it, is in tests/spec/readers/corpus*.toml;
the files themselves are not part of this repository.
"""

import argparse
import shlex
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from charllm.errors import SpecError
from charllm.spec.readers import Inputs, Reading, read_foreign

ENTRIES = Path(__file__).parent.parent / "tests" / "spec" / "readers"
VERDICTS = ("right", "refused", "refused, should be right", "wrong, with a warning", "silently wrong", "absent")


@dataclass(frozen=True, slots=True)
class Score:
    """One file: what the reader made of it."""

    repo: str
    path: str
    verdict: str
    why: str = ""


def load_entries(folder: Path = ENTRIES) -> list[dict[str, Any]]:
    """Read every corpus file of a folder."""
    return [entry for path in sorted(folder.glob("corpus*.toml")) for entry in tomllib.loads(path.read_text())["file"]]


def score_entry(entry: Mapping[str, Any], folder: Path) -> Score:
    """Read one file and compare it with what it says."""
    repo, path = entry["repo"], entry["path"]
    file = folder / repo / path
    if not file.is_file():
        return Score(repo, path, "absent")
    words = entry.get("args")
    inputs = Inputs(None if words is None else tuple(shlex.split(words)), entry.get("env", {}))
    try:
        reading = read_foreign(str(file), inputs)
    except SpecError as error:
        return _score_refusal(entry, str(error))
    if reading.unmodelled or reading.missing:
        said = [setting.shown() for setting in reading.unmodelled]
        return _score_refusal(
            entry, "; ".join([*said, *(f"{field}: {text}" for field, text in reading.missing.items())])
        )
    return _score_reading(entry, reading)


def _score_refusal(entry: Mapping[str, Any], said: str) -> Score:
    expected = entry.get("refused")
    if expected is None:
        return Score(entry["repo"], entry["path"], "refused, should be right", said)
    named = expected.lower() in said.lower()
    return Score(entry["repo"], entry["path"], "refused" if named else "refused, should be right", said)


def _score_reading(entry: Mapping[str, Any], reading: Reading) -> Score:
    expected = entry.get("expect", {})
    wrong = [
        f"{field}: {found!r}, not {value!r}"
        for field, value in expected.items()
        if (found := field_of(reading, field)) != value
    ]
    if entry.get("refused") is not None:
        wrong.append(f"not refused for {entry['refused']}")
    if not wrong:
        return Score(entry["repo"], entry["path"], "right", "; ".join(reading.warnings()))
    verdict = "wrong, with a warning" if reading.warnings() else "silently wrong"
    return Score(entry["repo"], entry["path"], verdict, "; ".join(wrong))


def field_of(reading: Reading, field: str) -> Any:
    """Return a field of the request, or one of the reading such as nodes; None when it is absent."""
    if "." not in field:
        return getattr(reading, field)
    part, key = field.split(".")
    table = reading.request.get(part, {})
    if isinstance(table, str):
        return table if key == "base" else None
    return table.get(key)


def main() -> None:
    """Print a line for each file that is not right, and the totals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--all", action="store_true", help="print every file")
    arguments = parser.parse_args()
    scores = [score_entry(entry, arguments.folder) for entry in load_entries()]
    for score in scores:
        if arguments.all or score.verdict not in ("right", "refused", "absent"):
            print(f"{score.verdict}: {score.repo} {score.path}\n    {score.why[:400]}")
    counts = Counter(score.verdict for score in scores)
    present = len(scores) - counts["absent"]
    print(f"{len(scores)} files of {len({score.repo for score in scores})} repositories, {present} present")
    for verdict in VERDICTS:
        share = f" ({counts[verdict] / present:.0%})" if present and verdict != "absent" else ""
        print(f"  {verdict}: {counts[verdict]}{share}")


if __name__ == "__main__":
    main()
