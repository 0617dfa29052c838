"""Flags and keywords that follow from the fields of a settings class."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import charllm
from charllm.errors import SpecError
from charllm.spec.fields import choice, count, flag, line, lines, number, path, shell_words
from charllm.spec.flags import check_flags, flags_of, pop_keywords, read_keywords, take


@dataclass(frozen=True, slots=True, kw_only=True)
class Brewing:
    water_s: float = number("How long water runs.", 0, 60, 2.0)
    cups: int | None = count("How many cups.", 1, 12, None)
    place: Path | None = path("Where the pot stands.", flag="-p/--place FILE")
    milk: bool = flag("With milk.", False)
    lid: bool = flag("Without a lid.", True)
    strength: str = choice("How strong.", ("weak", "strong"), "weak")
    label: str | None = line("What is written on it.", None)
    notes: tuple[str, ...] = lines("A note; may be repeated.", flag="--note 'TEXT'")
    words: tuple[str, ...] = shell_words("Words of a shell.")
    known: int = 3

    def __post_init__(self) -> None:
        check_flags(self)


def test_a_flag_is_named_after_its_field_without_the_unit_unless_the_declaration_names_it() -> None:
    spelled = {word: (*flag.spellings, flag.metavar) for word, flag in flags_of(Brewing).items()}
    assert spelled == {
        "water": ("--water", "S"),
        "cups": ("--cups", "N"),
        "place": ("-p", "--place", "FILE"),
        "milk": ("--milk", ""),
        "lid": ("--no-lid", ""),
        "strength": ("--strength", ""),
        "label": ("--label", ""),
        "note": ("--note", "'TEXT'"),
        "words": ("--words", "'WORDS'"),
    }
    assert flags_of(Brewing)["water"].help == "How long water runs. (default 2)"
    assert flags_of(Brewing)["cups"].help == "How many cups."


def test_keywords_become_settings_of_the_types_of_their_fields() -> None:
    words: dict[str, Any] = {"water": 3, "place": "pot", "label": 7, "note": "hot", "words": "a 'b c'", "tp": 2}
    assert take(Brewing, words) == Brewing(
        water_s=3.0, place=Path("pot"), label="7", notes=("hot",), words=("a", "b c")
    )
    assert words == {"tp": 2}
    assert pop_keywords(Brewing, {"cups": None, "milk": False}) == {"milk": False}
    assert read_keywords(Brewing, {"cups": None}, known=5) == Brewing(known=5)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"water": 61}, "--water: got 61.0; expected a number from 0 to 60"),
        ({"water": "long"}, "--water: got 'long'; expected a number from 0 to 60"),
        ({"cups": True}, "--cups: got True; expected a whole number from 1 to 12"),
        ({"cups": 0}, "--cups: got 0"),
        ({"lid": 1}, "--lid: got 1; expected true or false"),
        ({"strength": "mild"}, "--strength: got 'mild'; expected one of strong, weak"),
        ({"place": 5}, "--place: got 5; expected a path"),
        ({"note": [5]}, "--note: got"),
        ({"words": "'"}, "--words: got"),
        ({"waters": 5}, "waters: got 'waters'; expected one of"),
    ],
)
def test_a_wrong_keyword_is_refused_by_its_flag(words: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_keywords(Brewing, words)
    assert str(caught.value).startswith(said)


def test_settings_made_by_hand_are_checked_too() -> None:
    with pytest.raises(SpecError, match="--water: got -1"):
        Brewing(water_s=-1)


ASK = """
import inspect, sys, charllm
from charllm.cli import main
try:
    charllm.measure_command(["true"], settle=-1)
except charllm.SpecError as error:
    print(error)
print(inspect.signature(charllm.measure).parameters["settle"])
sys.exit(main(["measure", "--settle", "-2", "--", "true"]))
"""


def test_a_flag_is_renamed_in_one_file(tmp_path: Path) -> None:
    copy = tmp_path / "charllm"
    shutil.copytree(Path(charllm.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    declared = copy / "measure" / "settings.py"
    text = declared.read_text().replace("LONGEST_WAIT_S, AFTER_S)", 'LONGEST_WAIT_S, AFTER_S, flag="--settle S")')
    declared.write_text(text.replace("    cooldown: float", "    settle: float"))
    told = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", ASK], env=told, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "settle: got -1.0; expected a number from 0 to 86,400",
        "settle: float = 1.0",
    ]
    assert done.returncode == 2
    assert "--settle: got -2.0" in done.stderr
