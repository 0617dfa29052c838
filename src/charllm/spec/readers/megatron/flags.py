"""The flags that a script passes to its training program, and the value of each in its type."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import takewhile

from charllm.errors import SpecError
from charllm.spec.readers.megatron.effects import effects
from charllm.spec.readers.megatron.expression import evaluate_list
from charllm.spec.readers.probe import told_flags
from charllm.spec.readers.reading import NOT_UNDERSTOOD, Setting, names_size
from charllm.spec.readers.shell.script import OPEN, Script, Unknown
from charllm.spec.readers.values import MAX_TEXT, read_count

MAX_NUMBER = 40
MAX_FLAGS = 5000

_NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)(e[-+]?\d{1,2})?", re.ASCII | re.IGNORECASE)
_LIST = re.compile(r"(?:[\d\s+*,\[\]()/-]|int(?=\())+", re.ASCII)
_FLAG = re.compile(r"--?[A-Za-z][\w.-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Flags:
    """Flags of one command, each with the words after it; the last one of a name wins."""

    values: dict[str, list[str]]
    """By canonical name."""
    written: Mapping[str, str]
    """How the script spells each."""
    lines: Mapping[str, int]
    script: Script | None = None
    stray: tuple[str, ...] = field(default=())
    """Words before the first flag."""

    def __contains__(self, flag: str) -> bool:
        return flag in self.values

    def any(self, *flags: str) -> bool:
        """Say whether one of some flags is given."""
        return any(flag in self.values for flag in flags)

    def setting(self, flag: str, reason: str) -> Setting:
        """Describe a flag as the script writes it."""
        text = " ".join([self.written.get(flag, flag), *self.values.get(flag, [])])
        shown = self.script.shown(text) if self.script else text
        return Setting(self.written.get(flag, flag), shown[:MAX_TEXT], self.lines.get(flag), reason)

    def error(self, flag: str, value: str, possible: str) -> SpecError:
        """Build the error for a value that cannot be read; it names the line and what is not set."""
        shown = self.script.shown(value) if self.script else value
        line = f" (line {self.lines[flag]})" if flag in self.lines else ""
        return SpecError(f"{self.written.get(flag, flag)}{line}", shown[:MAX_TEXT], possible + self._remedy(value))

    def _remedy(self, value: str) -> str:
        unknowns = self.script.unknowns_in(value) if self.script else []
        return f"; {self.why_unknown(unknowns[0])}" if unknowns else ""

    def why_unknown(self, entry: Unknown) -> str:
        """Say where the script takes something unknown from, and which flag gives it."""
        if entry.kind == "argument":
            return f"the script takes it from its arguments: --args 'WORDS' gives {entry.root}"
        asked = list(self.script.asked_arguments) if self.script else []
        if entry.kind == "unset" and asked:
            shown = ", ".join(asked[:3]) + (", ..." if len(asked) > 3 else "")
            return f"the script sets {entry.root} by its arguments ({shown}): --args 'WORDS' gives them"
        if entry.kind == "unset":
            return f"the script does not set that variable: --env {entry.root.strip('${}')}=VALUE does"
        return "the script asks another program for it, and nothing is run"


def collect_flags(
    words: Iterable[str], script: Script | None = None, source: str = "", *, keeps_off: bool = False
) -> Flags:
    """Collect the flags among some words; switches that are off are left out, unless some are on by default."""
    values: dict[str, list[str]] = {}
    written: dict[str, str] = {}
    stray: list[str] = []
    current = stray
    for word in _separate(words):
        if word.startswith("--") and _FLAG.match(word):
            spelled, equals, value = word.partition("=")
            name = canonical(spelled)
            current = [value] if equals else []
            values[name] = current
            written[name] = spelled
            if len(values) > MAX_FLAGS:
                raise SpecError("--from", f"over {MAX_FLAGS} flags", "a training script")
        else:
            current.append(word)
    if not keeps_off:
        # Launchers on top of Megatron-LM write switches with a value.
        values = {name: held for name, held in values.items() if [word.lower() for word in held[:1]] != ["false"]}
    return Flags(told_flags(values), written, find_lines(source, written), script, tuple(stray))


def canonical(spelled: str) -> str:
    """Return the name under which a flag is looked up: dashes, and today's name of it."""
    name = spelled.replace("_", "-")
    return effects().aliases.get(name, name)


def take_unknown(flags: Flags, fields: Mapping[str, str]) -> dict[str, str]:
    """Take out the flags whose value the script does not say; returns the field of each and what gives it."""
    missing: dict[str, str] = {}
    for flag, field_name in fields.items():
        value = (flags.values.get(flag) or [""])[0]
        unknowns = flags.script.unknowns_in(value) if flags.script else []
        if unknowns:
            shown = flags.setting(flag, flags.why_unknown(unknowns[0])).shown()
            missing[field_name] = f"--set {field_name}=N ({shown})"
            flags.values.pop(flag)
    return missing


def find_lines(source: str, written: Mapping[str, str]) -> dict[str, int]:
    """Return the last line of the script, comments aside, on which each flag is written."""
    spellings = {spelled: name for name, spelled in written.items()}
    lines: dict[str, int] = {}
    for number, line in enumerate(source.splitlines(), 1):
        if "--" in line and not line.lstrip().startswith("#"):
            for word in _FLAG.findall(line):
                if word in spellings:
                    lines[spellings[word]] = number
    return lines


def _separate(words: Iterable[str]) -> Iterable[str]:
    """Split words that hold a whole flag with its value, as quoted entries of an array do."""
    for word in words:
        if word.startswith("--") and re.search(r"\s", word):
            yield from word.replace("'", "").replace('"', "").split()
        else:
            yield word


def sort_out(flags: Flags, read: tuple[str, ...] = ()) -> tuple[list[Setting], list[Setting], list[Setting]]:
    """Return the flags that are not understood, those that are not modelled, and those of small effect."""
    strange: list[Setting] = []
    unmodelled: list[Setting] = []
    small: list[Setting] = []
    table = effects()
    for flag in flags.values:
        if flag in table.used or flag in read:
            continue
        reason = table.why_unmodelled(flag)
        if reason:
            unmodelled.append(flags.setting(flag, reason))
        elif flag in table.small:
            small.append(flags.setting(flag, table.small[flag]))
        elif not table.is_without_effect(flag):
            hint = _hint(flag)
            if names_size(flag):
                unmodelled.append(flags.setting(flag, f"{NOT_UNDERSTOOD}{f' ({hint})' if hint else ''}"))
            else:
                strange.append(flags.setting(flag, hint))
    return strange, unmodelled, small


def _hint(flag: str) -> str:
    near = get_close_matches(flag, effects().names(), n=1, cutoff=0.85)
    return f"did you mean {near[0]}?" if near else ""


def text_of(flags: Flags, flag: str) -> str | None:
    """Return the word after a flag; None when the flag is absent."""
    if flag not in flags:
        return None
    if not flags.values[flag]:
        raise flags.error(flag, "nothing", "a value after it")
    return flags.values[flag][0]


def known_text_of(flags: Flags, flag: str) -> str | None:
    """Return the word after a flag; an error when the script does not say what it is."""
    value = text_of(flags, flag)
    if value is not None and OPEN in value:
        raise flags.error(flag, value, "a value")
    return value


def count_of(flags: Flags, flag: str, low: int = 0) -> int | None:
    """Return the whole number after a flag; None when the flag is absent."""
    value = text_of(flags, flag)
    if value is None:
        return None
    digits = value.replace("_", "")
    if re.fullmatch(r"\d{1,10}\.0+", digits, re.ASCII):
        digits = digits.partition(".")[0]
    if not re.fullmatch(r"\d{1,10}", digits, re.ASCII):
        raise flags.error(flag, value, "a whole number")
    return read_count(flags.written.get(flag, flag), int(digits), low)


def count_or(flags: Flags, flag: str, otherwise: int) -> int:
    """Return the whole number after a flag, or what Megatron-LM takes without it."""
    found = count_of(flags, flag, low=min(otherwise, 1))
    return otherwise if found is None else found


def number_of(flags: Flags, flag: str) -> float | None:
    """Return the number after a flag; None when the flag is absent."""
    value = text_of(flags, flag)
    if value is None:
        return None
    if len(value) > MAX_NUMBER or not _NUMBER.fullmatch(value):
        raise flags.error(flag, value, "a number")
    return float(value)


def list_of(flags: Flags, flag: str) -> list[int] | None:
    """Read a list of layers, which blanks may have split into several words."""
    pieces = takewhile(_LIST.fullmatch, flags.values.get(flag, []))
    return evaluate_list("".join(pieces))
