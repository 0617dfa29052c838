"""Steps of reinforcement learning."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import charllm
from charllm.api.report import page_of
from charllm.catalog.resolve import resolve_run
from charllm.errors import SpecError
from charllm.plan.splits import compare_splits
from charllm.result.result import RunResult
from charllm.simulate.rl import _merge
from charllm.simulate.rl_settings import RlSettings
from charllm.simulate.rollout import Lengths, count_slots, list_stretches
from charllm.units import GIB

ASKED: dict[str, Any] = {"model": "llama3-8b", "cluster": "h100x16", "gbs": 128, "samples": 512}


def rl(**changes: Any) -> RunResult:
    return charllm.rl(**{**ASKED, "response_length": 400, "longest_response": 2048, **changes})


@pytest.fixture(scope="module")
def usual() -> RunResult:
    return rl()


def seconds(result: RunResult, word: str = "") -> float:
    table = result.table("phases")
    assert table is not None
    return sum(float(each) for name, each in zip(table["phase"], table["seconds"], strict=True) if word in name)


@pytest.mark.parametrize("spread", [0.0, 0.3, 0.8, 1.5])
def test_lengths_have_the_mean_that_is_asked_for_and_none_is_too_long(spread: float) -> None:
    lengths = Lengths(500, spread, 2000, 0.005).sorted()
    assert np.mean(lengths) == pytest.approx(500, rel=1e-3)
    assert lengths.max() <= 2000


def test_stretches_make_all_the_tokens_of_a_replica() -> None:
    for waiting, slots in ((64, 64), (256, 64)):
        stretches = list_stretches(Lengths(500, 0.5, 4000, 0.005), 100, waiting, slots, 1024)
        made = sum(one.steps * one.active for one in stretches)
        assert made == pytest.approx(waiting * 500, rel=0.08)


def test_an_answer_that_never_ends_holds_the_rollout_up_to_the_limit() -> None:
    stretches = list_stretches(Lengths(200, 0.5, 4000, 0.005), 100, 64, 64, 2048)
    assert sum(one.steps for one in stretches) == pytest.approx(4000, rel=0.01)
    few = list_stretches(Lengths(200, 0.5, 4000, 0.005), 100, 8, 8, 8)
    assert sum(one.steps for one in few) < 800


def test_the_more_answers_never_end_the_shorter_the_others_are() -> None:
    few, many = (Lengths(500, 0.6, 4000, share).sorted() for share in (0.01, 0.1))
    assert [(lengths == 4000).sum() for lengths in (few, many)] == [20, 205]
    assert np.median(many) < 0.4 * np.median(few)


def test_a_mean_that_endless_answers_alone_exceed_is_refused() -> None:
    with pytest.raises(SpecError, match=r"endless: got 0\.2; expected less than 400 / 2048"):
        rl(endless=0.2)


def test_any_mean_length_is_trained_with_any_tensor_parallelism() -> None:
    result = rl(tp=4, prompt=201, response_length=398)
    assert result.spec["training"]["seq_length"] == 600


def test_phases_add_up_to_the_step(usual: RunResult) -> None:
    assert usual.metrics["step_time_s"] == pytest.approx(seconds(usual))
    table = usual.table("phases")
    assert table is not None
    assert usual.metrics["energy_per_step_j"] == pytest.approx(sum(table["energy_j"]), rel=1e-6)
    assert not any("GPUs)" in str(name) for name in table["phase"])


def test_longer_spreads_make_longer_rollouts(usual: RunResult) -> None:
    even = rl(length_spread=0.0)
    assert seconds(even, "stragglers") == 0
    assert even.metrics["step_time_s"] < usual.metrics["step_time_s"]


def test_rollouts_are_cooler_than_updates_and_power_ramps(usual: RunResult) -> None:
    table = usual.table("phases")
    assert table is not None
    watts = dict(zip(table["phase"], table["power_mean_w"], strict=True))
    assert watts["stragglers"] < 0.75 * watts["update"]
    assert usual.metrics["cluster_power_ramp_w_per_s"] > 1000


def test_gpus_of_their_own_overlap_one_step_off() -> None:
    beside, in_turn = (rl(rollout_gpus=8, policy=policy) for policy in ("one-step-off", "on-policy"))
    assert beside.metrics["step_time_s"] < in_turn.metrics["step_time_s"]
    assert seconds(in_turn, "waiting") > seconds(beside, "waiting")
    halves = [seconds(beside, where) for where in ("rollout GPUs", "training GPUs")]
    assert halves[0] == pytest.approx(halves[1], rel=0.02)
    assert sum(halves) == pytest.approx(seconds(beside))


def test_states_of_training_pass_pcie_where_the_engine_shares_their_gpus(usual: RunResult) -> None:
    apart = rl(rollout_gpus=8)
    # Weights and gradients of 8 billion parameters, their optimizer on 16 ranks, out and back at 0.4 of 64 GB/s.
    least_s = 2 * 8.03e9 * (2 + 4 + 12 / 16) / (0.4 * 64e9)
    assert seconds(usual, "weight transfer") > least_s
    assert seconds(apart, "weight transfer") < 0.2 * seconds(usual, "weight transfer")
    # Weights out, the reference's in, weights back.
    assert seconds(usual, "reference weights") == pytest.approx(3 * 2 * 8.03e9 / (0.4 * 64e9), rel=0.05)
    assert seconds(rl(no_reference=True), "reference") == 0


def test_splits_are_planned_the_fastest_first_and_its_flags_ask_for_it() -> None:
    request = {"model": "llama3-8b", "cluster": "h100x32", "training": {"global_batch_size": 128}}
    found = compare_splits(request, RlSettings(samples=512, response_length=400, longest_response=2048))
    times = [split.step_s for split in found]
    assert times == sorted(times)
    # Four ways to cut the engine with all GPUs in turn; 24 GPUs that train do not divide 128 sequences.
    assert {split.settings.rollout_gpus for split in found} == {0, 16, 24}
    assert len(found) == 6
    best = found[0]
    words: dict[str, Any] = {"samples": 512, "cluster": "h100x32", "rollout_tp": best.settings.rollout_tp}
    again = rl(**words, rollout_gpus=best.settings.rollout_gpus, policy=best.settings.policy)
    assert again.metrics["step_time_s"] == pytest.approx(best.step_s)
    assert f"--rollout-tp {best.settings.rollout_tp}" in best.flags


def test_a_reward_model_is_a_forward_pass_over_all_samples(usual: RunResult) -> None:
    scored, large = rl(reward_model="llama3-8b"), rl(reward_model="llama3-70b", tp=8)
    assert seconds(usual, "reward model") == 0
    assert seconds(scored, "reward model") == pytest.approx(seconds(usual, "log-probabilities"), rel=0.2)
    assert seconds(large, "reward model") > 3 * seconds(scored, "reward model")
    with pytest.raises(SpecError, match="reward_model"):
        rl(reward_model="llama3-405b")


@pytest.mark.parametrize("apart", [0, 8])
def test_a_page_shows_the_phases_and_the_power_of_a_step(apart: int, tmp_path: Path) -> None:
    policy = "one-step-off" if apart else "on-policy"
    result = rl(rollout_gpus=apart, policy=policy, report=tmp_path / "page.html")
    page = page_of(result)
    figures = {figure.name: figure for section in page.sections for figure in section.figures}
    assert {"phases", "power", "cluster-power"} <= set(figures)
    assert len(set(figures["phases"].columns["bar"].values)) == (2 if apart else 1)
    assert "weight transfer" in (tmp_path / "page.html").read_text()


def test_a_step_of_512_gpus_takes_seconds_to_predict() -> None:
    begun_s = time.process_time()
    result = charllm.rl(model="llama3-70b", cluster="h100x512", tp=8, pp=4, gbs=1024, samples=4096, rollout_tp=8)
    assert result.metrics["step_time_s"] > 10
    assert time.process_time() - begun_s < 20


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("policy", {"policy": "one-step-off"}),
        ("rollout_gpus", {"rollout_gpus": 12}),
        ("response_length", {"response_length": 9000}),
        ("training.seq_length", {"seq": 4096}),
    ],
)
def test_wrong_requests_are_refused_by_name(field: str, changes: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=field):
        rl(**changes)


def test_metrics_of_two_groups_of_gpus_are_means_over_gpus_and_extremes_of_either() -> None:
    parts: list[dict[str, Any]] = [
        {"power_mean_w": 400.0, "power_peak_w": 900.0, "margin_k": 30.0, "clock_loss_fraction": {"power": 0.1},
         "clock_spread_fraction": 0.02, "held": False, "unknown": None},
        {"power_mean_w": 600.0, "power_peak_w": 700.0, "margin_k": 10.0, "clock_loss_fraction": {"power": 0.3},
         "clock_spread_fraction": 0.05, "held": True, "unknown": None},
    ]  # fmt: skip
    found = _merge(parts, [3.0, 1.0])
    assert found["power_mean_w"] == pytest.approx(450)
    assert found["clock_loss_fraction"] == {"power": pytest.approx(0.15)}
    assert (found["power_peak_w"], found["margin_k"], found["clock_spread_fraction"]) == (900.0, 10.0, 0.05)
    assert found["held"] is True
    assert found["unknown"] is None
    assert _merge(parts[:1], [1.0])["held"] is False


def test_a_replica_holds_as_many_sequences_as_its_free_memory_holds_caches() -> None:
    run = resolve_run(
        {"model": "llama3-8b", "cluster": "h100x8", "framework": "vllm",
         "parallelism": {"tp": 2, "schedule": "forward-only"},
         "training": {"global_batch_size": 4, "micro_batch_size": 1, "seq_length": 512},
         "generation": {"prompt_tokens": 512, "new_tokens": 512}}
    )  # fmt: skip
    slots = {tokens: count_slots(run, tokens, 0.9) for tokens in (1024.0, 2048.0)}
    # Keys and values of 8 heads x 128 in bf16 for 32 layers on two ranks; half of 8.03e9 weights and 2 GiB beside them.
    free_bytes = 0.9 * 79.65 * GIB - 8.03e9 - 2 * GIB
    assert slots[1024.0] == pytest.approx(free_bytes / (1024 * 131072 / 2), rel=0.03)
    assert slots[1024.0] == pytest.approx(2 * slots[2048.0], abs=1)
