"""Sweeps from Python: a study, or axes of keywords."""

from pathlib import Path
from typing import Any

import pytest

import charllm
from charllm.report.study import render_study
from charllm.sweep.run import run_study
from charllm.sweep.study import load_study
from tests.api.tiny import MODEL, RUN


def test_a_study_gives_the_rows_of_the_command(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(
        'about = "few"\nrequest = { model = "llama3-8b", cluster = "h200x8" }\n'
        '[[groups]]\naxes.tp = { field = "parallelism.tp", values = [1, 3] }\n'
    )
    study = load_study(str(file))
    swept = charllm.sweep(file)
    assert swept.outcomes == run_study(study).outcomes
    assert len(swept) == 2
    assert str(swept) == render_study(study, swept.outcomes)
    assert repr(swept) == "Sweep(small: 1 with a result, 1 invalid)"


def test_axes_are_the_product_of_keywords_over_a_base() -> None:
    swept = charllm.sweep(axes={"tp": [1, 2], "recompute": ["none", "full"]}, base=RUN)
    assert [row["case"] for row in swept.rows] == [
        f"tp {tp} / recompute {recompute}" for tp in (1, 2) for recompute in ("none", "full")
    ]
    for row, (tp, recompute) in zip(swept.rows, ((1, "none"), (1, "full"), (2, "none"), (2, "full")), strict=True):
        alone = charllm.simulate(**{**RUN, "tp": tp}, recompute=recompute)
        assert row["step_time_s"] == alone.metrics.step_time_s


def test_an_axis_of_labels_sets_several_keywords() -> None:
    axes: dict[str, Any] = {
        "strategy": {"deep": {"pp": 4, "tp": 1}, "wide": {"pp": 1, "tp": 4}},
        "training.optimizer": ["adam", "none"],
    }
    rows = charllm.sweep(axes=axes, **RUN).rows
    assert [(row["pp"], row["tp"]) for row in rows] == [(4, 1), (4, 1), (1, 4), (1, 4)]
    assert rows[0]["case"] == "deep / training.optimizer adam"
    assert rows[0]["step_time_s"] > rows[1]["step_time_s"]


def test_a_wrong_case_is_a_row_with_its_message() -> None:
    rows = charllm.sweep(axes={"tp": [1, 3]}, base=RUN).rows
    assert [row["exit_code"] for row in rows] == [0, 2]
    assert "a divisor" in rows[1]["message"]


def test_a_stored_study_is_loaded_and_resumed(tmp_path: Path) -> None:
    swept = charllm.sweep(axes={"tp": [1, 2]}, base=RUN, out=tmp_path / "study")
    loaded = charllm.load(tmp_path / "study")
    assert isinstance(loaded, charllm.Sweep)
    assert loaded.rows == swept.rows
    assert charllm.sweep(axes={"tp": [1, 2]}, base=RUN, out=tmp_path / "study", resume=True).rows == swept.rows
    with pytest.raises(charllm.SpecError) as caught:
        charllm.sweep(axes={"tp": [1, 2]}, base=RUN, out=tmp_path / "study")
    assert caught.value.field == "out"


def test_a_table_is_a_study() -> None:
    table = {
        "request": {"model": MODEL, "cluster": "h200x8"},
        "groups": [{"axes": {"tp": {"field": "parallelism.tp", "values": [1]}}}],
    }
    assert charllm.sweep(table).rows[0]["case"] == "tp 1"


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({}, "study"),
        ({"study": "charllm-ppt-parallelism", "axes": {"tp": [1]}}, "study"),
        ({"study": "charllm-ppt-parallelism", "tp": 2}, "tp"),
        ({"study": "no-such-study"}, "STUDY"),
        ({"axes": {"tpp": [1]}, "base": RUN}, "tpp"),
        ({"axes": {"tp": 1}, "base": RUN}, "axes.tp"),
        ({"axes": {"tp": "12"}, "base": RUN}, "axes.tp"),
        ({"axes": 5, "base": RUN}, "axes"),
        ({"axes": {"tp": [1]}, "base": {"modell": "x"}}, "modell"),
        ({"axes": {"tp": [1]}, "base": RUN, "workers": 0}, "workers"),
        ({"axes": {"tp": [1]}, "base": RUN, "worker": 2}, "worker"),
    ],
)
def test_a_wrong_sweep_names_its_keyword(asked: dict[str, Any], field: str) -> None:
    with pytest.raises(charllm.SpecError) as caught:
        charllm.sweep(**asked)
    assert caught.value.field == field


BASE = {"model": "llama3-8b", "cluster": "h200x8"}


def test_constraints_samples_and_repeats_are_keywords() -> None:
    words: dict[str, Any] = {"axes": {"tp": [1, 2, 4, 8], "mbs": [1, 2]}, "base": BASE}
    found = charllm.sweep(**words, where="tp * mbs == 4", repeats=2)
    assert [row["case"] for row in found.rows] == [
        "tp 2 / mbs 2 / repeat 0",
        "tp 2 / mbs 2 / repeat 1",
        "tp 4 / mbs 1 / repeat 0",
        "tp 4 / mbs 1 / repeat 1",
    ]
    drawn = charllm.sweep(**words, sample=2, sample_method="latin", sample_seed=3)
    assert {row["tp"] for row in drawn.rows} <= {1, 2, 4, 8}
    assert len(drawn) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"runner": "cloud"}, "runner: got 'cloud'; expected one of local, ray, slurm"),
        ({"partition": "cpu"}, "partition: got 'cpu'; expected --runner slurm with this flag"),
        ({"nodes": 2, "runner": "slurm"}, "nodes: got 2; expected --measure with this flag"),
        ({"launcher": "slurm"}, "launcher: got 'slurm'; expected --measure with this flag"),
        ({"measure": True, "runner": "ray"}, "runner: got 'ray'; expected local or slurm with --measure"),
        ({"measure": True, "runner": "slurm", "launcher": "torchrun"}, "launcher: got 'torchrun'; expected slurm"),
        ({"address": "auto"}, "address: got 'auto'; expected --runner ray with this flag"),
        ({"sample": 0}, "sample: got 0"),
    ],
)
def test_words_that_do_not_go_together_are_refused(words: dict[str, Any], said: str) -> None:
    with pytest.raises(charllm.SpecError, match=said):
        charllm.sweep(axes={"tp": [1]}, base=BASE, **words)


def test_a_value_of_none_on_an_axis_is_a_run_without_that_keyword() -> None:
    rows = charllm.sweep(axes={"clock_cap": [None, 900]}, base=RUN).rows
    assert [row["case"] for row in rows] == ["clock_cap None", "clock_cap 900"]
    assert rows[0]["step_time_s"] == charllm.simulate(**RUN).metrics.step_time_s < rows[1]["step_time_s"]
