"""Structured damage: to values of JSON, to tables, to lines, to bytes and to parquet files, each drawn from a seed."""

import copy
import csv
import gzip
import io
import json
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import duckdb

from charllm.errors import CharllmError
from charllm.result.store import read_parquet, sql_name, sql_text

WRONG_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 3, 7, -(10**9), 10**9, 10**12, 10**18, 2**63, 2**64, 10**30, 0.5, -0.0, 1e-300, 1e300,
    float("nan"), float("inf"), -float("inf"), "", "x", "0", "-1", "1e400", "nan", "9" * 30, "\0", "\u202e", "\udcff",
    "a" * 5000, "<script>", "../../x", "/dev/zero", "%s{0}", [], {}, [[]], [None], [1, 2], ["x"], {"x": 1}, {"": {}},
    [float("nan")], [0] * 1000,
)  # fmt: skip
WRONG_TEXTS = (
    "", "0", "-1", "1e400", "-1e400", "nan", "inf", "9" * 25, "9" * 5000, "1e18", "1e308", "1_0", "0x1f", "٣", "x",
    "é", "\0", "\u202e", ",", ";", '"', "'", "[N/A]", "N/A", "null", "{}", "[]", "{", "[" * 40, "\\", "=", ":", "|",
    "#", "\t", "\r", "2024-02-30", "9999-99-99", "0001-01-01", "1970-01-01T00:00:00Z", "25:61:61", "GPU-", "100000000",
    "4294967296", " " * 200, "a" * 300,
)  # fmt: skip
NESTED = 3000
"""Brackets of a value that is nested too deeply."""
LARGE = "1" + "0" * 400


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value inside nested tables and lists; of long lists only some entries."""
    entries = list(value.items()) if isinstance(value, dict) else []
    if isinstance(value, list):
        entries = [(place, value[place]) for place in sorted({*range(min(3, len(value))), *range(len(value))[-1:]})]
    for key, below in entries:
        yield (*path, key)
        yield from places(below, (*path, key))


def damage_value(value: Any, random: Random) -> Any:
    """Return a nested value with one to three of its parts gone, of another type, or absurd."""
    value = copy.deepcopy(value)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        found = list(places(value))
        if not found:
            return random.choice(WRONG_VALUES)
        # A part of any depth is as likely as one of any other.
        depth = random.choice(sorted({len(path) for path in found}))
        path = random.choice([path for path in found if len(path) == depth])
        above = value
        for key in path[:-1]:
            above = above[key]
        _change(above, path[-1], random)
    return value


def _change(above: Any, key: Any, random: Random) -> None:
    """Change one entry of a table or a list."""
    match random.randrange(8):
        case 0:
            del above[key]
        case 1 if isinstance(above, dict):
            above[random.choice(("x", "", key + "_", "../x", 'a" --', *above))] = above.pop(key)
        case 1 | 2 if isinstance(above, list):
            above.insert(key, random.choice((above[key], random.choice(WRONG_VALUES))))
        case 2:
            above[random.choice(("x", "unknown_s", *above))] = random.choice(WRONG_VALUES)
        case 3:
            above[key] = _nearly(above[key], random)
        case 4:
            above[key] = random.choice(([above[key]], {"x": above[key]}, str(above[key]), [above[key]] * 3))
        case _:
            above[key] = random.choice(WRONG_VALUES)


def _nearly(value: Any, random: Random) -> Any:
    """Return another value of the same type."""
    match value:
        case bool():
            return not value
        case int():
            return random.choice((-value, value + 1, value * 10**6, 0, value * 10**15))
        case float():
            return random.choice((-value, value * 1e9, value * 1e-9, 0.0, value * 1e200))
        case str():
            return random.choice((value[:-1], value + "x", value.upper(), value * 2, *WRONG_TEXTS[:6]))
        case list():
            return random.choice((value[:1], value[:-1], value * 2, value[::-1]))
        case dict():
            return dict(random.sample(sorted(value.items(), key=str), random.randint(0, len(value))))
        case _:
            return random.choice(WRONG_VALUES)


def damage_json(raw: bytes, random: Random) -> bytes:
    """Damage a JSON file: mostly its values, sometimes its text."""
    if random.random() < 0.15:
        return damage_text(raw, random)
    try:
        text = json.dumps(damage_value(json.loads(raw), random))
    except (ValueError, RecursionError):
        # It was damaged before.
        return damage_text(raw, random)
    if random.random() < 0.1:
        # What no value of Python becomes: a number of many digits, a key twice, a deep value.
        numbers = [at for at in range(len(text)) if text[at : at + 2] in (": ", "[1", "[0")]
        at = random.choice(numbers) + 2 if numbers else 1
        odd = random.choice(
            ("1e400", "-1e400", LARGE, "[" * NESTED + "]" * NESTED, '{"a":' * NESTED + "1" + "}" * NESTED, "NaN")
        )
        return (
            (text[:at] + odd + "," + text[at:]).encode() if random.random() < 0.3 else _replaced(text, at, odd).encode()
        )
    return text.encode()


def _replaced(text: str, at: int, odd: str) -> str:
    """Put a text in the place of the scalar that begins there."""
    end = at
    while end < len(text) and text[end] not in ",}]":
        end += 1
    return text[:at] + odd + text[end:]


def damage_lines(raw: bytes, random: Random) -> bytes:
    """Damage a JSON value in each of some lines, as files of records have them."""
    lines = raw.splitlines()
    for _ in range(random.choice((1, 2)) if lines else 0):
        place = random.randrange(len(lines))
        lines[place] = (
            damage_json(lines[place], random) if lines[place].startswith(b"{") else damage_text(lines[place], random)
        )
    return b"\n".join(lines) + b"\n"


def damage_text(raw: bytes, random: Random) -> bytes:
    """Damage a text: words, numbers, lines, its end or its encoding."""
    text = raw.decode("utf-8", "surrogateescape")
    for _ in range(random.choice((1, 1, 2, 4))):
        lines = text.split("\n")
        at, cut = random.randrange(len(lines)), random.randrange(len(text) + 1)
        match random.randrange(8):
            case 0:
                text = text[:cut]
            case 1:
                text = "\n".join(lines[:at] + lines[at + 1 :])
            case 2:
                text = "\n".join([*lines[:at], lines[random.randrange(len(lines))], *lines[at:]])
            case 3:
                text = text[:cut] + random.choice(WRONG_TEXTS) + text[cut + random.randint(0, 3) :]
            case 4:
                words = lines[at].split(" ")
                words[random.randrange(len(words))] = random.choice(WRONG_TEXTS)
                lines[at] = " ".join(words)
                text = "\n".join(lines)
            case 5:
                digits = random.choice("0123456789")
                text = text.replace(
                    digits, random.choice(("9", "-", "0", "999999999", ".", "e", "")), random.choice((1, 50))
                )
            case 6:
                lines[at] = random.choice(WRONG_TEXTS)
                text = "\n".join(lines)
            case _:
                random.shuffle(lines)
                text = "\n".join(lines)
    data = text.encode("utf-8", "surrogateescape" if "\udcff" not in text else "replace")
    return damage_encoding(data, random) if random.random() < 0.1 else data


def damage_encoding(raw: bytes, random: Random) -> bytes:
    """Write a text as no reader expects it, or bytes that are no text."""
    return random.choice((
        b"\xef\xbb\xbf" + raw, raw.decode("utf-8", "replace").encode("utf-16"), raw.replace(b"\n", b"\r"),
        raw + b"\xff\xfe", raw + b"\0" * 100, gzip.compress(raw), gzip.compress(raw)[:-9], b"", raw * 20, raw[::-1],
        b"\x1f\x8b" + raw, b"PAR1" + raw,
    ))  # fmt: skip


def damage_bytes(raw: bytes, random: Random) -> bytes:
    """Damage bytes without regard to what they mean."""
    data = bytearray(raw)
    for _ in range(random.choice((1, 1, 3, 20))):
        at = random.randrange(len(data) + 1)
        match random.randrange(4):
            case 0:
                del data[at : at + random.randrange(1, 60)]
            case 1:
                data[at : at + 1] = bytes([random.randrange(256)])
            case 2:
                del data[at:]
            case _:
                data[at:at] = random.choice((b"\xff" * 8, b"\0" * 50, bytes(data[:100])))
    return bytes(data)


def damage_table(raw: bytes, random: Random) -> bytes:
    """Damage a table in CSV: cells, columns, the header, rows; sometimes its text."""
    if random.random() < 0.25:
        return damage_text(raw, random)
    rows = list(csv.reader(io.StringIO(raw.decode("utf-8", "replace"), newline="")))
    for _ in range(random.choice((1, 1, 2, 4))):
        if not rows or not any(rows):
            break
        row = random.choice(rows) if random.random() < 0.7 else rows[0]
        column = random.randrange(max(map(len, rows)))
        match random.randrange(7):
            case 0 if row:
                row[random.randrange(len(row))] = random.choice(WRONG_TEXTS)
            case 1:
                for each in rows:
                    del each[column : column + 1]
            case 2:
                for each in rows[1:]:
                    each[column : column + 1] = [random.choice(WRONG_TEXTS)]
            case 3:
                wrong = random.choice(WRONG_TEXTS)
                for each in rows[1:]:
                    each[column : column + 1] = [wrong]
            case 4:
                del rows[random.randrange(len(rows)) :]
            case 5:
                for each in rows:
                    each[column:column] = each[column : column + 1]
            case _:
                random.shuffle(rows)
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator="\n", escapechar="\\").writerows(rows)
    return file.getvalue().encode("utf-8", "replace")


def pack(raw: bytes, damage: Callable[[bytes, Random], bytes], random: Random) -> bytes:
    """Damage what is inside a packed file, or the packed file."""
    try:
        return (
            gzip.compress(damage(gzip.decompress(raw), random), 1)
            if random.random() < 0.8
            else damage_bytes(raw, random)
        )
    except (OSError, EOFError, zlib.error):
        return damage_bytes(raw, random)


SQL_VALUES = (
    "NULL", "0", "-1", "'x'", "'nan'::DOUBLE", "'inf'::DOUBLE", "1e300", "true", "[1, 2]", "{'a': 1}",
    "9223372036854775807",
    "'2024-01-01'::DATE", "INTERVAL 1 DAY", "'\\xff'::BLOB", "1.5::DECIMAL(18, 2)", "map {'a': 1}", "''",
    "1e18::DOUBLE", "170141183460469231731687303715884105727::HUGEINT",
)  # fmt: skip


def damage_parquet(path: Path, random: Random) -> None:
    """Damage a parquet file: its columns, their types and names, its rows, or its bytes."""
    try:
        columns = list(read_parquet(path)) if random.random() < 0.7 else []
    except CharllmError:
        columns = []
    if not columns:
        path.write_bytes(damage_bytes(path.read_bytes(), random))
        return
    selected = [sql_name(name) for name in columns]
    rows = ""
    for _ in range(random.choice((1, 1, 2))):
        at = random.randrange(len(selected))
        match random.randrange(6):
            case 0 if len(selected) > 1:
                del selected[at]
            case 1:
                new = random.choice(
                    ("x", "run", "a\" FROM x; COPY (SELECT 1) TO 'out'; --", "gpu", "monotonic_s", "é" * 100)
                )
                selected[at] = f"{selected[at].partition(' AS ')[0]} AS {sql_name(new)}"
            case 2 | 3:
                name = selected[at].rpartition(" AS ")[2]
                selected[at] = f"{random.choice(SQL_VALUES)} AS {name}"
            case 4:
                rows = random.choice((" LIMIT 0", " LIMIT 1", " WHERE random() < 0.5", " ORDER BY random()"))
            case _:
                name = selected[at].rpartition(" AS ")[2]
                wrong, source = random.choice(SQL_VALUES[:6]), selected[at].partition(" AS ")[0]
                selected[at] = f"CASE WHEN random() < 0.2 THEN {wrong} ELSE try_cast({source} AS DOUBLE) END AS {name}"
    written = path.with_name("damaged.tmp")
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        try:
            connection.execute(f"SELECT setseed({random.random()})")
            connection.execute(
                f"COPY (SELECT {', '.join(selected)} FROM read_parquet({sql_text(path)}){rows}) "
                f"TO {sql_text(written)} (FORMAT parquet)"
            )
        except duckdb.Error:
            # Some values have no common type, or two columns one name.
            written.unlink(missing_ok=True)
            path.write_bytes(damage_bytes(path.read_bytes(), random))
        else:
            written.replace(path)


def damage_file(path: Path, random: Random) -> None:
    """Damage one file by what it holds; sometimes it is gone, or something else."""
    chance = random.random()
    if chance < 0.02:
        path.unlink()
        return
    if chance < 0.03:
        path.unlink()
        path.mkdir()
        return
    if chance < 0.04:
        shutil.copy(
            random.choice([other for other in path.parent.iterdir() if other.is_file()]), path.with_name("other.tmp")
        )
        path.with_name("other.tmp").replace(path)
        return
    if path.suffix == ".parquet":
        damage_parquet(path, random)
        return
    raw = path.read_bytes()
    damage = DAMAGES.get(
        path.suffix.removesuffix(".gz") if path.suffix != ".gz" else Path(path.stem).suffix, damage_text
    )
    path.write_bytes(pack(raw, damage, random) if path.suffix == ".gz" else damage(raw, random))


DAMAGES: dict[str, Callable[[bytes, Random], bytes]] = {
    ".json": damage_json,
    ".jsonl": damage_lines,
    ".csv": damage_table,
    ".et": damage_bytes,
}
"""Ending of a file: what damages it; any other file is a text."""
