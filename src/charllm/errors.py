"""What can go wrong for a user, and the exit code each case ends in."""

from collections.abc import Iterable
from reprlib import Repr

LONGEST_SHOWN = 120
"""Characters of a wrong value that a message repeats."""
LONGEST_EXPECTED, LONGEST_FIELD = 1200, 400
MOST_DIGITS = 10**40
_REPR = Repr()
_REPR.maxstring = _REPR.maxother = LONGEST_SHOWN + 1
_REPR.maxlist = _REPR.maxtuple = _REPR.maxdict = 20


class Words(str):
    """What was found, described: a message repeats it without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class CharllmError(Exception):
    """A failure that is explained to the user in one message, without a traceback."""

    exit_code = 1


class SpecError(CharllmError, ValueError):
    """The request is wrong: names the field, the value found there and the values expected."""

    exit_code = 2

    def __init__(self, field: str, asked: object, possible: str) -> None:
        self.field = field
        self.asked = asked
        self.possible = possible
        super().__init__(
            f"{_plain(field, LONGEST_FIELD)}: got {_shorten(asked)}; expected {_plain(possible, LONGEST_EXPECTED)}"
        )

    @property
    def got(self) -> object:
        """The value found in the field, as in the message."""
        return self.asked

    @property
    def expected(self) -> str:
        """The values that the field accepts, in words."""
        return self.possible

    def __reduce__(self) -> tuple[type["SpecError"], tuple[str, object, str]]:
        return type(self), (self.field, self.asked, self.possible)


class MissingExtra(CharllmError):
    """The request needs an optional package; the message names it and how to install it."""

    exit_code = 2

    def __init__(self, need: str, extra: str) -> None:
        self.need, self.extra = need, extra
        super().__init__(f"{need}: pip install 'charllm[{extra}]'")

    def __reduce__(self) -> tuple[type["MissingExtra"], tuple[str, str]]:
        return type(self), (self.need, self.extra)


class DoesNotFit(CharllmError):
    """The run needs more memory than a GPU has."""

    exit_code = 3


def unknown_name(field: str, asked: str, known: Iterable[str]) -> SpecError:
    """Build the error for a name that is not in a list; it ends with the closest names."""
    names = sorted(known)
    near = near_names(asked, names)
    listed = ", ".join(names[:40]) + (f", ... ({len(names)} in all)" if len(names) > 40 else "")
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return SpecError(field, asked, f"one of {listed}{hint}")


def near_names(asked: str, known: Iterable[str]) -> list[str]:
    """Return the names of a list that are most like what was asked for, at most three."""
    from difflib import get_close_matches

    return get_close_matches(asked[:LONGEST_SHOWN].lower(), sorted(known), n=3, cutoff=0.5)


def _plain(text: str, longest: int = LONGEST_SHOWN) -> str:
    """Cut a text to one readable line: what a user wrote may hold anything."""
    shown = text if len(text) <= longest else text[: longest - 3] + "..."
    return shown if shown.isprintable() else shown.encode("unicode_escape", "backslashreplace").decode()


def _shorten(asked: object) -> str:
    if asked is None:
        return "nothing"
    if isinstance(asked, int) and abs(asked) >= MOST_DIGITS:
        return f"a whole number of about {int(asked.bit_length() * 0.30103) + 1} digits"
    text = str(asked) if isinstance(asked, int | float) else _REPR.repr(asked)
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "..."
