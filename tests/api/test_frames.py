"""Results, studies and comparisons as pandas frames."""

import subprocess
import sys

import pytest

import charllm
from tests.api.tiny import RUN


def test_a_frame_has_a_row_per_gpu() -> None:
    result = charllm.simulate(**RUN)
    frame = result.to_frame()
    assert list(frame["rank"]) == list(range(8))
    assert frame["power_mean_w"].mean() == pytest.approx(result.metrics.power_mean_w)


def test_without_pandas_a_frame_says_what_is_missing() -> None:
    code = (
        "import sys; sys.modules['pandas'] = None; import charllm\n"
        "try: charllm.simulate(model='llama3-8b', cluster='h200x1', gbs=1, lora=8).to_frame()\n"
        "except charllm.CharllmError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "charllm[frame]" in done.stdout


def test_a_study_has_a_row_per_case_and_a_comparison_one_per_metric() -> None:
    swept = charllm.sweep(axes={"tp": [1, 2]}, base=RUN)
    frame = swept.to_frame()
    assert list(frame["case"]) == ["tp 1", "tp 2"]
    assert list(frame["step_time_s"]) == [row["step_time_s"] for row in swept.rows]
    compared = charllm.compare(charllm.simulate(**RUN), charllm.simulate(**RUN, mbs=2))
    assert list(compared.to_frame()["metric"]) == [metric.metric for metric in compared.metrics]
