"""The files to convert, read whole, bounded, and known by their fingerprints."""

import gzip
import hashlib
import io
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from charllm.errors import SpecError, Words
from charllm.spec.request import read_bytes, unpacked_limit
from charllm.units import MIB, format_bytes

MAX_FILE_BYTES = int(512 * MIB)
MOST_FILES = 20_000
HEAD = 65536


class ForeignFile(NamedTuple):
    """One file's text."""

    path: Path
    text: str
    sha256: str
    size_bytes: int

    @property
    def head(self) -> str:
        """Its beginning, by which formats are told apart."""
        return self.text[:HEAD]

    @property
    def stem(self) -> str:
        """Its name without endings."""
        return self.path.name.split(".")[0] or self.path.name


class Hints(NamedTuple):
    """What the user says of the files that they do not say themselves."""

    period_s: float | None = None
    """Between readings that carry no time."""
    columns: dict[str, str] | None = None
    """Name of a column: the name it is read as."""
    header: tuple[str, ...] = ()
    """Names of the columns of tables without a header."""


def list_files(paths: list[Path]) -> list[Path]:
    """Return the files named, and those in the folders named."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(place for place in path.rglob("*") if place.is_file() and not place.name.startswith("."))
            if not inside:
                raise SpecError("PATH", str(path), "a file, or a folder with files")
            found += inside
        else:
            found.append(path)
        if len(found) > MOST_FILES:
            raise SpecError("PATH", f"more than {MOST_FILES} files", f"at most {MOST_FILES}")
    return found


def read_file(path: Path) -> ForeignFile:
    """Read a file, plain, gzipped or xz-compressed, in UTF-8 or, with a byte order mark, UTF-16."""
    raw = read_bytes(path, "PATH", MAX_FILE_BYTES)
    sha256 = hashlib.sha256(raw).hexdigest()
    size_bytes = len(raw)
    most_bytes = min(MAX_FILE_BYTES, unpacked_limit(size_bytes))
    try:
        if raw[:2] == b"\x1f\x8b":
            with gzip.open(io.BytesIO(raw)) as packed:
                raw = packed.read(most_bytes + 1)
        elif raw[:6] == b"\xfd7zXZ\x00":
            with lzma.open(io.BytesIO(raw)) as packed:
                raw = packed.read(most_bytes + 1)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise SpecError("PATH", str(path), f"a readable compressed file ({error})") from None
    if len(raw) > most_bytes:
        raise SpecError("PATH", str(path), f"at most {format_bytes(most_bytes)} unpacked")
    if not raw.strip():
        raise SpecError("PATH", Words(f"{str(path)!r}, empty"), "a file with readings")
    return ForeignFile(path, _decode(raw, path), sha256, size_bytes)


def _decode(raw: bytes, path: Path) -> str:
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return raw.decode("utf-16", errors="replace").replace("\r\n", "\n")
    if b"\0" in raw[:HEAD]:
        raise SpecError("PATH", Words(f"{str(path)!r}, a binary file"), "a file of text")
    return raw.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")


def whole_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file with their numbers from 1, empty ones left out."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, line
