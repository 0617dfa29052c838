from charllm.report.study import render_study
from charllm.sweep.outcome import Outcome
from charllm.sweep.run import run_study
from charllm.sweep.study import unfold

STUDY = unfold(
    "small",
    {
        "about": "What does tp cost?",
        "corrections": ["one label was wrong"],
        "request": {"cluster": "h200x8", "model": "llama3-8b"},
        "groups": [{"axes": {"tp": {"field": "parallelism.tp", "values": [2, 3]}}}],
    },
)


def cells(text: str, case: str) -> list[str]:
    """Return a case's columns, which two spaces divide."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"{case}  ")]
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_a_table_of_cases_has_what_is_swept_their_time_and_their_watts() -> None:
    text = render_study(STUDY, run_study(STUDY).outcomes)
    timed, drawn = (
        ["step time", "tokens/s/GPU", "MFU"],
        ["mean W", "peak W", "peak C", "MHz", "clock loss", "tokens/J"],
    )
    assert cells(text, "case")[:2] == ["case", "tp"]
    assert cells(text, "case")[-9:] == [*timed, *drawn]
    assert cells(text, "tp 2")[1] == "2"
    step, tokens, mfu, watts, highest, degrees, megahertz, lost, _ = cells(text, "tp 2")[-9:]
    assert float(step.removesuffix(" s")) > 0
    assert int(tokens.replace(",", "")) > 0
    assert mfu.endswith(" %")
    assert 100 < float(watts) <= float(highest) < 1200
    assert 25 < float(degrees) < 90
    assert 345 <= float(megahertz) <= 1980
    assert lost.endswith(" %")
    assert cells(text, "tp 3")[-1] == "invalid"
    assert "Rejected cases" in text
    assert "one label was wrong" in text


def test_what_has_no_time_has_a_dash() -> None:
    fitting = run_study(STUDY).outcomes[0]
    known = ("parallelism.tp", "microbatches", "memory_peak_bytes", "link_bytes.nvlink", "link_bytes.nic")
    timeless = {name: fitting.summary[name] for name in known}
    text = render_study(STUDY, [Outcome("tp 2", 3, "memory", timeless)])
    assert cells(text, "tp 2")[-12:] == [*["-"] * 11, "does not fit"]


def test_a_failed_case_is_told_apart_from_a_rejected_one() -> None:
    text = render_study(STUDY, [Outcome("tp 2", 1, "the worker process was killed by SIGKILL", {})])
    assert cells(text, "tp 2")[-1] == "failed"
    assert "Failed cases\n- tp 2: the worker process was killed by SIGKILL" in text
    assert "Rejected" not in text


def test_labels_that_the_name_of_a_case_says_are_not_repeated() -> None:
    axes = {"plan": {"wide": {"parallelism": {"tp": 8}}, "narrow": {"model": "gpt2"}}}
    study = unfold("s", {"request": {"cluster": "h200x8", "model": "llama3-8b"}, "groups": [{"axes": axes}]})
    assert cells(render_study(study, run_study(study).outcomes), "case")[:3] == ["case", "tp", "model"]
