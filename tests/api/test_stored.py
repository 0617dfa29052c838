"""Stored runs, and two runs side by side, as the command shows them."""

from pathlib import Path

import pytest

import charllm
from charllm.cli import main
from tests.api.tiny import RUN


def test_a_comparison_is_what_the_command_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = charllm.simulate(**RUN), charllm.simulate(**{**RUN, "tp": 4})
    folders = [str(run.save(tmp_path / name)) for run, name in ((first, "a"), (second, "b"))]
    compared = charllm.compare(first, folders[1])
    assert compared.settings["parallelism.tp"] == (2, 4)
    step = next(metric for metric in compared.metrics if metric.metric == "step_time_s")
    assert step.ratio == second.metrics["step_time_s"] / first.metrics["step_time_s"]
    main(["compare", *folders, "--json"])
    assert capsys.readouterr().out == compared.to_json() + "\n"
    main(["compare", *folders])
    assert capsys.readouterr().out == str(compared) + "\n"
    assert repr(compared).startswith("Comparison(settings that differ: ")
    assert f"step_time_s x {step.ratio:.3g})" in repr(compared)


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    for asked in (tmp_path, tmp_path / "nowhere", 5):
        with pytest.raises(charllm.SpecError):
            charllm.load(asked)  # type: ignore[arg-type]
    with pytest.raises(charllm.SpecError) as caught:
        charllm.compare(5, tmp_path)  # type: ignore[arg-type]
    assert caught.value.field == "first"
