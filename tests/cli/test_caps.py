"""The cap advisor at the command line, and in Python."""

import csv
import io
import json
import math
from typing import Any

import pytest

import charllm
from charllm.cli import main

RUN = ["--model", "llama3-8b", "--cluster", "h200x8", "--tp", "2", "--gbs", "16"]
WORDS: dict[str, Any] = {"model": "llama3-8b", "cluster": "h200x8", "tp": 2, "gbs": 16}


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["caps", *RUN, *words]) == 0
    return capsys.readouterr().out


def test_command_and_function_give_the_same_points(capsys: pytest.CaptureFixture[str]) -> None:
    shown = json.loads(printed(capsys, "--at", "700,500,400", "--tariff", "pue=1.5", "--json"))
    found = charllm.caps(**WORDS, at=[400, 700, 500], tariff={"pue": 1.5})
    assert shown == found.table
    assert [point["cap_w"] for point in shown["points"]] == [700, 500, 400]
    assert found.to_frame()["step_time_s"].is_monotonic_increasing
    rows = list(csv.DictReader(io.StringIO(printed(capsys, "--at", "700,500,400", "--csv"))))
    assert [float(row["cap_w"]) for row in rows] == [700, 500, 400]


def test_the_table_marks_the_knee_and_says_how_to_set_it(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "--clock", "--at", "1980,1500,1000")
    assert "clock caps of every GPU" in text
    assert "Set the knee with: nvidia-smi -lgc 0,1500" in text
    assert "saving 1 % of energy costs more" in " ".join(text.split())


def test_money_is_in_the_prices_and_the_currency_that_were_asked_for() -> None:
    tariffs = ({"gpu_per_hour": price, "currency": "EUR"} for price in (0.0, 4.0))
    usual, dear = (charllm.caps(**WORDS, at=[700], tariff=tariff) for tariff in tariffs)
    hours = 8 * 1e12 / usual.points[0]["tokens_per_s"] / 3600
    difference = dear.points[0]["money_per_trillion_tokens"] - usual.points[0]["money_per_trillion_tokens"]
    assert math.isclose(difference, 4 * hours)
    assert "EUR/T" in str(dear)


def test_points_are_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "--at", "700,600,500,400", "--plots")
    assert "What does a cap cost, and what does it save?" in text
    assert "tokens per joule, tokens/J" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--at", "soon"], "--at: got 'soon'; expected numbers"),
        (["--at", "100"], "expected 200 to 700 W"),
        (["--per", "stage"], "one pipeline stage"),
        (["--tariff", "pue=0.5"], "tariff.pue: got 0.5; expected a number from 1 to 10"),
        (["--tariff", "pu=1"], "did you mean pue"),
        (["--tariff", "pue"], "--tariff: got 'pue'; expected NAME=VALUE"),
        (["--power", "--clock"], "--power or --clock, not both"),
        (["--per", "stage", "--at", "600"], "no caps with --per stage"),
    ],
)
def test_a_wrong_request_ends_in_2(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["caps", *RUN, *words]) == 2
    assert message in capsys.readouterr().err


def test_a_run_that_does_not_fit_ends_in_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["caps", "--model", "llama3-70b", "--cluster", "h200x8"]) == 3
    assert "--ignore-memory" in capsys.readouterr().err
