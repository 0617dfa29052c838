"""Read a log: find the program that wrote it, then its steps; fill in what follows from what is stated."""

import gzip
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from os import PathLike
from pathlib import Path
from statistics import median
from typing import Any

from charllm.errors import SpecError, unknown_name
from charllm.measure.logs.composer import COMPOSER, OLMO
from charllm.measure.logs.excerpt import PARTS, SMALL_BYTES, excerpt_lines
from charllm.measure.logs.huggingface import HUGGINGFACE
from charllm.measure.logs.lines import Line, split_lines, time_of
from charllm.measure.logs.log import Log, LoggedStep
from charllm.measure.logs.mlperf import MLPERF
from charllm.measure.logs.nemo import AUTOMODEL, LIGHTNING, NEMO
from charllm.measure.logs.pattern import PLAIN, own_pattern
from charllm.measure.logs.patterns import DEEPSPEED, DEEPSPEED_TIMER, MEGATRON, NANOGPT, NANOTRON, TORCHTITAN
from charllm.measure.logs.program import Found, Program, read_steps
from charllm.measure.logs.reference import JSON_LINES
from charllm.measure.logs.settings import read_settings
from charllm.spec.request import unpacked_limit
from charllm.units import MIB, format_bytes

KINDS: dict[str, Program] = {
    "mlperf": MLPERF,
    "nemo": NEMO,
    "nanotron": NANOTRON,
    "megatron": MEGATRON,
    "torchtitan": TORCHTITAN,
    "nemo-automodel": AUTOMODEL,
    "lightning": LIGHTNING,
    "nanogpt": NANOGPT,
    "deepspeed": DEEPSPEED,
    "huggingface": HUGGINGFACE,
    "composer": COMPOSER,
    "olmo-core": OLMO,
    "deepspeed-engine": DEEPSPEED_TIMER,
    "json": JSON_LINES,
    "plain": PLAIN,
}
"""Programs whose logs are known, the more particular first; a log of none of them is read as `plain`."""
ALL_WORDS = (
    b"loss",
    b"tep",
    b"iter",
    b"Iter",
    b"Epoch",
    b"atch",
    b"pdate",
    b"s/it",
    b"it/s",
    b'"number"',
    b":::MLLOG",
    b"SamplesPerSec=",
)
"""Every line that reports on a step of a known program holds one of these; of others, in capitals, it may not."""
AUTO, UNKNOWN = "auto", "unknown"
ENOUGH_MARKS = 200
RESTART_LINES = 15
"""A program that starts again prints at least so many other lines before its first step."""
MAX_LOG_BYTES = 1 << 30
MOST_STEPS = 10_000_000
LONG_S = 100.0
"""Over a shorter time a clock of whole seconds says less than a mean or a smoothed rate (1 %)."""
MOST_COVERED = 10_000
"""Steps that one line may report on (assumed); a larger gap in the numbers is a program that was started again."""


def read_log(
    log: str | PathLike[str] | bytes, kind: str = AUTO, pattern: str | None = None, *, bounded: bool = False
) -> Log:
    """Read a log: a path, or the text itself (bytes, or a str of several lines).

    `kind` is a name in KINDS or auto; `pattern` is a regular expression with named groups for a program that is not
    among them. A log without steps is no error: it has none. Of a large log a `bounded` reading takes the lines that
    may report on a step, and of more than it can read in a second or two evenly spread ones.
    """
    data = _data(log)
    large = bounded and len(data) > SMALL_BYTES
    lines, complete = excerpt_lines(data, ALL_WORDS) if large else (list(split_lines(data)), True)
    if pattern is not None:
        kind, program = "pattern", own_pattern(pattern)
    elif kind != AUTO:
        check_kind(kind)
        program = KINDS[kind]
    else:
        kind = find_kind(lines)
        if kind == UNKNOWN:
            return Log(kind=UNKNOWN, settings=read_settings(lines), warnings=("no line reports on a step",))
        program = KINDS[kind]
    settings = read_settings(split_lines(data[:SMALL_BYTES]) if large else lines)
    if not complete or (large and (program.following or not program.words)):
        lines, complete = excerpt_lines(data, program.words, program.following)
    warnings = [] if complete else [f"a log of {len(data) / MIB:.0f} MiB was read in {PARTS} parts"]
    found = _drop_cut_line(list(read_steps(program, lines)), warnings)
    found = list(_timed_by_clock(_one_rank(found, warnings)))
    if not found and program.unread:
        warnings.append(f"no steps: {program.unread}")
    # What was left out between two lines is no other run of the program.
    steps = _complete([_logged(*each) for each in found], settings, MOST_COVERED if complete else MOST_STEPS)
    stated_s = program.mean_step_s(lines) if program.mean_step_s else None
    return Log(kind=kind, steps=tuple(steps), settings=settings, stated_step_s=stated_s, warnings=tuple(warnings))


def check_kind(kind: str) -> None:
    """Refuse a kind of log that is not known."""
    if kind != AUTO and kind not in KINDS:
        raise unknown_name("--log-kind", kind, (AUTO, *KINDS))


def _data(log: str | PathLike[str] | bytes) -> bytes:
    if isinstance(log, bytes):
        return log
    if isinstance(log, str) and ("\n" in log or not log):
        return log.encode("utf-8", "surrogateescape")
    path = Path(log)
    try:
        if path.is_dir() or (path.exists() and not path.is_file()):
            raise SpecError("LOG", str(path), "a log file")
        packed = path.suffix == ".gz"
        most_bytes = min(MAX_LOG_BYTES, unpacked_limit(path.stat().st_size)) if packed else MAX_LOG_BYTES
        with gzip.open(path) if packed else path.open("rb") as file:
            data = file.read(most_bytes + 1)
    except (OSError, EOFError, ValueError) as error:
        if isinstance(error, SpecError):
            raise
        raise SpecError(
            "LOG", str(path), f"a readable log file ({getattr(error, 'strerror', None) or error})"
        ) from None
    if len(data) > most_bytes:
        raise SpecError("LOG", str(path), f"a log of at most {format_bytes(most_bytes)}")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        data = data.decode("utf-16", "replace").encode()
    return data


def find_kind(lines: Sequence[Line]) -> str:
    """Return the program whose step lines are the most frequent; of equals the more particular."""
    counts = {name: _count_marks(program.mark, lines) for name, program in KINDS.items() if name != "plain"}
    best = max(counts, key=lambda name: (bool(counts[name]) and not KINDS[name].below, counts[name]))
    if counts[best]:
        return best
    return "plain" if any(True for _ in read_steps(PLAIN, lines)) else UNKNOWN


def _count_marks(mark: re.Pattern[str], lines: Iterable[Line]) -> int:
    return sum(1 for _ in islice((line for line in lines if mark.search(line.text)), ENOUGH_MARKS))


def _drop_cut_line(found: list[Found], warnings: list[str]) -> list[Found]:
    """Leave out a last line without an end whose numbers may have lost digits."""
    if not found or found[-1][2].whole:
        return found
    last, before = found[-1], found[-2] if len(found) > 1 else None
    ended = last[2].text.rstrip().endswith(("|", "}"))
    if before is None:
        whole = ended
    else:
        whole = before[1].keys() == last[1].keys() and (ended or len(last[2].text) >= len(before[2].text))
    if whole:
        return found
    warnings.append(f"the last line, of step {last[0]}, is cut short and is left out")
    return found[:-1]


def _one_rank(found: list[Found], warnings: list[str]) -> list[Found]:
    """Keep one report a step where several ranks log the same: that of the rank that logged most, if it has one."""
    ranks = [line.rank for _number, _fields, line in found]
    kept = found
    if len(set(ranks)) > 1:
        chief = max(sorted(set(ranks), key=lambda rank: -1 if rank is None else rank), key=ranks.count)
        reported = {number for number, _fields, line in found if line.rank == chief}
        kept = [each for each in found if each[2].rank == chief or each[0] not in reported]
    unique: list[Found] = []
    seen: set[int] = set()
    reported_at = 0
    for each in kept:
        place = each[2].place
        if each[0] in seen and place - reported_at > RESTART_LINES and unique and each[0] < unique[-1][0]:
            # The program has started again, from a checkpoint.
            seen = set()
        reported_at = place
        if each[0] not in seen:
            seen.add(each[0])
            unique.append(each)
    if len(unique) < len(found):
        warnings.append(f"{len(found) - len(unique)} lines repeat a step that another line or rank reports")
    return unique


def _timed_by_clock(found: Sequence[Found]) -> Iterator[Found]:
    """Fill in durations by a clock of whole seconds that the program shows, or else by a mean that it states."""
    begun: list[tuple[int, float]] = []
    """Steps and times from which this one may be timed: the last of them long enough ago, and all later ones."""
    for number, fields, line in found:
        shown_s, mean_s = fields.pop("elapsed_s", None), fields.pop("mean_s", None)
        if shown_s is not None:
            if begun and (number <= begun[-1][0] or shown_s < begun[-1][1]):
                begun = []
            while len(begun) > 1 and shown_s - begun[1][1] >= LONG_S:
                del begun[0]
            spent_s = (shown_s - begun[0][1]) / (number - begun[0][0]) if begun else 0.0
            begun.append((number, shown_s))
            if mean_s is None or shown_s - begun[0][1] >= LONG_S:
                mean_s = spent_s
        yield number, {"seconds": mean_s, **fields} if mean_s else fields, line


def _logged(number: int, fields: dict[str, float], line: Line) -> LoggedStep:
    known = {name: value for name, value in fields.items() if name in LoggedStep.__dataclass_fields__}
    extra = {name: value for name, value in fields.items() if name not in known}
    known.setdefault("time_s", time_of(line.text))  # type: ignore[arg-type]
    if "tokens" not in known and "samples" in known and "seq_length" in extra:
        known["tokens"] = known["samples"] * extra["seq_length"]
    if "samples" not in known and extra.get("samples_per_s") and known.get("seconds"):
        known["samples"] = round(extra["samples_per_s"] * known["seconds"])
    if not 0 < known.get("seconds", 1.0) < float("inf"):
        del known["seconds"]
    values: dict[str, Any] = {**known, "rank": line.rank if known.get("rank") is None else int(known["rank"])}
    return LoggedStep(number=number, **values, end_byte=line.end_byte)


def _complete(steps: list[LoggedStep], settings: dict[str, int], most_covered: int) -> list[LoggedStep]:
    """Fill in the steps that a line covers, and durations and tokens that follow from what is stated."""
    gaps = [after.number - before.number for before, after in pairwise(steps)]
    likely = [gap for gap in gaps if 0 < gap <= most_covered]
    usual = int(median(likely)) if likely else 1
    done: list[LoggedStep] = []
    for index, step in enumerate(steps):
        before = steps[index - 1] if index else None
        gap = gaps[index - 1] if index else (usual if step.number % usual == 0 else 1)
        covered = max(1, gap if 0 < gap <= most_covered else usual)
        done.append(_filled(step, before, covered, settings))
    return done


def _filled(step: LoggedStep, before: LoggedStep | None, covered: int, settings: dict[str, int]) -> LoggedStep:
    seconds, tokens = step.seconds, step.tokens
    if seconds is None and before and step.time_s is not None and before.time_s is not None:
        spent_s = step.time_s - before.time_s
        seconds = spent_s / covered if spent_s > 0 and step.number > before.number else None
    if tokens is None and before and step.consumed_tokens and before.consumed_tokens:
        grown = step.consumed_tokens - before.consumed_tokens
        tokens = grown / covered if grown > 0 else None
    samples = step.samples or settings.get("global_batch_size")
    if tokens is None and samples and "seq_length" in settings:
        tokens = float(samples * settings["seq_length"])
    if tokens is None and step.tokens_per_s and seconds:
        tokens = step.tokens_per_s * seconds
    if tokens is None and step.gpu_tokens_per_s and seconds and "world_size" in settings:
        tokens = step.gpu_tokens_per_s * seconds * settings["world_size"]
    return replace(step, steps=covered, seconds=seconds, tokens=tokens)
