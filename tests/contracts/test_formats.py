"""Every command that answers says it in JSON, and as CSV where the answer is a table."""

import pytest

from charllm.cli import COMMANDS
from charllm.cli.parser import all_actions, build_parser

OTHERWISE = {
    "report": "writes a file",
    "serve": "serves a browser",
    "measure": "prints what its command prints; the result is in a folder",
    "apply": "prints what its command prints; the result is in a folder",
    "train": "prints a line of JSON for each step",
    "convert": "writes a folder",
    "export": "prints or writes a file for another program",
    "completion": "prints a script",
}
"""Commands without an answer of their own on stdout, and what they do instead."""
WITHOUT_TABLE = {
    "watch": "what it shows changes while it is shown",
    "bench": "its table is a CSV file in its folder",
}
"""Commands that answer in JSON and not as CSV, and why."""


def flags(command: str) -> set[str]:
    return {flag for action in all_actions(build_parser(command)) for flag in action.option_strings}


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - set(OTHERWISE)))
def test_a_command_that_answers_has_json_and_csv(command: str) -> None:
    assert "--json" in flags(command)
    assert "--csv" in flags(command) or command in WITHOUT_TABLE


@pytest.mark.parametrize("command", sorted(OTHERWISE))
def test_a_command_without_an_answer_has_neither(command: str) -> None:
    assert not {"--json", "--csv"} & flags(command)


@pytest.mark.parametrize("command", ["simulate", "show", "sweep", "compare", "emulate"])
def test_what_can_be_reported_can_be_drawn(command: str) -> None:
    assert {"--plots", "--plot"} <= flags(command)
