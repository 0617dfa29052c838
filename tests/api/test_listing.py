"""The catalog from Python is what the command prints."""

import json

import pytest

import charllm
from charllm.cli import main


@pytest.mark.parametrize(
    "asked", [[], ["models"], ["studies"], ["gpus", "h200"], ["studies", "charllm-ppt-parallelism"]]
)
def test_a_listing_is_what_the_command_prints(asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog", *asked, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(charllm.catalog(*asked)))


def test_unknown_kinds_and_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(charllm.SpecError, match="did you mean models"):
        charllm.catalog("model")
    with pytest.raises(charllm.SpecError, match="did you mean"):
        charllm.catalog("gpus", "h201")
