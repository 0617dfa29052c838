"""Random requests end in a result or in one clear message: never a traceback, a NaN or a negative number."""

import os
from typing import Any

from hypothesis import given, settings

from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.result.result import all_finite, to_json
from charllm.simulate.predict import simulate
from charllm.spec.run import RunSpec
from tests.random_specs.answer import SIGNED
from tests.random_specs.strategies import requests

EXAMPLES = int(os.environ.get("CHARLLM_RANDOM_SPECS", "400"))


@settings(max_examples=EXAMPLES)
@given(requests())
def test_a_random_request_gives_a_result_or_one_message(request: dict[str, Any]) -> None:
    run = _resolve(request)
    if isinstance(run, SpecError):
        assert run.field
        assert run.possible
        assert 0 < len(str(run)) < 1500
        return
    result = simulate(run)
    assert all_finite(result.as_table())
    assert not _has_negative({name: value for name, value in result.metrics.items() if name not in SIGNED})
    assert to_json(result)
    assert resolve_run(run.as_table()) == run


def _resolve(request: dict[str, Any]) -> RunSpec | SpecError:
    try:
        return resolve_run(request)
    except SpecError as error:
        return error


def _has_negative(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_negative(item) for item in value.values())
    return isinstance(value, int | float) and value < 0
