"""The page of a study: what it answers, for one case as for thousands, whatever is missing."""

from typing import Any, NamedTuple

import pytest

from charllm.report.figure import Figure, Page
from charllm.report.page.cases import StudiedCase, group_cases, machine_of, select
from charllm.report.page.study import study_page
from charllm.report.web.html import to_json
from charllm.timeline.labels import LABELS
from tests.report.page.made_cases import make_case, reject


class NamedStudy(NamedTuple):
    name: str = "mine"
    about: str = "What does tp cost?"
    corrections: tuple[str, ...] = ()
    swept: tuple[str, ...] = ("strategy", "tp", "conditions.power_cap_w")


CASES = [
    make_case("a tp4", 10.0, 0),
    make_case("a tp8", 20.0, 1, tp=8, tokens_per_j=1.5, temperature_peak_c=75.0),
    make_case("a tp2", 12.5, 2, tp=2),
    make_case("b tp4", 40.0, 3, power_mean_w=300.0),
    reject("b tp1", "memory: 90.0 GiB needed, 80.0 GiB there", fits=False),
    reject("b tp3", "parallelism.tp: got 3; expected one of 1, 2, 4, 8", 2),
]


def page_of(cases: list[StudiedCase], **study: str | tuple[str, ...]) -> Page:
    return study_page(NamedStudy(**study), cases)  # type: ignore[arg-type]


def figure(page: Page, name: str) -> Figure:
    (found,) = [figure for section in page.sections for figure in section.figures if figure.name == name]
    return found


@pytest.fixture(scope="module")
def page() -> Page:
    return page_of(CASES)


def test_it_opens_with_the_fastest_case_of_each_model(page: Page) -> None:
    assert page.answer[0] == "Of 6 cases, fastest are tp4 for a and tp4 for b."
    assert page.title == "Study mine"
    assert [fact.value for fact in page.facts][:2] == ["tp4", "tp4"]


def test_it_says_by_how_much_and_what_the_slower_ones_spend_their_time_on(page: Page) -> None:
    told = page.further[0]
    assert told.startswith("a: tp4 is fastest with 100 tokens/s/GPU, 10 s a step, although exposed tp communication ")
    assert (
        "Next is tp2, 20 % slower: exposed tp communication takes 7.5 s instead of 5 s, 60 % of its step (1 TB" in told
    )
    assert (
        "Slowest is tp8, 2 times slower: exposed tp communication takes 15 s instead of 5 s, 75 % of its step" in told
    )


def test_it_says_what_does_not_fit_and_what_is_wrong_with_the_rest(page: Page) -> None:
    (told,) = [sentence for sentence in page.further if "does not fit in" in sentence]
    assert told == (
        "b tp1 does not fit in memory: 90.0 GiB needed, 80.0 GiB there. "
        "b tp3 does not form a valid run: parallelism.tp: got 3; expected one of 1, 2, 4, 8."
    )
    assert figure(page, "rejected").columns["case"].values == ["b tp1", "b tp3"]
    notes = dict(
        zip(
            figure(page, "strategies").columns["case"].values,
            figure(page, "strategies").columns["note"].values,
            strict=True,
        )
    )
    assert notes["tp1"] == "does not fit: 90.0 GiB needed, 80.0 GiB there"


def test_it_says_how_far_power_heat_and_throttling_differ(page: Page) -> None:
    told = " ".join([*page.answer, *page.further])
    assert len(page.answer) <= 3
    assert "Mean power per GPU ranges from 300 W (b tp4) to 600 W (a tp4)" in told
    assert "the hottest GPU reaches 75.0 C (a tp8), 19.0 K below slowdown" in told
    assert "Throttling costs between 10.0 and 10.0 % of the clock" in told
    assert "except for a, where tp8 gives 50 % more" in told or "not the most efficient for a, where tp8" in told


def test_every_figure_says_what_to_see_or_why_it_is_not_there(page: Page) -> None:
    figures = [figure for section in page.sections for figure in section.figures]
    assert all(figure.message or figure.missing for figure in figures)
    assert len({figure.name for figure in figures}) == len(figures)
    assert all(len({len(column.values) for column in figure.columns.values()}) <= 1 for figure in figures)


def test_long_and_short_steps_are_shares_and_like_ones_are_seconds(page: Page) -> None:
    assert figure(page, "breakdown").options["value"] == "seconds"
    apart = figure(page_of([make_case("a x", 10.0), make_case("a y", 100.0)]), "breakdown")
    assert apart.options["value"] == "share"
    assert "y, 100 s" in apart.columns["bar"].values
    shares = [
        share
        for bar, share in zip(apart.columns["bar"].values, apart.columns["share"].values, strict=True)
        if bar[0] == "y"
    ]
    assert sum(shares) == pytest.approx(100)
    assert apart.options["order"] == list(LABELS)


def test_memory_stands_against_the_size_of_the_gpu(page: Page) -> None:
    memory = figure(page, "memory")
    assert memory.options["limit"]["value"] == pytest.approx(80)
    assert "needs most: 60.0 GiB of 80.0 GiB, of which 67 % weights" in memory.message


def test_links_show_what_a_gpu_sends_while_it_communicates() -> None:
    links = figure(page_of([make_case("a x", 10.0)]), "links")
    assert links.columns["rate"].values == [pytest.approx(1e12 / 32 / 6.0 / 1e9)]
    assert [line["y"] for line in links.options["lines"]] == [pytest.approx(450), pytest.approx(12.5 / 8)]


def test_a_study_of_one_case_and_one_without_any_result_have_a_page() -> None:
    assert page_of([make_case("a tp4", 10.0)]).answer[0] == "One case: tp4."
    empty = page_of([reject("a tp4", "no")])
    assert empty.answer[0] == "None of 1 cases has a result."
    assert figure(empty, "pareto").missing


def test_a_measured_study_without_throughput_is_ranked_by_step_time() -> None:
    unknown: dict[str, Any] = {"tokens_per_s": None, "tokens_per_s_per_gpu": None, "origin": "measured"}
    page = page_of([make_case("a x", 10.0, **unknown), make_case("a y", 8.0, **unknown)])
    assert page.further[0].startswith("a: y is fastest with 8 s, ")
    assert page.origin == "measured"


def test_a_large_study_shows_the_fastest_of_each_model_and_keeps_all_in_the_scatter() -> None:
    many = [make_case(f"{'ab'[at % 2]} case {at}", 10.0 + at, at) for at in range(2000)]
    page = page_of(many)
    shown = figure(page, "strategies")
    assert len(shown.columns["case"].values) == 60
    assert shown.message.startswith("Shown: 60 of 2,000 cases, the fastest of each group.")
    assert len(figure(page, "pareto").columns["case"].values) == 2000
    assert len(to_json(page)) < 3_000_000


def test_a_selection_keeps_the_fastest_of_each_group() -> None:
    cases = group_cases([make_case(f"{'ab'[at % 2]} {at}", 20.0 - at, at) for at in range(12)])
    shown, left_out = select(cases, 4)
    assert [case.name for case in shown] == ["a 8", "b 9", "a 10", "b 11"]
    assert left_out


def test_cases_are_named_inside_their_model_unless_that_is_ambiguous() -> None:
    named = group_cases([make_case("a tp4 / mbs 1", 1.0 + 9), make_case("a", 10.0), make_case("model b / tp 2", 10.0)])
    assert [(case.group, case.label) for case in named[:2]] == [("a", "tp4 / mbs 1"), ("a", "a")]
    twice = group_cases([make_case("a x", 10.0, 3), make_case("a x", 10.0, 7)])
    assert [case.label for case in twice] == ["a x (case 3)", "a x (case 7)"]


def test_warnings_that_differ_in_numbers_are_said_once() -> None:
    page = page_of(
        [make_case("a x", 10.0, warnings=["3 of 8 simulated"]), make_case("a y", 10.0, warnings=["4 of 9 simulated"])]
    )
    assert page.warnings == ["2 of 2 cases: 3 of 8 simulated"]


def test_what_a_damaged_spec_says_of_its_machine_is_left_out() -> None:
    spec = {"cluster": {"name": ["h200x8"], "cooling": {"inlet_c": "warm"}, "node": {"gpus": 8}}, "framework": 3}
    assert machine_of(spec) == {"gpus_per_node": 8}
