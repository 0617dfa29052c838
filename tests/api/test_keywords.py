"""Every flag of the command line has its keyword, and both ask for the same run."""

import argparse
import inspect
import json
import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import charllm
from charllm.api import study
from charllm.api.keywords import FIELDS, SHORT, RunKeywords, build_request
from charllm.api.signature import keyword_of
from charllm.cli import main
from charllm.measure.adapters.settings import ProgramSettings
from charllm.measure.command_settings import EmulationSettings, EmulatorSettings, PreflightSettings, SmokeSettings
from charllm.measure.launchers.plan import Plan
from charllm.measure.settings import CommandSettings, MeasureSettings
from charllm.plan.settings import CapsSettings, PlaceSettings, PlanSettings
from charllm.result.result import RunResult, all_finite
from charllm.simulate.settings import SimulateSettings
from charllm.spec.flags import flags_of as settings_of
from tests.api.tiny import MODEL, RUN, SPARSE, flags_of

PRINTED = {"--help", "--json", "--csv", "--full", "--plots", "--plot"}
NO_KEYWORD = {
    "simulate": {"--explain", *PRINTED, "--no-sp", "--full"},
    "sweep": PRINTED,
    "emulate": {*PRINTED, "--no-sp", "--print-timeline", "--predict"},
    "measure": {"--help", "--no-sp", "--submit-only"},
    "caps": {*PRINTED, "--no-sp", "--apply", "--knee", "--within", "--dry-run", "--out"},
    "compare": {*PRINTED, "--ops", "--rank", "--table"},
    "replay": PRINTED,
    "catalog": {"--help", "--json", "--csv"},
}
"""Flags that say how to print, or that another function or a method stands for."""
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "simulate": charllm.simulate,
    "sweep": charllm.sweep,
    "emulate": charllm.emulate,
    "measure": charllm.measure_command,
    "caps": charllm.caps,
    "compare": charllm.compare,
    "replay": charllm.replay,
    "catalog": charllm.catalog,
}
SAMPLES: dict[str, list[tuple[list[str], dict[str, Any]]]] = {
    "--cluster": [(["--cluster", "h100x8"], {"cluster": "h100x8"})],
    "--framework": [(["--framework", "nemo"], {"framework": "nemo"})],
    "--nodes": [(["--nodes", "2"], {"nodes": 2})],
    "--network": [(["--nodes", "2", "--network", "roce"], {"nodes": 2, "network": "roce"})],
    "--tp": [(["--tp", "4"], {"tp": 4}), (["--tp", "1"], {"tp": np.int64(1)})],
    "--pp": [(["--pp", "4"], {"pp": 4})],
    "--vpp": [(["--vpp", "2"], {"vpp": 2})],
    "--cp": [(["--cp", "2"], {"cp": 2})],
    "--ep": [(["--ep", "2", *flags_of({"model": SPARSE})], {"ep": 2, "model": {**MODEL, **SPARSE}})],
    "--etp": [(["--etp", "1", *flags_of({"model": SPARSE})], {"etp": 1, "model": {**MODEL, **SPARSE}})],
    "--dp": [(["--dp", "2"], {"dp": 2})],
    "--zero": [(["--zero", "2"], {"zero": 2})],
    "--fsdp": [(["--fsdp"], {"fsdp": True})],
    "--uncertainty": [(["--uncertainty"], {"uncertainty": True})],
    "--shard-size": [(["--shard-size", "2"], {"shard_size": 2})],
    "--sp": [(["--sp"], {"sp": True}), (["--no-sp"], {"sp": False})],
    "--schedule": [(["--schedule", "gpipe"], {"schedule": "gpipe"})],
    "--overlap": [
        (["--overlap", "none"], {"overlap": "none"}),
        (["--overlap", "tp,dp"], {"overlap": "tp,dp"}),
        (["--overlap", "dp,pp"], {"overlap": ["dp", "pp"]}),
    ],
    "--layers-per-stage": [
        (["--layers-per-stage", "1,3"], {"layers_per_stage": "1,3"}),
        (["--layers-per-stage", "3,1"], {"layers_per_stage": (3, 1)}),
    ],
    "--seq-length": [(["--seq-length", "64"], {"seq_length": 64})],
    "--seq": [(["--seq", "128"], {"seq": 128})],
    "--global-batch-size": [(["--global-batch-size", "16"], {"gbs": None, "global_batch_size": 16})],
    "--gbs": [(["--gbs", "32"], {"gbs": 32})],
    "--micro-batch-size": [(["--micro-batch-size", "2"], {"micro_batch_size": 2})],
    "--mbs": [(["--mbs", "4"], {"mbs": 4})],
    "--precision": [(["--precision", "fp8"], {"precision": "fp8"})],
    "--recompute": [(["--recompute", "full:2"], {"recompute": "full:2"})],
    "--forward-only": [(["--forward-only"], {"forward_only": True})],
    "--lora": [(["--lora", "8"], {"lora": 8})],
    "--power-cap": [(["--power-cap", "500"], {"power_cap": 500.0})],
    "--clock-cap": [(["--clock-cap", "1200"], {"clock_cap": 1200})],
    "--inlet": [(["--inlet", "35"], {"inlet": np.float32(35)})],
    "--seed": [(["--seed", "7"], {"seed": 7})],
    "--set": [
        (["--set", "training.optimizer=none"], {"training.optimizer": "none"}),
        (["--set", "training.optimizer=none"], {"set": {"training.optimizer": "none"}}),
        (["--set", "training.optimizer=none"], {"training": {"optimizer": "none"}}),
        (["--set", "cluster.node.gpu.memory_gib=100"], {"cluster.node.gpu.memory_gib": 100}),
    ],
    "--steps": [(["--steps", "2"], {"steps": 2})],
    "--seconds": [(["--seconds", "0.5"], {"seconds": 0.5})],
    "--allow-long": [(["--allow-long"], {"allow_long": True})],
    "--ignore-memory": [
        (
            ["--ignore-memory", "--set", "cluster.node.gpu.memory_gib=0.5"],
            {"ignore_memory": True, "cluster.node.gpu.memory_gib": 0.5},
        )
    ],
}
"""Flag of `simulate`: the words of the command line, and the keywords that must give the same result."""
WITH_FILES = {
    "--gpu",
    "--gpus",
    "--from",
    "--args",
    "--env",
    "--allow-unmodelled",
    "--model",
    "--placement",
    "--out",
    "--perfetto",
    "--chakra",
    "--timeline",
    "--report",
    "--rank",
}
"""Flags whose value is a file, or that stand in place of another: tests of their own below."""


def flags(command: str) -> set[str]:
    parser = argparse.ArgumentParser()
    import_module(f"charllm.cli.{command}").add_arguments(parser)
    return {flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")}


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["simulate", *words, "--json"]) in (0, 3)
    return capsys.readouterr().out


SETTINGS: dict[str, tuple[type, ...]] = {
    "simulate": (SimulateSettings,),
    "sweep": study.SETTINGS,
    "plan": (PlanSettings,),
    "caps": (CapsSettings,),
    "place": (PlaceSettings,),
    "emulate": (EmulationSettings, EmulatorSettings),
    "predict_emulation": (EmulationSettings,),
    "preflight": (PreflightSettings,),
    "smoke": (SmokeSettings,),
    "measure": (MeasureSettings,),
    "measure_command": (MeasureSettings, CommandSettings, Plan, ProgramSettings),
}
"""Function: the classes that declare its settings."""


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_a_function_takes_the_settings_that_are_declared_and_shows_their_defaults(name: str) -> None:
    parameters = inspect.signature(getattr(charllm, name)).parameters
    declared = {word: flag for cls in SETTINGS[name] for word, flag in settings_of(cls).items()}
    # What is submitted and left is no result to return.
    declared.pop("submit_only", None)
    known = {*RunKeywords.__annotations__, "spec", "fields", "tell", "out", "command", "study", "axes", "base"}
    assert set(parameters) - known == set(declared) - known
    assert {word: parameters[word].default for word in declared} == {w: flag.default for w, flag in declared.items()}


@pytest.mark.parametrize("command", sorted(FUNCTIONS))
def test_every_flag_has_a_keyword(command: str) -> None:
    keywords = set(inspect.signature(FUNCTIONS[command]).parameters)
    assert {keyword_of(flag) for flag in flags(command) - NO_KEYWORD[command]} <= keywords


def test_every_flag_of_simulate_is_tried_below() -> None:
    assert flags("simulate") - NO_KEYWORD["simulate"] == set(SAMPLES) | WITH_FILES


@pytest.mark.parametrize(
    ("flag", "place"), [(flag, place) for flag, pairs in SAMPLES.items() for place in range(len(pairs))]
)
def test_a_keyword_asks_for_the_same_run_as_its_flag(flag: str, place: int, capsys: pytest.CaptureFixture[str]) -> None:
    asked, words = SAMPLES[flag][place]
    assert printed(capsys, *flags_of(RUN), *asked) == charllm.simulate(**{**RUN, **words}).to_json() + "\n"


def test_a_gpu_and_a_number_ask_for_the_same_run_as_its_flags(capsys: pytest.CaptureFixture[str]) -> None:
    words = {**RUN, "cluster": None}
    asked = [*flags_of({name: value for name, value in words.items() if value is not None}), "--gpu", "h100"]
    alike = charllm.simulate(**{**words, "gpu": "h100", "gpus": 8}).to_json() + "\n"
    assert printed(capsys, *asked, "--gpus", "8") == printed(capsys, *asked, "--nodes", "1") == alike


def test_model_spec_foreign_and_placement_files_are_read_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script, spec, model = tmp_path / "train.sh", tmp_path / "spec.toml", tmp_path / "model.toml"
    placement = tmp_path / "placement.json"
    script.write_text(
        "ARGS=(--num-layers 4 --hidden-size 64 --num-attention-heads 8 --seq-length 32 --max-position-embeddings 32\n"
        "--micro-batch-size $1 --global-batch-size $BATCH --vocab-size 64 --bf16 --optimizer-cpu-offload)\n"
        "torchrun pretrain_gpt.py ${ARGS[@]}\n"
    )
    spec.write_text('cluster = "h200x8"\n[parallelism]\ntp = 2\npp = 2\n')
    model.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in MODEL.items()))
    placement.write_text(json.dumps([7, 6, 5, 4, 3, 2, 1, 0]))
    for asked, words in (
        (
            [str(spec), "--from", str(script), "--args", "2", "--env", "BATCH=16", "--allow-unmodelled"],
            {"spec": spec, "from_": script, "args": "2", "env": {"BATCH": "16"}, "allow_unmodelled": True},
        ),
        ([str(spec), "--model", str(model)], {"spec": str(spec), "model": model}),
        (
            [str(spec), "--model", str(model), "--placement", str(placement)],
            {"spec": spec, "model": model, "placement": placement},
        ),
    ):
        assert printed(capsys, *asked) == charllm.simulate(**words).to_json() + "\n"


def test_the_files_of_a_run_are_written_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side in ("flags", "keywords"):
        (tmp_path / side).mkdir()
    names = {"out": "run", "perfetto": "trace.json", "timeline": "rank.json", "report": "page.html", "chakra": "chakra"}
    asked = {word: tmp_path / "flags" / name for word, name in names.items()}
    printed(capsys, *flags_of({**RUN, **asked, "rank": 5}))
    files: dict[str, Any] = {word: tmp_path / "keywords" / name for word, name in names.items()}
    result = charllm.simulate(**RUN, **files, rank=5)
    left, right = (
        {str(file.relative_to(side)): file for file in side.rglob("*") if file.is_file()}
        for side in (tmp_path / "flags", tmp_path / "keywords")
    )
    assert set(left) == set(right)
    assert {"trace.json", "rank.json", "run/result.json", "run/timeline.parquet"} <= set(left)
    for name in ("trace.json", "rank.json", "run/result.json", "page.html", "chakra/rank-0.json"):
        assert left[name].read_text() == right[name].read_text()
    assert charllm.load(tmp_path / "flags" / "run") == result


def test_a_stored_run_or_a_result_gives_its_spec_again(tmp_path: Path) -> None:
    result = charllm.simulate(**RUN)
    folder = result.save(tmp_path / "run")
    again = charllm.simulate(result, tp=4)
    assert again.spec["parallelism"]["dp"] == 1
    assert again == charllm.simulate(folder, tp=4) == charllm.simulate(str(folder / "result.json"), tp=4)
    assert charllm.simulate(result) == charllm.simulate(spec=result.spec) == result


def test_signatures_types_and_fields_name_the_same_keywords() -> None:
    keywords = set(RunKeywords.__annotations__)
    assert keywords <= set(inspect.signature(charllm.simulate).parameters)
    assert set(FIELDS) | set(SHORT) <= keywords


def test_none_counts_as_not_given() -> None:
    assert build_request(None, dict.fromkeys(RunKeywords.__annotations__)) == {}


@pytest.mark.parametrize(
    ("words", "field", "hint"),
    [
        ({"tpp": 2}, "tpp", "did you mean tp"),
        ({"step": 2}, "step", "did you mean steps"),
        ({"gbs": 8, "global_batch_size": 8}, "gbs", "not both"),
        ({"fsdp": True, "zero": 1}, "fsdp", "zero 3"),
        ({"tp": "two"}, "parallelism.tp", "a whole number"),
        ({"tp": 3}, "parallelism", "a divisor"),
        ({"training.optimiser": "none"}, "training.optimiser", "did you mean optimizer"),
        ({"colour.red": 1}, "colour", "one of"),
        ({"training..x": 1}, "training..x", "dotted"),
        ({"recompute": 3}, "training.recompute", "selective"),
        ({"model": object()}, "model", "a text"),
        ({"set": 5}, "set", "a table"),
        ({"spec": 5}, "spec", "a path"),
        ({"from_": 5}, "from_", "a path"),
        ({"from_": "x.sh", "args": "'"}, "args", "matching quotes"),
        ({"from_": "x.sh", "args": [5]}, "args", "a list of words"),
        ({"from_": "x.sh", "env": {"A": 5}}, "env", "a text for each"),
        ({"from_": "/nowhere.sh"}, "from_", "a readable file"),
        ({"out": 5}, "out", "a path"),
        ({"rank": "x", "timeline": "/tmp/nothing"}, "rank", "a whole number"),
        ({"steps": "many"}, "steps", "a whole number"),
        ({"seconds": float("nan")}, "seconds", "a number"),
        ({"steps": 1, "seconds": 1}, "conditions.steps", "not both"),
        ({"gbs": 10**5000}, "gbs", "digits"),
    ],
)
def test_a_wrong_keyword_names_itself_and_what_is_expected(words: dict[str, Any], field: str, hint: str) -> None:
    with pytest.raises(charllm.SpecError) as caught:
        charllm.simulate(**{**RUN, **words})
    assert caught.value.field == field
    assert hint in caught.value.expected
    assert caught.value.got is caught.value.asked


def test_a_table_inside_itself_is_refused() -> None:
    table: dict[str, Any] = {}
    table["base"] = table
    with pytest.raises(charllm.SpecError, match="deep"):
        charllm.simulate(model=table)


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([-1, 0, 3, 2**31, 10**30]),
    st.floats(),
    st.text(max_size=8),
    st.binary(max_size=4),
    st.lists(st.one_of(st.integers(-2, 9), st.text(max_size=3)), max_size=4),
    st.dictionaries(st.text(max_size=6), st.one_of(st.integers(-2, 9), st.text(max_size=3)), max_size=3),
    st.builds(object),
)
SENSIBLE: dict[str, list[Any]] = {
    **{word: [1, 2, 4] for word in ("tp", "pp", "cp", "vpp", "dp", "zero", "mbs", "shard_size")},
    "gbs": [8, 16],
    "model": ["llama3-8b", MODEL, {**MODEL, **SPARSE}],
    "cluster": ["h200x8", "h100x8", "h200x1"],
    "sp": [True, False],
    "fsdp": [True, False],
    "recompute": ["none", "full", "selective", "full:1"],
    "overlap": ["none", "dp", ["tp", "dp"]],
    "precision": ["bf16", "fp8"],
    "schedule": ["1f1b", "gpipe", "interleaved"],
    "layers_per_stage": ["1,3", [2, 2]],
    "inlet": [20, 45.0],
    "power_cap": [300, 700],
    "ignore_memory": [True, False],
    "training.optimizer": ["none", "adam"],
}
NAMES = [
    *RunKeywords.__annotations__,
    *SENSIBLE,
    "spec",
    "steps",
    "seconds",
    "out",
    "rank",
    "nothing",
    "a.b",
    "model.layers",
]


@st.composite
def keyword_dicts(draw: st.DrawFn) -> dict[str, Any]:
    sensible = draw(
        st.fixed_dictionaries({}, optional={word: st.sampled_from(values) for word, values in SENSIBLE.items()})
    )
    return {**RUN, **sensible, **draw(st.dictionaries(st.sampled_from(NAMES), JUNK, max_size=2))}


EXAMPLES = int(os.environ.get("CHARLLM_RANDOM_KEYWORDS", "150"))


@settings(max_examples=EXAMPLES)
@given(keyword_dicts())
def test_any_keywords_give_a_result_or_a_spec_error(words: dict[str, Any]) -> None:
    if isinstance(words.get("out"), str):
        del words["out"]
    result = _simulated(words)
    if isinstance(result, charllm.SpecError):
        assert result.field
        assert result.expected
        return
    assert all_finite(result.as_table())
    assert result.to_json()
    assert repr(result)


def _simulated(words: dict[str, Any]) -> RunResult | charllm.SpecError:
    try:
        return charllm.simulate(**words)
    except charllm.SpecError as error:
        return error
