"""Tables with a header: nvidia-smi and amd-smi logs, DCGM dumps, and what people write themselves, long or wide."""

import csv
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from charllm.errors import SpecError, Words
from charllm.measure.convert.columns import LEFT_OUT, PART_CLOCK, TIMES, Column, split_unit, understand
from charllm.measure.convert.foreign import Foreign, GpuKey, Meaning
from charllm.measure.convert.names import dcgm_meaning, metric_meaning, smi_meaning
from charllm.measure.convert.source import ForeignFile, Hints
from charllm.measure.convert.values import (
    Moment,
    is_absent,
    read_flag,
    read_moment,
    read_number,
    unit_factor,
    without_blanks,
)
from charllm.measure.telemetry.source import Reading
from charllm.units import MEGA, MIB, whole_number

DIVIDERS = (",", ";", "\t", "|")
HEADER_LINES = 50
SI = {"w": "w", "c": "c", "k": "k", "hz": "hz", "j": "j", "s": "s", "bytes": "bytes", "fraction": "fraction"}
USUAL = {"hz": MEGA, "fraction": 0.01, "bytes": MIB}
"""SI unit: what a number without any unit counts."""
FAULTS = ("failed to initialize nvml", "nvidia-smi has failed", "no devices were found",
          "unable to determine the device", "driver/library version mismatch")  # fmt: skip
ROLES_ONCE = ("time", "date", "gpu", "uuid", "name", "pci", "node", "metric", "value")


class Header(NamedTuple):
    """The columns of a table: those that identify a row, and those of readings."""

    places: dict[str, int]
    readings: list[tuple[tuple[int, ...], Column, str]]
    """Place, or places of the parts that it is the mean of; what it is; its heading."""
    left_out: list[str]
    time_unit_s: float
    width: int


def looks_like(head: str) -> bool:
    """Tell whether a text begins as a table with a time or a GPU and at least one quantity."""
    return head.lstrip()[:1] not in ("{", "[") and _find_header(head.split("\n")[:HEADER_LINES], Hints()) is not None


def names_a_time(line: str) -> bool:
    """Tell whether a line is a header with a time, whatever its other columns are."""
    cells = _split(line, _divider(line))
    return len(cells) > 1 and not any(map(_is_value, cells)) and any(understand(cell).role == "time" for cell in cells)


def read(file: ForeignFile, hints: Hints) -> Foreign:
    """Read a table."""
    lines = file.text.split("\n")
    found = _find_header(lines[:HEADER_LINES], hints)
    if found is None:
        raise _no_header(file, lines)
    first, divider = found
    rows = list(_rows(lines, first, divider, hints, file))
    if not rows:
        raise SpecError("PATH", Words(f"{str(file.path)!r}, a header without readings"), "readings below the header")
    foreign = Foreign()
    times = _times(rows, hints, foreign)
    _gather(rows, times, foreign)
    if not foreign.tracks:
        raise SpecError("PATH", str(file.path), "a table with power, temperature, clock or another known quantity")
    return foreign


def _no_header(file: ForeignFile, lines: Sequence[str]) -> SpecError:
    """Say what a table lacks: what its first line has, and what to name."""
    first = next((line.strip() for line in lines if line.strip()), "")
    if any(fault in file.head.lower() for fault in FAULTS):
        return SpecError(file.path.name, first, "readings: this is a message of the driver")
    wanted = "a header that names a time, a GPU and power, temperature or clock"
    return SpecError(
        file.path.name, first, f"{wanted}; --header NAMES where there is none, --column NAME=QUANTITY for others"
    )


class Row(NamedTuple):
    """Cells of a line, with the header that holds for it."""

    number: int
    cells: Sequence[str]
    header: Header


def _find_header(lines: Sequence[str], hints: Hints) -> tuple[int, str] | None:
    """Return the line of the header and what divides its cells."""
    if hints.header:
        return -1, _divider(next((line for line in lines if line.strip()), ","))
    for number, line in enumerate(lines):
        divider = _divider(line)
        cells = _split(line, divider)
        if len(cells) < 2 or sum(bool(cell.strip()) and not _is_value(cell) for cell in cells) < len(cells) * 0.6:
            continue
        header = make_header(cells, hints)
        if header.readings or {"metric", "value"} <= set(header.places):
            return number, divider
    return None


def _is_value(cell: str) -> bool:
    return not isinstance(read_number(cell)[0], str) or read_moment(cell) is not None


def _divider(line: str) -> str:
    return max(DIVIDERS, key=line.count)


def _split(line: str, divider: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=divider, skipinitialspace=True), [])
    except csv.Error:
        # A bare carriage return, or a cell longer than a reader takes.
        return line.split(divider)


def make_header(cells: Sequence[str], hints: Hints) -> Header:
    """Say what each column is; one that the user named is read by that name."""
    asked = {name.strip().lower(): meaning for name, meaning in (hints.columns or {}).items()}
    amd = _is_amd(cells)
    columns = []
    for cell in cells:
        name = cell.strip().strip('"').lower()
        columns.append(understand(asked.get(name, asked.get(split_unit(name)[0], cell)), amd=amd))
    places: dict[str, int] = {}
    for place, column in enumerate(columns):
        if column.role == "time" and "time" in places and _rank(cells[place]) < _rank(cells[places["time"]]):
            places["time"] = place
        if column.role in ROLES_ONCE:
            places.setdefault(column.role, place)
    readings: list[tuple[tuple[int, ...], Column, str]] = []
    left_out = [
        cell.strip() for cell, column in zip(cells, columns, strict=True) if column == LEFT_OUT and cell.strip()
    ]
    alike: dict[tuple[Meaning | None, int | None], list[int]] = {}
    for place, column in enumerate(columns):
        if column.role == "reading":
            alike.setdefault((column.meaning, column.gpu), []).append(place)
    for places_alike in alike.values():
        titles = [cells[place].strip() for place in places_alike]
        parts = all(PART_CLOCK.match(title.lower()) for title in titles)
        kept = tuple(places_alike if parts else places_alike[:1])
        readings.append((kept, columns[kept[0]], titles[0]))
        left_out += titles[len(kept) :]
    unit = columns[places["time"]].unit if "time" in places else ""
    return Header(places, readings, left_out, (unit_factor(unit) or ("s", 0.0))[1] if unit else 0.0, len(cells))


def _rank(heading: str) -> int:
    name = heading.strip().lower()
    return next((place for place, known in enumerate(TIMES) if name.startswith(known)), len(TIMES))


def _is_amd(cells: Sequence[str]) -> bool:
    text = " ".join(cells).lower()
    return any(word in text for word in ("socket_power", "gfx", "sclk", "hotspot", "umc", "graphics package power"))


def _rows(lines: list[str], first: int, divider: str, hints: Hints, file: ForeignFile) -> Iterator[Row]:
    """Yield the rows below a header; a header that comes again holds from there on, and a torn line is left out."""
    titles = list(hints.header) if first < 0 else _split(lines[first], divider)
    header = make_header(titles, hints)
    _check_asked(titles, hints)
    torn = 0
    kept = 0
    reader = csv.reader(lines[first + 1 :], delimiter=divider, skipinitialspace=True)
    try:
        for number, cells in enumerate(reader, start=first + 2):
            if not cells or (len(cells) == 1 and not cells[0].strip()):
                continue
            if [cell.strip() for cell in cells] == [cell.strip() for cell in titles]:
                continue
            if len(cells) == header.width + 1 and not cells[-1].strip():
                cells = cells[:-1]
            if len(cells) != header.width:
                again = make_header(cells, hints)
                if len(again.readings) >= 1 and not any(_is_value(cell) for cell in cells if cell.strip()):
                    header, titles = again, cells
                else:
                    torn += 1
                continue
            kept += 1
            yield Row(number, cells, header)
    except csv.Error as error:
        raise SpecError("PATH", str(file.path), f"a table ({error})") from None
    if torn > max(2, kept):
        raise SpecError("PATH", f"{torn} of {torn + kept} lines with another number of cells", f"{header.width} cells")


def _check_asked(titles: Sequence[str], hints: Hints) -> None:
    """Refuse names of columns that are not there."""
    known = {title.strip().strip('"').lower() for title in titles}
    known |= {split_unit(title)[0] for title in known}
    for name in hints.columns or {}:
        if name.strip().lower() not in known:
            raise SpecError("--column", name, f"a column of the table: {', '.join(title.strip() for title in titles)}")


def _times(rows: list[Row], hints: Hints, foreign: Foreign) -> list[float]:
    """Return the time of every row, in seconds."""
    if "time" not in rows[0].header.places and "date" not in rows[0].header.places:
        return _counted(rows, hints, foreign)
    found: list[float] = []
    day_s, before_s = 0.0, 0.0
    for row in rows:
        moment = _moment(row)
        if moment is None:
            # A line that was cut, or written by two at once.
            found.append(float("nan"))
            continue
        foreign.clocks.add(moment.clock)
        seconds = moment.seconds + day_s
        if moment.seconds < 86_400 and moment.clock == "local" and seconds < before_s - 43_200:
            day_s += 86_400
            seconds += 86_400
        found.append(seconds)
        before_s = seconds
    if np.isnan(found).sum() > len(found) / 2:
        place = rows[0].header.places.get("time", rows[0].header.places.get("date", 0))
        raise SpecError("time", rows[0].cells[place], "a time such as 2024/05/01 12:00:00.123, or seconds")
    return found


def _moment(row: Row) -> Moment | None:
    places = row.header.places
    parts = [row.cells[places[role]] for role in ("date", "time") if role in places]
    return read_moment(" ".join(parts), row.header.time_unit_s)


def _counted(rows: list[Row], hints: Hints, foreign: Foreign) -> list[float]:
    """Count readings that carry no time: a GPU that comes again begins the next one."""
    foreign.clocks.add("counted")
    tick = 0
    seen: set[tuple[str, ...]] = set()
    ticks = []
    for row in rows:
        gpu = _identity(row)
        if gpu in seen:
            tick, seen = tick + 1, set()
        seen.add(gpu)
        ticks.append(tick)
    if tick and hints.period_s is None:
        raise SpecError("time", "a table without a column of times", "a time in each row, or --period SECONDS")
    if not tick:
        foreign.note("no time: a single reading of each GPU, at second 0")
    return [one * (hints.period_s or 0.0) for one in ticks]


def _identity(row: Row) -> tuple[str, ...]:
    places = row.header.places
    return tuple(row.cells[places[role]].strip() for role in ("node", "uuid", "pci", "gpu") if role in places)


def _gather(rows: list[Row], times: list[float], foreign: Foreign) -> None:
    """Give every reading to its GPU."""
    vague: dict[str, list[float]] = {}
    turns = None
    if not {"gpu", "uuid", "pci"} & set(rows[0].header.places) and not _is_wide(rows[0].header):
        turns = _turns(times, foreign)
    for place, (row, time_s) in enumerate(zip(rows, times, strict=True)):
        if time_s != time_s:
            continue
        key = _key(row, foreign, "" if turns is None else str(turns[place]))
        for name in row.header.left_out:
            foreign.left_out[name] += 1
        if {"metric", "value"} <= set(row.header.places):
            _add_metric(row, time_s, key, foreign)
        for cell_places, column, heading in row.header.readings:
            assert column.meaning is not None
            of = key if column.gpu is None else GpuKey(key.node, str(column.gpu))
            if column.gpu is not None:
                foreign.know(of, number=column.gpu)
            read = [_read_cell(row.cells[place], column, heading, row.number) for place in cell_places]
            reading, bare = _mean_cell(read)
            if bare and not isinstance(reading, str):
                vague.setdefault(heading, []).append(reading)
            foreign.add(of, column.meaning._replace(factor=1.0) if bare else _plain(column.meaning), time_s, reading)
    _settle_vague(rows[0].header, vague, foreign)


def _plain(meaning: Meaning) -> Meaning:
    """Return a meaning whose readings are in SI already."""
    return meaning if meaning.how == "reason" else meaning._replace(factor=1.0)


def _is_wide(header: Header) -> bool:
    return any(column.gpu is not None for _, column, _ in header.readings)


def _key(row: Row, foreign: Foreign, turn: str) -> GpuKey:
    """Return which GPU a row is of, and note what the row says of it."""
    places, cells = row.header.places, row.cells
    told = {
        role: cells[place].strip().strip('"')
        for role, place in places.items()
        if role in ("uuid", "pci", "name", "gpu")
    }
    told = {role: text for role, text in told.items() if not is_absent(text)}
    node = cells[places["node"]].strip() if "node" in places else ""
    digits = (
        told.get("gpu", turn).lower().removeprefix("gpu").removeprefix("card").removeprefix("nvidia").strip(" :#_-")
    )
    number = whole_number(digits.removesuffix(".0"))
    gpu = told.get("uuid") or (str(number) if number is not None else "") or told.get("pci") or told.get("gpu") or "0"
    key = GpuKey(node, gpu)
    if key not in foreign.gpus:
        foreign.know(key, number=number, uuid=told.get("uuid"), pci=told.get("pci"), name=told.get("name"))
    return key


def _turns(times: list[float], foreign: Foreign) -> list[int]:
    """Number rows that name no GPU: as many as come together each time are the GPUs, in their order."""
    gaps = np.diff(np.array(times))
    large = gaps[gaps > 0.02]
    if len(large) == 0 or len(large) > 0.9 * len(gaps):
        return [0] * len(times)
    starts = [0, *(int(place) + 1 for place in np.flatnonzero(gaps > 0.02))]
    sizes = [end - start for start, end in pairwise([*starts, len(times)])]
    count = int(np.median(sizes))
    if np.mean([size == count for size in sizes]) < 0.9:
        return [0] * len(times)
    foreign.note(
        f"rows name no GPU: the {count} rows of each moment are taken as GPUs 0 to {count - 1}, in their order"
    )
    return [turn for size in sizes for turn in range(size)]


def _read_cell(cell: str, column: Column, heading: str, number: int) -> tuple[Reading, bool]:
    """Read a cell in SI; True with it where no unit was named, so that its scale is the usual one."""
    meaning = column.meaning
    assert meaning is not None
    if meaning.how in ("reason", "reasons"):
        return (read_flag(cell) if meaning.how == "reason" else read_number(cell)[0]), False
    reading, unit = read_number(cell)
    if isinstance(reading, str):
        return reading, False
    reading = without_blanks(reading)
    if isinstance(reading, str):
        return reading, False
    unit = unit or column.unit
    si = meaning.quantity.rpartition("_")[2] if meaning.quantity != "power" else "w"
    if unit:
        factor = unit_factor(unit)
        if factor is None or (si in SI and factor[0] != si and not {factor[0], si} <= {"c", "k"}):
            raise SpecError(f"{heading}, line {number}", cell.strip(), f"a unit of {meaning.quantity}; not {unit!r}")
        return reading * factor[1], False
    return (reading, True) if column.vague else (reading * meaning.factor, False)


def _mean_cell(cells: Sequence[tuple[Reading, bool]]) -> tuple[Reading, bool]:
    """Return the mean of the parts that were read; the reason of the first where none was."""
    known = [reading for reading, _ in cells if not isinstance(reading, str)]
    return (sum(known) / len(known), cells[0][1]) if known else cells[0]


def _add_metric(row: Row, time_s: float, key: GpuKey, foreign: Foreign) -> None:
    """Add a reading of a table whose rows name what they tell."""
    name = row.cells[row.header.places["metric"]].strip()
    meaning = metric_meaning(name) or smi_meaning(name) or dcgm_meaning(name)
    if meaning is None:
        column = understand(name)
        if column.meaning is None:
            foreign.left_out[name] += 1
            return
        scale = (unit_factor(column.unit) or ("", 1.0))[1] if column.unit else _usual(column.meaning)
        meaning = column.meaning._replace(factor=scale)
    reading, _ = read_number(row.cells[row.header.places["value"]])
    foreign.add(key, meaning, time_s, reading if isinstance(reading, str) else without_blanks(reading))


def _usual(meaning: Meaning) -> float:
    return USUAL.get(meaning.quantity.rpartition("_")[2], 1.0)


def _settle_vague(header: Header, vague: dict[str, list[float]], foreign: Foreign) -> None:
    """Find the scale of columns that name no unit, from how large their readings are; refuse what cannot be."""
    for _, column, heading in header.readings:
        if heading not in vague or column.meaning is None:
            continue
        values = np.abs(np.array(vague[heading]))
        factor = _scale(column.meaning, float(np.percentile(values, 99)), bool((values % 1 > 0).any()), heading)
        if factor == 1.0:
            continue
        for key, of_gpu in foreign.tracks.items():
            if column.gpu is None or key.gpu == str(column.gpu):
                track = of_gpu.get(column.meaning._replace(factor=1.0))
                if track is not None:
                    for place, value in enumerate(track.values):
                        track.values[place] = value * factor


def _scale(meaning: Meaning, most: float, broken: bool, heading: str) -> float:
    si = "w" if meaning.quantity == "power" else meaning.quantity.rpartition("_")[2]
    if si == "w" and most > 5000:
        raise SpecError(
            heading, f"readings up to {most:g} without a unit", f"--column '{heading}=power_mw', or its unit"
        )
    if si == "c" and most > 200:
        raise SpecError(heading, f"readings up to {most:g} without a unit", "degrees Celsius")
    if si == "hz":
        return 1.0 if most > 1e6 else MEGA
    if si == "fraction":
        return 1.0 if most <= 1.0 and broken else 0.01
    if si == "bytes":
        return 1.0 if most > 1e7 else MIB
    return 1.0
