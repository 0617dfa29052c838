"""What every function of the API shares: its keywords are visible and checked, and its errors name keywords."""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar, get_args

from charllm.api.keywords import RunKeywords
from charllm.errors import SpecError, unknown_name
from charllm.spec.flags import flags_of

P = ParamSpec("P")
R = TypeVar("R")


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Refuse unknown keywords with the nearest names, list those of a run in `help`, and name `out`, not ``--out``."""
    return public_with()(function)


def public_with(*settings: type) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function public; `help` shows the defaults of the settings classes that its keywords belong to."""
    defaults = {word: flag.default for cls in settings for word, flag in flags_of(cls).items()}
    return lambda function: _checked(function, _unfolded(inspect.signature(function), defaults))


def _checked(function: Callable[P, R], signature: inspect.Signature) -> Callable[P, R]:
    takes_fields = "fields" in signature.parameters

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        for word in kwargs:
            if word not in signature.parameters and not (takes_fields and "." in word):
                raise unknown_name(word, word, set(signature.parameters) - {"fields"})
        try:
            return function(*args, **kwargs)
        except SpecError as error:
            if not error.field.startswith("--"):
                raise
            raise SpecError(keyword_of(error.field), error.asked, error.possible) from None

    called.__signature__ = signature  # type: ignore[attr-defined]
    return called


def keyword_of(flag: str) -> str:
    """Return the keyword of a flag: ``--power-cap`` -> ``power_cap``; ``from`` is a word of Python."""
    word = flag.removeprefix("--").replace("-", "_")
    return "from_" if word == "from" else word


def _unfolded(signature: inspect.Signature, defaults: Mapping[str, Any]) -> inspect.Signature:
    """Replace ``**words`` by the keywords that its type lists; where it lists those of a run, also by dotted fields."""
    kept = list(signature.parameters.values())
    if not kept or kept[-1].kind is not inspect.Parameter.VAR_KEYWORD:
        return signature
    (listed,) = get_args(kept[-1].annotation)
    known = listed.__annotations__
    named = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults.get(name), annotation=kind)
        for name, kind in known.items()
    ]
    dotted = RunKeywords.__annotations__.keys() <= known.keys()
    fields = [inspect.Parameter("fields", inspect.Parameter.VAR_KEYWORD)] if dotted else []
    return signature.replace(parameters=[*kept[:-1], *named, *fields])
