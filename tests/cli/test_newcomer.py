"""Questions that people ask first, each by one command, small enough to be asked in a test."""

import pytest

from charllm.cli import main

FEW = [
    "--axis",
    "recompute=none,full",
    "--cp",
    "1",
    "--mbs",
    "1",
    "--zero",
    "1",
    "--gbs",
    "256",
    "--top",
    "2",
    "--overlap",
    "dp",
]
"""Leaves a plan of a large machine few strategies."""
SMALL = ["--cp", "1", "--mbs", "1", "--zero", "1", "--pp", "1", "--gbs", "64", "--top", "2"]


def asked(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(list(words)) == code
    shown = capsys.readouterr()
    return " ".join(f"{shown.out}\n{shown.err}".split())


def test_a_model_on_a_machine_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    model = "meta-llama/Llama-3.3-70B-Instruct"
    text = asked(capsys, "simulate", "--model", model, "--cluster", "64xH100", "--tp", "8", "--pp", "4")
    assert text.startswith("llama3-70b on h100x64 (8 nodes x 8 h100; ib-8x400g: 8 x 400 Gb/s per node)")
    assert "tuned" in text


def test_whether_a_model_fits_and_what_would(capsys: pytest.CaptureFixture[str]) -> None:
    text = asked(capsys, "simulate", "--model", "llama3-70b", "--cluster", "h200x8", code=3)
    assert "does not fit" in text
    assert "charllm simulate --model llama3-70b --cluster h200x8 --zero 3" in text
    assert "charllm plan --model llama3-70b --cluster h200x8" in text


def test_adapters_are_planned_in_a_framework_that_trains_them(capsys: pytest.CaptureFixture[str]) -> None:
    text = asked(capsys, "plan", "--model", "llama3-8b", "--cluster", "h100x8", "--lora", "16", "--tp", "2", *SMALL)
    assert "llama3-8b on h100x8 (8 x h100), nemo, bf16; batch of" in text
    assert "--framework nemo" in text
    assert "framework nemo, as megatron cannot run it" in text


def test_the_cheaper_of_two_machines(capsys: pytest.CaptureFixture[str]) -> None:
    machines = ("--cluster", "h100x8", "--cluster", "h200x8")
    text = asked(capsys, "plan", "--model", "llama3-8b", *machines, "--tp", "2", *SMALL)
    assert "Cheapest for its tokens: h" in text
    assert "Prices: 2 USD for a GPU-hour" in text


def test_how_many_gpus_a_limit_carries(capsys: pytest.CaptureFixture[str]) -> None:
    limit = ("--limit", "facility_power_mean_w<1MW")
    text = asked(
        capsys, "plan", "--model", "llama3-8b", "--gpu", "h100", "--nodes", "1..2", "--tp", "2", *limit, *SMALL
    )
    assert "facility_power_mean_w<1MW carries about" in text


def test_a_cost_of_a_whole_run_needs_its_length(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("plan", "--model", "llama3-8b", "--cluster", "h200x8", "--tp", "2", "--objective", "run-cost", *SMALL)
    assert "--whole-run: got nothing; expected tokens=N" in asked(capsys, *words, code=2)
    text = asked(capsys, *words, "--whole-run", "tokens=1e12", "--power-cap", "600")
    assert "Prices: 2 USD for a GPU-hour" in text


def test_a_limit_that_nothing_meets_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("plan", "--model", "llama3-8b", "--cluster", "h200x8", "--tp", "2", "--limit", "temperature_peak_c<30C")
    text = asked(capsys, *words, "--power-cap", "600", *SMALL, code=2)
    assert "limits that some strategy meets: temperature_peak_c<" in text


def test_the_best_strategy_for_many_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    text = asked(capsys, "plan", "--model", "llama3-70b", "--cluster", "64xH100", "--tp", "8", "--pp", "4", *FEW)
    assert text.startswith("llama3-70b on h100x64 (8 nodes x 8 h100; ib-8x400g: 8 x 400 Gb/s per node), megatron, bf16")
    assert "charllm simulate --model llama3-70b --cluster h100x64 --tp 8 --pp 4" in text


def test_the_best_strategy_of_many_experts_can_be_run(capsys: pytest.CaptureFixture[str]) -> None:
    degrees = ("--ep", "32", "--pp", "8", "--layers-per-stage", "8x5,7x3", "--etp", "1", "--tp", "2")
    text = asked(capsys, "plan", "--model", "deepseek-v3", "--cluster", "256xH800", *degrees, *FEW)
    assert "deepseek-v3 on h800x256 (32 nodes x 8 h800" in text
    # Its biases of experts are settings of Megatron-LM.
    assert "cannot run it" not in text


def test_experts_with_sinks_and_small_experts(capsys: pytest.CaptureFixture[str]) -> None:
    for model, machine, shown in (
        ("openai/gpt-oss-120b", "16xB200", "gpt-oss-120b on b200x16"),
        ("Qwen/Qwen3-30B-A3B", "h200x8", "qwen3-30b-a3b on h200x8"),
    ):
        text = asked(capsys, "plan", "--model", model, "--cluster", machine, "--tp", "1", "--ep", "8", *FEW)
        assert text.startswith(shown)
        assert "--ep 8" in text


def test_the_power_limit_that_pays(capsys: pytest.CaptureFixture[str]) -> None:
    text = asked(capsys, "caps", "--model", "llama3-70b", "--cluster", "h100x512", "--tp", "8", "--pp", "4")
    assert "Knee (lowest energy x time of a step" in text
    assert "Set the knee with: nvidia-smi -pl " in text
    assert "Prices: 2 USD for a GPU-hour" in text


def test_what_a_warm_room_costs(capsys: pytest.CaptureFixture[str]) -> None:
    run = ("simulate", "--model", "llama3-70b", "--cluster", "h200x64", "--tp", "4", "--pp", "2")
    cool, warm = (asked(capsys, *run, "--inlet", inlet) for inlet in ("25", "35"))
    assert "air cooling, inlet 25 C" in cool
    assert "air cooling, inlet 35 C" in warm

    def hottest(text: str) -> float:
        return float(text.partition("C mean")[2].partition(")")[2].split()[1])

    assert 5 < hottest(warm) - hottest(cool) < 15
