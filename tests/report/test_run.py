from charllm.catalog.resolve import resolve_run
from charllm.report.run import describe, render_memory, render_run
from charllm.simulate import simulate
from charllm.workload.step import build_step

RUN = resolve_run(
    {
        "model": "mixtral-8x7b",
        "cluster": "h200x32",
        "parallelism": {"tp": 2, "pp": 2, "ep": 4, "overlap": ["dp"]},
        "training": {"recompute": "full"},
    }
)


def test_a_run_is_described_in_two_lines() -> None:
    lines = describe(RUN).splitlines()
    assert lines[0] == "mixtral-8x7b on h200x32 (32 x h200), megatron, bf16"
    assert "tp 2 x pp 2 x dp 8 x ep 4, zero 1, sp, overlap dp, recompute full" in lines[1]


def test_the_report_shows_weights_memory_arithmetic_and_traffic() -> None:
    text = render_run(build_step(RUN), simulate(RUN))
    for part in (
        "Parameters",
        "expert fc1",
        "Memory of each stage",
        "<- worst",
        "Matrix arithmetic",
        "Traffic",
        "shared with",
    ):
        assert part in text


def test_long_pipelines_show_their_ends() -> None:
    deep = resolve_run({"model": "gpt3-175b", "cluster": "h200x32", "parallelism": {"pp": 32}})
    text = render_memory(build_step(deep))
    assert "20 stages between not shown" in text
    assert len(text.splitlines()) == 3 + 12
