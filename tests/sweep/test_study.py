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
    assert sizes["charllm-ppt-inference"] == 70
    assert [sizes[f"charllm-ppt-{name}"] for name in ("mi250", "scale", "network", "datacenter")] == [32, 24, 32, 24]


def test_cases_of_a_study_have_names_of_their_own() -> None:
    for name in entries("studies"):
        names = [case.name for case in load_study(name).cases]
        assert len(names) == len(set(names))


def axis(field: str, *values: Any) -> dict[str, Any]:
    return {"field": field, "values": list(values)}


LARGE: dict[str, Any] = {
    "request": {"cluster": "h200x8", "model": "llama3-8b"},
    "groups": [
        {
            "axes": {
                "tp": axis("parallelism.tp", 1, 2, 4, 8),
                "cap": axis("conditions.power_cap_kw", *(0.3 + step / 2000 for step in range(800))),
                "inlet": axis("cluster.cooling.inlet_c", *(step / 50 for step in range(1500))),
                "seed": axis("conditions.seed", *range(250)),
            }
        }
    ],
}
"""1.2 billion cases."""


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("strategy == 'wide' or mbs > 1", ["wide / mbs 1", "wide / mbs 2", "narrow / mbs 2"]),
        (["tp * mbs <= 8", "parallelism.tp != 1"], ["wide / mbs 1"]),
        ("2 > micro_batch_size >= 1 and not tp in (1, 2)", ["wide / mbs 1"]),
    ],
)
def test_constraints_leave_out_cases(where: Any, names: list[str]) -> None:
    group = {**STUDY["groups"][0], "where": where}
    assert [case.name for case in unfold("s", {**STUDY, "groups": [group]}).cases] == names


@pytest.mark.parametrize(
    "where",
    ["__import__('os').remove('x')", "tp ** 9 > 1", "tp.__class__", "mbs > 'a'", "tp / 0 > 1", "depth > 1",
     "'a' * 9 > 1", "dp > 1", "tp >", "[tp for tp in (1,)]", "t" * 1000, 3, "tp > 99"],
)  # fmt: skip
def test_what_is_no_constraint_is_refused(where: Any) -> None:
    groups = [{**STUDY["groups"][0], "where": where}]
    with pytest.raises(SpecError, match=r"STUDY\.where"):
        unfold("s", {**STUDY, "groups": groups})


def test_a_study_too_large_to_list_says_its_size_and_offers_a_sample() -> None:
    with pytest.raises(SpecError, match=r"got 1,200,000,000 cases; expected at most 1,000,000.*--sample 1000"):
        unfold("s", LARGE)


@pytest.mark.parametrize("method", ["random", "latin", "sobol"])
def test_a_sample_meets_the_constraints_and_follows_its_seed(method: str) -> None:
    def cases(seed: int) -> list[str]:
        table = {**LARGE, "where": ["cap > 400", "tp > 1"], "sample": {"count": 40, "method": method, "seed": seed}}
        study = unfold("s", table)
        assert all(case.swept["conditions.power_cap_w"] > 400 for case in study.cases)
        return [case.name for case in study.cases]

    assert len(set(cases(1))) == 40
    assert cases(1) == cases(1) != cases(2)


def test_a_latin_sample_has_every_value_equally_often() -> None:
    study = unfold("s", {**LARGE, "sample": {"count": 400, "method": "latin"}})
    tp = [case.swept["parallelism.tp"] for case in study.cases]
    assert {degree: tp.count(degree) for degree in (1, 2, 4, 8)} == dict.fromkeys((1, 2, 4, 8), 100)


def test_a_sample_is_shared_among_groups_and_may_be_all_there_is() -> None:
    groups = [{"axes": {"a": axis("conditions.seed", *range(90))}}, {"axes": {"b": axis("parallelism.tp", *range(10))}}]
    study = unfold("s", {**LARGE, "groups": groups, "sample": 10})
    assert [case.name[0] for case in study.cases] == ["a"] * 9 + ["b"]
    assert len(unfold("s", {**LARGE, "groups": groups, "sample": 1000}).cases) == 100
    assert len(unfold("s", {**LARGE, "groups": groups, "sample": 1}).cases) == 1
    few = {**LARGE, "groups": [{**groups[0], "where": "a < 3"}], "sample": 50}
    assert [case.name for case in unfold("s", few).cases] == ["a 0", "a 1", "a 2"]


def test_repeats_run_each_case_with_seeds_of_its_own() -> None:
    study = unfold("s", {**STUDY, "request": {**STUDY["request"], "conditions": {"seed": 7}}, "repeats": 2})
    assert len(study.cases) == 10
    assert [case.request["conditions"]["seed"] for case in study.cases[:3]] == [7, 8, 7]
    assert study.cases[1].name == "wide / mbs 1 / repeat 1"
    assert study.cases[1].swept["repeat"] == 1


@pytest.mark.parametrize(
    "changes",
    [{"sample": 0}, {"sample": {"method": "guess", "count": 1}}, {"sample": {"size": 3}}, {"repeats": 0},
     {"groups": [{"axes": {"mbs": axis("training.micro_batchsize", 1)}}]}, {"groups": [{"axis": {}}]},
     {"groups": [{"axes": {"a": {"x": {"training": {"colour": 1}}}}}]},
     {"where": "tp > 9"}],
)  # fmt: skip
def test_wrong_samples_repeats_and_axes_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="STUDY"):
        unfold("s", {**STUDY, **changes})


def test_a_sobol_sample_may_be_larger_than_two_batches() -> None:
    study = unfold("s", {**LARGE, "sample": {"count": 3000, "method": "sobol"}})
    assert len({case.name for case in study.cases}) == 3000


@pytest.mark.parametrize("sample", [{}, {"sample": 2}])
def test_an_axis_without_values_is_refused_beside_others_that_have_some(sample: dict[str, Any]) -> None:
    groups = [{"axes": {"a": axis("conditions.seed", 1, 2)}}, {"axes": {"b": axis("parallelism.tp")}}]
    with pytest.raises(SpecError, match="an axis without values"):
        unfold("s", {**LARGE, "groups": groups, **sample})
