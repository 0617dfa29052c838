"""Static batches that are generated: prefill and decode."""

import json
from typing import Any

import pytest

import charllm
from charllm.errors import SpecError
from charllm.report.run import render_run
from charllm.result.result import RunResult

ASKED: dict[str, Any] = {"model": "llama3-8b", "cluster": "h100x8", "tp": 2, "batch": 64, "prompt": 512}


def generated(**changes: Any) -> RunResult:
    return charllm.generate(**{**ASKED, "new_tokens": 64, **changes})


@pytest.fixture(scope="module")
def usual() -> RunResult:
    return generated()


def phase(result: RunResult, name: str) -> dict[str, Any]:
    table = result.table("phases")
    assert table is not None
    place = list(table["phase"]).index(name)
    return {column: values[place] for column, values in table.items()}


def test_json_has_a_row_for_each_phase(usual: RunResult) -> None:
    prefill, decode = json.loads(usual.to_json())["phases"]
    assert (prefill["phase"], decode["phase"]) == ("prefill", "decode")
    assert prefill["seconds"] + decode["seconds"] == pytest.approx(usual.metrics["step_time_s"])
    assert prefill["power_mean_w"] > decode["power_mean_w"]


def test_phases_add_up_to_the_whole(usual: RunResult) -> None:
    prefill, decode, whole = phase(usual, "prefill"), phase(usual, "decode"), usual.metrics
    assert whole.step_time_s is not None
    assert whole.breakdown_s is not None
    assert whole.step_time_s == pytest.approx(prefill["seconds"] + decode["seconds"])
    assert whole.energy_per_step_j == pytest.approx(prefill["energy_j"] + decode["energy_j"])
    assert sum(whole.breakdown_s.values()) == pytest.approx(whole.step_time_s, rel=2e-3)
    assert decode["steps"] == 63
    assert whole.time_to_first_token_s == pytest.approx(prefill["seconds"])
    assert whole.tokens_per_s == pytest.approx(64 * 64 / whole.step_time_s)


def test_decode_is_bound_by_memory_and_cooler_than_prefill(usual: RunResult) -> None:
    prefill, decode = phase(usual, "prefill"), phase(usual, "decode")
    assert decode["power_mean_w"] < 0.8 * prefill["power_mean_w"]
    assert decode["clock_mean_hz"] > prefill["clock_mean_hz"]
    # Half of the weights and the cache of 32 sequences, at the H100's 3.35 TB/s.
    least_s = (8.03e9 / 2 * 2 + 16 * 544 * 131072 / 2) / 3.35e12
    assert least_s < usual.metrics["time_per_token_s"] < 3 * least_s


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "nemo-generate"])
def test_more_batch_is_never_fewer_tokens_a_second(engine: str) -> None:
    rates = [generated(engine=engine, batch=batch).metrics["tokens_per_s"] for batch in (8, 32, 128)]
    assert rates == sorted(rates)


def test_longer_contexts_are_never_faster() -> None:
    times = [generated(prompt=length).metrics["time_per_token_s"] for length in (128, 1024, 4096)]
    assert times == sorted(times)


def test_a_lower_cap_costs_decode_less_than_prefill() -> None:
    free, capped = generated(batch=512), generated(batch=512, power_cap=350)
    slower = {name: phase(capped, name)["seconds"] / phase(free, name)["seconds"] for name in ("prefill", "decode")}
    assert 1.0 <= slower["decode"] < slower["prefill"]


def test_drawing_from_the_most_likely_tokens_sorts_the_vocabulary_in_vllm_alone() -> None:
    def slower_s(engine: str) -> float:
        plain, drawn = (generated(engine=engine, batch=512, top_p=top_p) for top_p in (False, True))
        return float(drawn.metrics["time_per_token_s"] - plain.metrics["time_per_token_s"])

    # 128 sequences on each replica, a vocabulary of 128,256.
    assert slower_s("vllm") == pytest.approx(2.2e-3, rel=0.15)
    assert slower_s("sglang") == 0


def test_stages_of_a_pipeline_decode_parts_of_the_batch_that_follow_each_other() -> None:
    words: dict[str, Any] = {"model": "llama3-70b", "batch": 64, "new_tokens": 64}
    whole = charllm.generate(tp=4, cluster="h200x4", **words)
    staged = charllm.generate(tp=4, pp=2, cluster="h200x8", **words)
    assert staged.metrics["breakdown_s"]["bubble"] < 0.12 * staged.metrics["step_time_s"]
    # Each stage reads its half of the weights twice: as long as four GPUs that read them once.
    assert staged.metrics["time_per_token_s"] == pytest.approx(whole.metrics["time_per_token_s"], rel=0.15)
    assert phase(staged, "decode")["steps"] == 63
    assert staged.metrics["cache_bytes"] == whole.metrics["cache_bytes"] / 2


def test_narrow_caches_hold_as_much_in_half_the_memory(usual: RunResult) -> None:
    narrow = generated(cache_precision="fp8")
    assert narrow.metrics["cache_bytes"] == usual.metrics["cache_bytes"] / 2
    assert narrow.metrics["time_per_token_s"] < usual.metrics["time_per_token_s"]


def test_a_cache_that_does_not_fit_names_the_largest_batch_and_length_that_do() -> None:
    result = generated(batch=16_000, new_tokens=2048)
    assert not result.metrics.fits
    assert result.metrics.step_time_s is None
    (told,) = [text for text in result.warnings if text.startswith("memory:")]
    most = int(told.split("largest batch that fits is ")[1].split()[0])
    assert generated(batch=most, new_tokens=2048).metrics.fits
    assert not generated(batch=most + 4, new_tokens=2048).metrics.fits


@pytest.mark.parametrize(
    ("setting", "value"), [("recompute", "full"), ("zero", 3), ("lora", 8), ("gbs", 8), ("seq", 64), ("sp", True)]
)
def test_settings_of_training_are_refused_by_name(setting: str, value: Any) -> None:
    with pytest.raises(SpecError, match="nothing is trained"):
        generated(**{setting: value})


def test_a_batch_is_spread_over_whole_replicas() -> None:
    with pytest.raises(SpecError, match=r"batch: got 30; expected a multiple of dp = 4, e\.g\. 32"):
        generated(batch=30)


def test_experts_in_any_cut_are_generated_with() -> None:
    for cut in ({"tp": 8}, {"tp": 8, "ep": 8, "etp": 1}, {"tp": 1, "ep": 8}):
        words: dict[str, Any] = {"model": "mixtral-8x7b", "cluster": "h200x8", "batch": 32, "new_tokens": 16, **cut}
        assert 0.002 < float(charllm.generate(**words).metrics["time_per_token_s"]) < 0.03


def test_a_stored_generation_is_read_again(usual: RunResult, tmp_path: Any) -> None:
    usual.save(tmp_path / "run")
    again: Any = charllm.load(tmp_path / "run")
    assert again.metrics["time_per_token_s"] == usual.metrics.time_per_token_s
    assert list(again.table("phases")["phase"]) == ["prefill", "decode"]
    shown = render_run(again)
    assert "first token after" in shown
    assert "decode" in shown
    assert "tuned" not in shown
