"""The page of a study and the findings judge the same pairs of runs, by the same rule."""

from typing import Any

import pytest

from charllm.report.claims import read_claims
from charllm.report.page.cases import StudiedCase, group_cases
from charllm.report.page.claims import CHECKS, PAIRS, microbatch_groups
from charllm.reproduce.findings import FINDINGS
from charllm.reproduce.looks import key_of
from charllm.reproduce.paper import H200, MICROBATCH
from charllm.sweep.axes import Case, list_settings
from charllm.sweep.study import load_study
from tests.report.page.made_cases import make_case


def as_on_a_page(case: Case) -> StudiedCase:
    settings = list_settings(case.request)
    degrees = {name: settings.get(f"parallelism.{name}") for name in ("tp", "pp", "ep", "zero")}
    values: dict[str, Any] = {**degrees, "tp": degrees["tp"] or 1, "settings": settings}
    return make_case(case.name, 10.0, **values)


@pytest.mark.parametrize("claim", CHECKS)
def test_a_claim_of_a_page_is_that_of_a_finding(claim: str) -> None:
    assert FINDINGS[claim]().claim is read_claims()[claim]


def test_every_claim_has_a_finding() -> None:
    assert list(FINDINGS) == list(read_claims())


@pytest.mark.parametrize("claim", PAIRS)
def test_both_compare_the_same_pairs_of_runs(claim: str) -> None:
    listed = load_study(H200).cases
    requests = {case.name: case.request for case in listed}
    pairs = PAIRS[claim](group_cases([as_on_a_page(case) for case in listed]))
    on_page = {(key_of(requests[after.name]), key_of(requests[before.name])) for before, after in pairs}
    judged = FINDINGS[claim]().configurations.values()
    assert on_page
    # A run whose batch cannot be divided is on neither side of a page.
    assert on_page <= {tuple(key_of(run) for run in one.runs) for one in judged}
    assert len(on_page) >= len(judged) - 1


def test_both_compare_the_same_microbatches_of_a_strategy() -> None:
    listed = load_study(MICROBATCH).cases
    requests = {case.name: case.request for case in listed}
    groups = microbatch_groups(group_cases([as_on_a_page(case) for case in listed]))
    on_page = {tuple(key_of(requests[case.name]) for case in group) for group in groups}
    judged = {tuple(key_of(run) for run in one.runs) for one in FINDINGS["microbatch-peaks"]().configurations.values()}
    assert len(on_page & judged) >= len(judged) - 1
