"""Advice: single changes that are valid, fit, and are predicted to be faster."""

import argparse
import time
from typing import Any

import pytest

from charllm.analysis.advice import (
    Effect,
    Tried,
    best_changes,
    best_effects,
    changes,
    list_changes,
    simulate_changes,
    vary_preheating,
)
from charllm.catalog.change import changed_run
from charllm.catalog.resolve import resolve_run
from charllm.cli.spec_flags import add_spec_flags, request_from
from charllm.result.memory_verdict import judge_memory
from charllm.simulate.misfit import memory_warnings, nearest_change
from charllm.simulate.predict import simulate
from charllm.spec.request import merge
from charllm.spec.run import RunSpec
from charllm.units import GIB
from charllm.workload.step import build_step

README: dict[str, Any] = {
    "model": "llama3-70b",
    "cluster": "charllm-ppt-h200",
    "parallelism": {"tp": 4, "pp": 4},
    "training": {"global_batch_size": 128},
}


def asked(run: RunSpec) -> set[str]:
    return {change.asked for change in changes(run)}


def gains_of(request: dict[str, Any], limit: int = 5) -> list[Effect]:
    run = resolve_run(request)
    return best_changes(run, simulate(run, ignore_memory=True).metrics, limit)


def test_what_is_tried_changes_one_thing() -> None:
    found = asked(resolve_run(README))
    assert {"--tp 8 --dp 1", "--tp 2 --dp 4", "--pp 8 --dp 1", "--pp 2 --dp 4", "--mbs 2"} <= found
    assert {"--recompute selective", "--overlap tp,dp", "--vpp 2", "--schedule zero-bubble"} <= found
    assert {"NICs twice as fast", "links inside a node twice as fast"} <= found
    assert "--sp" not in found


def test_what_is_tried_follows_from_the_run() -> None:
    plain = asked(resolve_run({"model": "llama3-8b", "cluster": "h200x1", "training": {"micro_batch_size": 2}}))
    assert {"--mbs 1", "--mbs 4"} <= plain
    assert not any(flag in change for change in plain for flag in ("--tp", "--pp", "--overlap", "--vpp", "zero-bubble"))
    changed = merge(README, {"parallelism": {"sp": False, "vpp": 2}, "training": {"recompute": "selective"}})
    found = asked(resolve_run(changed))
    assert {"--sp", "--vpp 4", "--recompute none", "--recompute full", "--overlap dp,pp"} <= found
    assert "--schedule zero-bubble" not in found


def test_advice_has_no_strategy_that_the_program_lacks() -> None:
    lists = {
        name: {one.change for one in simulate_changes(run, {"step_time_s": 1.0}, list_changes(run))}
        for name, run in ((name, resolve_run({**README, "framework": name})) for name in ("megatron", "pytorch-eager"))
    }
    assert "--overlap tp,dp" in lists["megatron"]
    assert "--schedule zero-bubble" in lists["pytorch-eager"] - lists["megatron"]


def test_advice_hides_expert_exchanges_where_the_program_can() -> None:
    request = {"model": "mixtral-8x7b", "cluster": "charllm-ppt-h200", "parallelism": {"tp": 2, "sp": True, "ep": 4}}
    lists = {
        name: {one.change for one in simulate_changes(run, {"step_time_s": 1.0}, map(Tried, changes(run)))}
        for name in ("megatron", "nemo")
        for run in [resolve_run({**request, "framework": {"base": name, "default_overlap": []}})]
    }
    assert {"--overlap tp,dp,ep", "--overlap tp,dp"} <= lists["megatron"]
    assert "--overlap tp,dp" in lists["nemo"]
    assert "--overlap tp,dp,ep" not in lists["nemo"]


def test_the_best_come_first() -> None:
    fractions = [gain.gain_fraction for gain in gains_of(README)]
    assert fractions == sorted(fractions, reverse=True)
    assert min(fractions) > 0


@pytest.mark.parametrize(
    "change", [{}, {"conditions": {"power_cap_w": 450.0}}, {"model": "mixtral-8x7b", "parallelism": {"ep": 4, "tp": 2}}]
)
def test_what_advice_promises_is_what_the_advised_run_reports(change: dict[str, Any]) -> None:
    run = resolve_run(merge(README, change))
    before = simulate(run, ignore_memory=True).metrics
    before_s = before["step_time_s"]
    asked_for = {one.asked: one for one in changes(run)}
    gains = best_changes(run, before)
    assert gains
    for gain in gains:
        metrics = simulate(changed_run(run, asked_for[gain.change])).metrics
        assert metrics["fits"]
        assert gain.step_time_s == metrics["step_time_s"]
        assert gain.gain_fraction == before_s / metrics["step_time_s"] - 1
        assert gain.memory_need_bytes == metrics["memory_need_bytes"]


def test_an_advised_flag_asked_for_by_hand_reports_the_same() -> None:
    gains = {gain.change: gain for gain in gains_of(README, limit=100)}
    by_hand = {
        "--overlap tp,dp,pp": {"parallelism": {"overlap": ["tp", "dp", "pp"]}},
        "--vpp 2": {"parallelism": {"vpp": 2}},
    }
    assert set(by_hand) & set(gains)
    for flag, settings in by_hand.items():
        if flag in gains:
            after_s = simulate(resolve_run(merge(README, settings))).metrics["step_time_s"]
            assert gains[flag].step_time_s == after_s


COMMANDS = [
    "--model llama3-70b --cluster charllm-ppt-h200 --tp 4 --pp 4 --gbs 128",
    "--model llama3-8b --cluster h100x8 --framework fsdp --gbs 64 --recompute full",
    "--model mixtral-8x7b --cluster charllm-ppt-h200 --tp 2 --ep 4 --pp 2 --framework nemo --gbs 256",
    "--model gpt3-175b --cluster charllm-ppt-h200 --tp 8 --pp 4 --recompute full",
    "--model llama3-8b --cluster a100x8 --tp 4 --recompute full",
]
TOO_LARGE = [
    "--model llama3-70b --cluster charllm-ppt-h200 --tp 2 --pp 4 --gbs 128",
    "--model gpt3-175b --cluster charllm-ppt-h200 --tp 1 --pp 32",
    "--model llama3-8b --cluster h200x8 --mbs 16",
    "--model llama3-70b --cluster charllm-ppt-h100 --tp 4 --framework nemo",
    "--model gpt3-175b --cluster charllm-ppt-h200 --lora 8 --mbs 4",
]


def reported(command: str) -> dict[str, Any]:
    """Return the metrics that `charllm simulate` reports for a command line."""
    parser = argparse.ArgumentParser()
    add_spec_flags(parser)
    return simulate(resolve_run(request_from(parser.parse_args(command.split())))).metrics


@pytest.mark.parametrize("command", COMMANDS)
def test_flags_added_to_the_command_report_what_advice_printed(command: str) -> None:
    parser = argparse.ArgumentParser()
    add_spec_flags(parser)
    run = resolve_run(request_from(parser.parse_args(command.split())))
    before = simulate(run, ignore_memory=True).metrics
    gains = [gain for gain in best_changes(run, before, 3) if gain.change.startswith("--")]
    assert gains
    for gain in gains:
        after = reported(f"{command} {gain.change}")
        assert (gain.step_time_s, gain.memory_need_bytes) == (after["step_time_s"], after["memory_need_bytes"])


@pytest.mark.parametrize("command", TOO_LARGE)
def test_flags_that_make_a_run_fit_report_the_memory_that_was_printed(command: str) -> None:
    parser = argparse.ArgumentParser()
    add_spec_flags(parser)
    run = resolve_run(request_from(parser.parse_args(command.split())))
    remedy = nearest_change(run)
    assert remedy is not None
    after = reported(f"{command} {remedy.flags}")
    assert after["fits"]
    assert after["memory_need_bytes"] == remedy.memory.worst.need_bytes
    (text,) = memory_warnings(run, judge_memory(build_step(run)))
    assert f"{remedy.flags} it fits" in text
    assert f"needs {after['memory_need_bytes'] / GIB:,.1f} GiB" in text


def tight(memory_gib: float) -> dict[str, Any]:
    """Describe a run that recomputes everything on GPUs with some memory."""
    cluster = {"base": "charllm-ppt-h200", "node": {"gpu": {"memory_gib": memory_gib}}}
    found: dict[str, Any] = merge(README, {"training": {"recompute": "full"}, "cluster": cluster})
    return found


def test_what_does_not_fit_is_not_advised() -> None:
    assert simulate(resolve_run(tight(72))).metrics["fits"]
    assert "--recompute none" not in {gain.change for gain in gains_of(tight(72), limit=100)}
    for gain in gains_of(tight(72), limit=100):
        assert "--mbs 2" not in gain.change


def test_what_simulate_would_warn_about_is_not_advised() -> None:
    plain = judge_memory(build_step(resolve_run(merge(tight(140), {"training": {"recompute": "selective"}}))))
    need_gib = plain.worst.need_bytes / GIB
    for margin, advised in ((1.02, False), (1.2, True)):
        found = {gain.change: gain for gain in gains_of(tight(margin * need_gib), limit=100)}
        assert ("--recompute selective" in found) == advised
        run = resolve_run(tight(margin * need_gib))
        effects = simulate_changes(run, simulate(run).metrics, list_changes(run))
        (effect,) = [one for one in effects if one.change == "--recompute selective"]
        assert effect.fits == advised
        assert ("probability of fitting" in effect.needs) != advised


@pytest.mark.parametrize(
    "change",
    [
        {"model": "mixtral-8x7b", "parallelism": {"tp": 2, "pp": 2, "ep": 4}},
        {"model": "llama3-8b", "parallelism": {"tp": 1, "pp": 1, "zero": 3}},
        {"model": "llama3-8b", "cluster": "h200x8", "parallelism": {"tp": 8, "pp": 1}},
        {"parallelism": {"vpp": 2}},
        {"parallelism": {"layers_per_stage": [19, 21, 21, 19]}},
        {"training": {"recompute": "full", "recompute_layers": 3}},
        {"training": {"recompute": "selective", "recompute_modules": ["core_attn"]}},
        {"cluster": "charllm-ppt-mi250", "model": "llama3-8b"},
    ],
)
def test_any_run_gets_an_answer(change: dict[str, Any]) -> None:
    for gain in gains_of(merge(README, change)):
        assert gain.step_time_s > 0
        assert gain.gain_fraction > 0


def test_advice_is_quick() -> None:
    run = resolve_run(README)
    before = simulate(run).metrics
    began_s = time.process_time()
    best_changes(run, before)
    # Some twenty changes are screened and five simulated; others may use the machine too.
    assert time.process_time() - began_s < 4.0


def test_every_change_is_simulated_and_what_does_not_fit_says_what_it_needs() -> None:
    run = resolve_run(README)
    before = simulate(run).metrics
    effects = {effect.change: effect for effect in simulate_changes(run, before, list_changes(run))}
    assert asked(run) - {"--schedule zero-bubble"} <= set(effects)
    misfit = effects["--tp 2 --dp 4"]
    assert not misfit.fits
    assert misfit.needs == "needs 167 of 140 GiB"
    assert misfit.step_time_s > 0
    cap, warm = effects["--power-cap 630"], effects["--inlet 35"]
    assert cap.of_conditions
    assert cap.gain_fraction < 0 < (cap.tokens_per_j_fraction or 0.0)
    assert (cap.temperature_peak_k or 0.0) < 0 < (warm.temperature_peak_k or 0.0)
    assert warm.temperature_peak_k == pytest.approx(10, abs=1)
    # Advice is a filter of the same effects.
    best = best_effects(effects.values())
    assert [gain.change for gain in best] == [gain.change for gain in best_changes(run, before)]
    assert misfit not in best
    assert cap not in best


def test_preheating_is_varied_where_it_is_assumed() -> None:
    run = resolve_run({"model": "llama3-8b", "cluster": "h200x8", "training": {"global_batch_size": 8}})
    usual_c = simulate(run).metrics["temperature_peak_c"]
    none, double = vary_preheating(run)
    assert none.temperature_peak_c < usual_c < double.temperature_peak_c
    assert (none.factor, double.factor) == (0.0, 2.0)
    assert vary_preheating(resolve_run({"model": "llama3-8b", "cluster": "h200x1"})) == []
