"""What can go wrong for a user, and the exit code each case ends in."""

from collections.abc import Iterable
from difflib import get_close_matches


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
        super().__init__(f"{field}: got {_shorten(asked)}; expected {possible}")

    @property
    def got(self) -> object:
        """The value found in the field, as in the message."""
        return self.asked

    @property
    def expected(self) -> str:
        """The values that the field may hold, in words."""
        return self.possible

    def __reduce__(self) -> tuple[type["SpecError"], tuple[str, object, str]]:
        return type(self), (self.field, self.asked, self.possible)


class DoesNotFit(CharllmError):
    """The run needs more memory than a GPU has."""

    exit_code = 3


def unknown_name(field: str, asked: str, known: Iterable[str]) -> SpecError:
    """Build the error for a name that is not in a list; it ends with the closest names."""
    names = sorted(known)
    near = get_close_matches(asked.lower(), names, n=3, cutoff=0.5)
    listed = ", ".join(names[:40]) + (f", ... ({len(names)} in all)" if len(names) > 40 else "")
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return SpecError(field, asked, f"one of {listed}{hint}")


def _shorten(asked: object) -> str:
    if asked is None:
        return "nothing"
    text = str(asked) if isinstance(asked, int | float) else repr(asked)
    return text if len(text) <= 120 else text[:117] + "..."
