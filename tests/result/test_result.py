import json
import math

import pytest

from charllm.errors import SpecError
from charllm.result.metrics import METRICS, Metrics, fill_metrics, missing
from charllm.result.result import RunResult, all_finite, from_json, to_json

RESULT = RunResult(origin="measured", spec={"command": ["train"]}, metrics=fill_metrics({"step_time_s": 1.5}))


def test_a_result_survives_writing_and_reading() -> None:
    assert from_json(to_json(RESULT), "here") == RESULT


def test_every_metric_is_there_and_unknown_ones_are_null() -> None:
    assert list(RESULT.metrics) == list(METRICS)
    assert "step_time_s" not in missing(RESULT.metrics)
    assert json.loads(to_json(RESULT))["metrics"]["power_mean_w"] is None


def test_a_metric_nobody_declared_is_refused() -> None:
    with pytest.raises(KeyError, match="speed"):
        fill_metrics({"speed": 1})


def test_numbers_that_are_not_finite_never_reach_a_file() -> None:
    bad = RunResult(origin="simulated", spec={}, metrics=Metrics(step_time_s=math.nan))
    assert not all_finite(bad.as_table())
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json(bad)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema_version": 99}', '{"schema_version": 1, "origin": "dreamt"}', "{" * 100_000]
)
def test_what_is_no_result_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        from_json(text, "file")
