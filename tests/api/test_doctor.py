"""`charllm.doctor` takes a result or a folder, and says the same of both."""

import json
from pathlib import Path

import pytest

import charllm

WORDS = {"model": "llama3-8b", "cluster": "charllm-ppt-h200", "tp": 2}
HOT = {"conditions.hot_gpus": [9], "conditions.hot_sink_fraction": 12.0}


def test_a_result_and_its_folder_are_judged_alike(tmp_path: Path) -> None:
    result = charllm.simulate(**WORDS, **HOT)  # type: ignore[arg-type]
    folder = result.save(tmp_path / "run")
    found, again = charllm.doctor(result), charllm.doctor(folder)
    assert found == again == charllm.doctor(folder / "result.json")
    assert found.findings[0]["name"] == "GPU 1 of node 1"
    assert json.loads(found.to_json())["verdict"] == found.verdict
    assert list(found.to_frame()["cause"]) == ["thermal"]


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(charllm.SpecError, match="RUN"):
        charllm.doctor(tmp_path)
