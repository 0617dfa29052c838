from pathlib import Path
from typing import Any

import pytest

from charllm.catalog.tables import entries
from charllm.errors import SpecError
from charllm.sweep.study import load_study, unfold

STUDY: dict[str, Any] = {
    "about": "a test",
    "request": {"cluster": "h200x8", "model": "llama3-8b"},
    "groups": [
        {
            "axes": {
                "strategy": {"wide": {"parallelism": {"tp": 8}}, "narrow": {"parallelism": {"tp": 1}}},
                "mbs": {"field": "training.micro_batch_size", "values": [1, 2]},
            }
        },
        {"request": {"model": "llama3-70b"}},
    ],
}


def test_a_group_is_the_product_of_its_axes() -> None:
    study = unfold("s", STUDY)
    assert [case.name for case in study.cases] == [
        "wide / mbs 1",
        "wide / mbs 2",
        "narrow / mbs 1",
        "narrow / mbs 2",
        "only",
    ]
    assert study.cases[1].request["training"] == {"micro_batch_size": 2}
    assert study.cases[4].request["model"] == "llama3-70b"


def test_a_file_is_a_study(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[[groups]]\nrequest = { model = "gpt2", cluster = "h200x1" }\n')
    assert load_study(str(file)).cases[0].request == {"model": "gpt2", "cluster": "h200x1"}


@pytest.mark.parametrize(
    "changes",
    [
        {"groups": []},
        {"groups": 3},
        {"groups": [3]},
        {"groups": [{"axes": 3}]},
        {"groups": [{"axes": {"a": {"x": 3}}}]},
        {"request": "x"},
        {"colour": 1},
        {"groups": [{"axes": {f"a{index}": {"field": "seed", "values": list(range(100))} for index in range(5)}}]},
    ],
)
def test_broken_studies_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="STUDY"):
        unfold("s", {**STUDY, **changes})


def test_the_artifacts_experiments_are_all_there() -> None:
    sizes = {name: len(load_study(name).cases) for name in entries("studies")}
    assert sizes["charllm-ppt-parallelism"] == 15
    training = ("optimization-h200", "optimization-h100", "microbatch-h200")
    assert sum(sizes[f"charllm-ppt-{name}"] for name in training) == 188
    assert sizes["charllm-ppt-lora-h200"] == 84


def test_cases_of_a_study_have_names_of_their_own() -> None:
    for name in entries("studies"):
        names = [case.name for case in load_study(name).cases]
        assert len(names) == len(set(names))
