"""Every finding can hold and can fail: its numbers and its rule on constructed rows."""

import pytest

from charllm.report.claims import FAILS, HOLDS, UNDECIDED, judge
from charllm.reproduce.finding import POINT, Configuration, effects_of, more, percent_more
from charllm.reproduce.findings import FINDINGS
from charllm.reproduce.findings.microbatch import AGAINST_ONE
from charllm.reproduce.looks import Row, key_of
from charllm.reproduce.paper import H100, H200, LORA, MICROBATCH, runs_of

HIGH: Row = {
    "fits": True, "step_time_s": 2000.0, "tokens_per_s": 500.0, "tokens_per_s_per_gpu": 500.0, "tokens_per_j": 50.0,
    "energy_per_step_j": 9e6, "power_mean_w": 690.0, "power_peak_sensor_w": 1900.0, "temperature_peak_c": 85.0,
    "clock_loss": 0.2, "gemm_clock_loss": 0.3, "margin_to_slowdown_k": -15.0,
    "clock_loss_fraction.thermal": 0.05, "front_c": 50.0, "rear_c": 80.0, "package_gap_k": 8.0,
    "breakdown_s.tp_exposed": 3.0, "breakdown_s.pp_exposed": 2.0, "link_s.tp": 3.0, "link_s.pp": 2.0,
    "small_message_loss.tp": 0.4, "small_message_loss.pp": 0.3, "peak_use.tp": 0.2, "peak_use.pp": 0.2,
}  # fmt: skip
LOW: Row = {
    "fits": True, "step_time_s": 20.0, "tokens_per_s": 10.0, "tokens_per_s_per_gpu": 10.0, "tokens_per_j": 1.0,
    "energy_per_step_j": 1e5, "power_mean_w": 495.0, "power_peak_sensor_w": 500.0, "temperature_peak_c": 60.0,
    "clock_loss": 0.0, "gemm_clock_loss": 0.01, "margin_to_slowdown_k": 30.0,
    "clock_loss_fraction.thermal": 0.0, "front_c": 50.0, "rear_c": 50.0, "package_gap_k": 1.0,
    "breakdown_s.tp_exposed": 3.0, "breakdown_s.pp_exposed": 2.0, "link_s.tp": 3.0, "link_s.pp": 2.0,
    "small_message_loss.tp": 0.0, "small_message_loss.pp": 0.0, "peak_use.tp": 0.9, "peak_use.pp": 0.9,
}  # fmt: skip


def between(first: Row, last: Row, share: float) -> Row:
    """Return a row between two, evenly in ratios where both are positive."""
    return {
        name: first[name] ** (1 - share) * last[name] ** share if min(first[name], last[name]) > 0
        else first[name] + share * (last[name] - first[name])
        for name in first
    }  # fmt: skip


def constructed(one: Configuration, flip: bool) -> float | None:
    """Return the effect of a configuration whose runs are far apart, one way or the other."""
    first, second = (LOW, HIGH) if flip else (HIGH, LOW)
    if len(one.runs) < 3:
        return one.effect(*(first, second)[: len(one.runs)])
    if len({str(run["cluster"]) for run in one.runs}) == 1:
        # Microbatches in order of their size.
        return one.effect(*(between(second, first, place / (len(one.runs) - 1)) for place in range(len(one.runs))))
    ours = [run["cluster"] == "charllm-ppt-h200" for run in one.runs]
    return one.effect(*(first if mine else second for mine in ours))


@pytest.mark.parametrize("name", FINDINGS)
def test_every_finding_can_hold_and_can_fail(name: str) -> None:
    finding = FINDINGS[name]()
    assert finding.name == name
    both = {case: [constructed(one, flip) for flip in (False, True)] for case, one in finding.configurations.items()}
    best = {case: max(effect for effect in effects if effect is not None) for case, effects in both.items()}
    worst = {case: min(effect for effect in effects if effect is not None) for case, effects in both.items()}
    exact = {case: [effect, effect] for case, effect in best.items()}
    assert judge(finding.claim, best, exact).verdict == HOLDS
    assert judge(finding.claim, worst).verdict == FAILS
    assert judge(finding.claim, worst).supporting == []
    if finding.claim.accuracy is not None and finding.claim.size is None:
        at_the_mark = dict.fromkeys(best, finding.claim.least)
        assert judge(finding.claim, at_the_mark).verdict == UNDECIDED


@pytest.mark.parametrize("name", FINDINGS)
def test_a_run_that_is_not_possible_has_no_effect(name: str) -> None:
    finding = FINDINGS[name]()
    rows = {key_of(run): {"refused": "layers do not divide"} for run in finding.runs}
    effects = effects_of(finding.configurations, rows)
    assert set(effects.values()) == {None}
    assert judge(finding.claim, effects) == (UNDECIDED, None, [], [], (), None)


def test_a_change_is_told_in_per_cent_and_in_points() -> None:
    assert percent_more("tokens_per_s")({"tokens_per_s": 11.0}, {"tokens_per_s": 10.0}) == pytest.approx(10)
    assert more("clock_loss", POINT)({"clock_loss": 0.12}, {"clock_loss": 0.1}) == pytest.approx(2)
    assert percent_more("tokens_per_s")({}, {"tokens_per_s": 10.0}) is None


def test_all_training_and_lora_configurations_of_the_paper_are_studies() -> None:
    training = [len(runs_of(study)) for study in (H200, H100, MICROBATCH)]
    assert (sum(training), len(runs_of(LORA))) == (188, 84)


def test_overlap_is_judged_by_runs_in_which_its_flag_acts() -> None:
    finding = FINDINGS["overlap-temperature"]()
    everything = next(other.configurations for text, other in finding.readings.items() if "no effect" in text)
    left_out = set(everything) - set(finding.configurations)
    assert "gpt3-175b tp1-pp32" in left_out
    assert "llama3-70b tp8-fsdp4, recomputed" in left_out
    assert "mixtral-8x7b ep8-tp1" in left_out
    assert not left_out & {"llama3-70b tp1-pp16", "mixtral-8x7b ep4-tp2"}


def test_bursts_are_told_by_peak_over_mean_power() -> None:
    finding = FINDINGS["microbatch-bursts"]()
    one = next(iter(finding.readings[AGAINST_ONE].configurations.values()))
    large, small = (
        {"power_peak_sensor_w": 900.0, "power_mean_w": 450.0},
        {"power_peak_sensor_w": 900.0, "power_mean_w": 600.0},
    )
    assert one.effect(large, small) == pytest.approx(100 / 3)
    assert one.effect({}, small) is None
