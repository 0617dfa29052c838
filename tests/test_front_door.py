"""``import charllm`` is light, and names what it offers."""

import doctest
import importlib
import subprocess
import sys
from types import FunctionType

import pytest

import charllm
from charllm import _HOMES

API = sorted(home for home in set(_HOMES.values()) if home.startswith(("charllm.api", "charllm.reproduce")))


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_takes_less_than_a_tenth_of_a_second() -> None:
    # Of the processor, so that other work on the machine does not count.
    code = "import time; start = time.process_time(); import charllm; print(time.process_time() - start)"
    assert min(float(python(code)) for _ in range(3)) < 0.1


def test_importing_loads_nothing_of_weight() -> None:
    code = "import sys, charllm; print(sorted(name for name in sys.modules if name.startswith(('charllm', 'numpy'))))"
    assert python(code) == "['charllm']"


def test_every_public_name_is_listed_documented_and_there() -> None:
    assert set(charllm.__all__) == set(_HOMES)
    assert set(charllm.__all__) <= set(dir(charllm))
    for name in charllm.__all__:
        assert getattr(charllm, name).__doc__, name
    with pytest.raises(AttributeError, match="forecast"):
        getattr(charllm, "forecast")  # noqa: B009


@pytest.mark.parametrize("room", ["simulate", "sweep", "measure", "catalog"])
def test_a_room_of_the_same_name_does_not_hide_a_function(room: str) -> None:
    module = importlib.import_module(f"charllm.{room}")
    assert module.__name__ == f"charllm.{room}"
    code = f"import charllm.{room}, charllm; print(type(charllm.{room}).__name__)"
    assert python(code) == "function"
    assert isinstance(getattr(charllm, room), FunctionType)


@pytest.mark.parametrize("first", ["import charllm; charllm.simulate; ", ""])
def test_the_modules_of_such_a_room_are_reached_by_every_kind_of_import(first: str) -> None:
    code = (
        f"{first}import charllm.simulate.predict as one, charllm.simulate.predict\n"
        "from charllm.simulate import predict as two\n"
        "print(one is two is charllm.simulate.predict, callable(charllm.simulate))"
    )
    assert python(code) == "True True"


def test_a_public_function_keeps_its_own_name_and_text() -> None:
    assert charllm.simulate.__name__ == "simulate"
    assert (charllm.simulate.__doc__ or "").startswith("Predict memory, step time")


@pytest.mark.parametrize("module", API)
def test_the_examples_in_docstrings_are_true(module: str) -> None:
    outcome = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)
    assert outcome.failed == 0
    assert outcome.attempted > 0
