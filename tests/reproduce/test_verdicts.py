"""Tables of findings and recommendations: their keys, and what they say in words."""

from statistics import median
from typing import Any

import pytest

from charllm.report.claims import Claim
from charllm.reproduce.conditions import Setting
from charllm.reproduce.document import write_document
from charllm.reproduce.draws import draws
from charllm.reproduce.finding import Configuration, Finding, percent_more, read
from charllm.reproduce.looks import key_of
from charllm.reproduce.maps import cooling_map, network_map
from charllm.reproduce.paper import H200, run_of
from charllm.reproduce.readings import both_readings, reading_runs
from charllm.reproduce.recommendations import FASTER, Recommendation
from charllm.reproduce.tables import advice_table, finding_table
from charllm.reproduce.verdicts import Judged, advise, explain_all, judge_all
from charllm.reproduce.words import NOT_DRAWN, number

RUN = run_of(H200, "gpt3-175b tp8-pp4 / act")
OTHER = run_of(H200, "gpt3-175b tp2-pp16 / act")


def made(least: float = 10.0) -> Finding:
    one = {"tp8-pp4": Configuration((RUN,), read("temperature_peak_c"))}
    claim = Claim(name="hot", text="It is hot.", unit="C", least=least, is_thermal=True, why="it works hard")
    return Finding(claim=claim, configurations=one)


def warm(setting: Setting) -> dict[str, Any]:
    return {"temperature_peak_c": 40 + setting.inlet_c / setting.flow, "tokens_per_s": setting.inlet_c}


ROWS = {
    key_of(setting.apply(RUN)): warm(setting)
    for setting in (*draws(), *cooling_map().settings, *network_map().settings)
}


def test_a_finding_has_the_keys_that_others_read() -> None:
    (judged,) = judge_all([made()], ROWS, drawn=False, mapped=False)
    table = finding_table(judged)
    assert list(table)[:6] == ["name", "claim", "verdict", "effect", "interval", "evidence"]
    assert (table["verdict"], table["effect"], table["interval"]) == ("holds", 65.0, None)
    assert NOT_DRAWN in table["evidence"]
    assert table["supporting"] == {"tp8-pp4": 65.0}


def test_an_interval_is_that_of_the_draws() -> None:
    (judged,) = judge_all([made()], ROWS, drawn=True, mapped=False)
    effects = [warm(setting)["temperature_peak_c"] for setting in draws()]
    assert judged.interval is not None
    assert min(effects) < judged.interval[0] < judged.interval[1] < max(effects)
    assert NOT_DRAWN not in finding_table(judged)["evidence"]


def test_a_map_says_from_which_inlet_on_it_holds() -> None:
    (judged,) = judge_all([made(least=79.0)], ROWS, drawn=False, mapped=True)
    said = finding_table(judged)["holds_when"]
    assert "airflow x 1, preheat x 1: inlet 40 C to 45 C" in said
    assert "airflow x 0.5, preheat x 2: any inlet" in said
    assert finding_table(judge_all([made(200.0)], ROWS, drawn=False, mapped=True)[0])["holds_when"].startswith(
        "none of"
    )


def test_one_setting_explains_all_or_says_what_it_leaves_out() -> None:
    judged = judge_all([made(60.0), made(110.0)], ROWS, drawn=False, mapped=True)
    joint = explain_all(judged)
    assert joint is not None
    assert joint["explains_all"]
    assert joint["holds_as_is"] == ["hot"]
    none = explain_all(judge_all([made(60.0), made(500.0)], ROWS, drawn=False, mapped=True))
    assert none is not None
    assert not none["explains_all"]
    assert explain_all(judge_all([made()], ROWS, drawn=False, mapped=False)) is None


def test_the_document_has_the_verdict_the_map_and_what_is_not_known() -> None:
    judged = judge_all([made(least=79.0)], ROWS, drawn=True, mapped=True)
    text = write_document(judged, [], [], explain_all(judged))
    assert "| [hot](#hot) | It is hot. | **fails** |" in text
    assert "| airflow x 1, preheat x 1 | 65 | 75 | **80** | **85** |" in text
    assert "## Does one setting explain all thermal findings?" in text
    assert f"same verdict in {verdicts_of(judged[0])['fails']} of {len(draws())} draws" in text
    assert "| message latency, x calibrated | 0.5 to 1.75 |" in text
    assert NOT_DRAWN in write_document(judge_all([made()], ROWS, drawn=False, mapped=False), [], [], None)


def verdicts_of(judged: Judged) -> dict[str, int]:
    found: dict[str, int] = finding_table(judged)["verdicts_of_draws"]
    return found


def test_a_finding_says_how_many_draws_share_its_verdict_and_where_their_median_lies() -> None:
    (judged,) = judge_all([made(least=70.0)], ROWS, drawn=True, mapped=False)
    effects = [warm(setting)["temperature_peak_c"] for setting in draws()]
    assert verdicts_of(judged)["holds"] == sum(effect > 70.0 for effect in effects)
    assert sum(verdicts_of(judged).values()) == len(effects)
    assert finding_table(judged)["median_of_draws"] == pytest.approx(median(effects))
    assert finding_table(judged)["interval_level"] == 0.9


def advised(gain: float, warm_gain: float) -> Any:
    arm = Setting(inlet_c=45.0)
    asked = Recommendation(
        name="faster", claim="Do it.", counterfactual="one for the other", unit="%", arms=(arm,),
        configurations={"gpt3": Configuration((RUN, OTHER), percent_more("tokens_per_s"))}, accuracy=FASTER,
    )  # fmt: skip
    rows: dict[str, dict[str, Any]] = {
        key_of(RUN): {"tokens_per_s": 100 + gain},
        key_of(OTHER): {"tokens_per_s": 100.0},
    }
    rows |= {
        key_of(arm.apply(RUN)): {"tokens_per_s": 100 + warm_gain},
        key_of(arm.apply(OTHER)): {"tokens_per_s": 100.0},
    }
    return advice_table(advise(asked, rows, drawn=False))


@pytest.mark.parametrize(
    ("gain", "warm_gain", "verdict", "said"),
    [
        (40.0, 40.0, "a gain", "not observed in 1 configurations"),
        # Beyond the mark, and within the error of such a difference.
        (3.0, 3.0, "undecided at this accuracy", "within the error for gpt3"),
        (-20.0, 40.0, "no gain", "median a gain at (inlet 45 C): 40 %"),
        (40.0, -20.0, "a gain", "median no gain at (inlet 45 C): -20 %"),
    ],
)
def test_a_recommendation_says_whether_it_gains_and_when_it_reverses(
    gain: float, warm_gain: float, verdict: str, said: str
) -> None:
    table = advised(gain, warm_gain)
    assert list(table)[:5] == ["claim", "counterfactual", "gain", "interval", "reverses_when"]
    assert table["gain"] == pytest.approx(gain)
    assert table["interval"] is None
    assert table["verdict"] == verdict
    assert table["worth_it"] is (verdict == "a gain")
    assert table["error_interval"][0] < gain < table["error_interval"][1]
    assert said in table["reverses_when"]


def test_a_gain_whose_error_is_not_known_is_undecided() -> None:
    asked = Recommendation(name="some", claim="Do it.", counterfactual="this", unit="%", configurations={
        "gpt3": Configuration((RUN, OTHER), percent_more("tokens_per_s"))})  # fmt: skip
    rows: dict[str, dict[str, Any]] = {key_of(RUN): {"tokens_per_s": 150.0}, key_of(OTHER): {"tokens_per_s": 100.0}}
    table = advice_table(advise(asked, rows, drawn=False))
    assert (table["verdict"], table["worth_it"]) == ("undecided at this accuracy", False)
    assert table["error_basis"] == "no error of this kind of effect is known"


@pytest.mark.parametrize(
    ("value", "error", "written"),
    [(-0.0552, 1.6, "0"), (14.3, 7.1, "14"), (479.0, 290.0, "500"), (0.77, 0.031, "0.77"), (3.04, None, "3.04")],
)
def test_no_effect_is_written_finer_than_its_error(value: float, error: float | None, written: str) -> None:
    assert number(value, error) == written


def test_mistakes_of_the_artifact_are_read_both_ways() -> None:
    rows = {
        key_of(run): {
            "fits": True, "tokens_per_s_per_gpu": 10.0 + place, "tokens_per_j": 1.0 + place, "clock_loss": 0.1,
            "energy_per_step_j": 5.0, "step_time_s": 1.0 + place, "clock_loss_fraction.thermal": 0.0,
        }
        for place, run in enumerate(reading_runs())
    }  # fmt: skip
    swapped, no_ops, edp, throttled = both_readings(rows)
    assert swapped["artifact"] != swapped["corrected"]
    assert no_ops["corrected"].endswith("20 repeat it")
    assert edp["artifact"].removeprefix("most efficient") != edp["corrected"].removeprefix("most tokens per joule")
    assert throttled["corrected"].startswith("0 of them")
