"""Random inputs of the command line end in an answer: never a traceback, an endless wait or invalid JSON.

`python -m benchmarks.fuzz` asks 100,000 of them.
"""

import os
from pathlib import Path

import pytest

from benchmarks.fuzz import answer, draw
from tests.random_specs.answer import check_answer

INPUTS = int(os.environ.get("CHARLLM_RANDOM_INPUTS", "250"))
RUNS = int(os.environ.get("CHARLLM_RANDOM_RUNS", "60"))
SEED = 5


@pytest.mark.parametrize("part", range(4))
def test_a_random_input_gets_an_answer(part: int, tmp_path: Path) -> None:
    for number in range(part * INPUTS // 4, (part + 1) * INPUTS // 4):
        got = answer("input", draw("input", SEED, number), tmp_path)
        assert got.fault is None, f"input:{number}"


def test_a_random_run_reaches_the_loop_and_ends_in_possible_numbers(tmp_path: Path) -> None:
    answers = [answer("run", draw("run", SEED, number), tmp_path) for number in range(RUNS)]
    assert [(number, got.fault) for number, got in enumerate(answers) if got.fault] == []
    assert sum(got.simulated for got in answers) > RUNS / 2


def test_a_program_of_its_own_gives_the_same_answer(tmp_path: Path) -> None:
    for number in range(3):
        case = draw("input", SEED, number)
        alone, inside = (answer(kind, case, tmp_path) for kind in ("process", "input"))
        assert (alone.code, alone.fault) == (inside.code, inside.fault)


@pytest.mark.parametrize(
    ("code", "text", "said", "fault"),
    [
        (0, '{"metrics": {"step_time_s": NaN}}', "", "invalid JSON"),
        (0, '{"metrics": {"step_time_s": -1, "temperature_peak_c": 1}}', "", "step_time_s is -1"),
        (1, "", "Traceback (most recent call last):", "traceback"),
        (120, "", "", "exit code 120"),
        (2, "", "", "no message"),
    ],
)
def test_a_wrong_answer_is_noticed(code: int, text: str, said: str, fault: str) -> None:
    assert fault in str(check_answer(code, text, said, 1.0, wants_json=True).fault)
    assert check_answer(0, "", "", 21.0, wants_json=False).fault == "answered after 21 s"
