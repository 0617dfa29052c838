"""Adapters: what a run becomes for each program, and what of it is measured."""

import shlex
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import charllm
from charllm.api.measurement import build_program
from charllm.catalog.export import lost_fields
from charllm.catalog.resolve import resolve_run
from charllm.cli import main
from charllm.errors import SpecError
from charllm.measure.adapters.programs import ADAPTERS, as_ranks_here
from charllm.measure.adapters.settings import ProgramSettings
from charllm.result.store import load_run
from charllm.spec.flags import read_keywords
from charllm.spec.readers.megatron import read_megatron
from charllm.spec.readers.torchtitan import read_torchtitan

RUN: dict[str, Any] = {"model": "llama3-8b", "cluster": "h100x8", "tp": 2, "gbs": 32}
QUICK: dict[str, Any] = {"telemetry": "none", "idle": 0, "cooldown": 0}
FAKE = """
import os, sys, time
assert os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] == "1" and "--train-iters" in sys.argv
steps, batch = (int(sys.argv[sys.argv.index(flag) + 1]) for flag in ("--train-iters", "--global-batch-size"))
print("  seq_length ...................................... 1024")
for number in range(1, steps + 1):
    time.sleep(0.02)
    print(f" iteration {number:8d}/{steps:8d} | consumed samples: {number * batch:12d} | "
          f"elapsed time per iteration (ms): 20.0 | "
          f"global batch size: {batch:5d} | lm loss: {9 - number / 10:.6E} | loss scale: 1.0 |")
"""
"""Megatron-LM as far as its arguments and its log go."""


def build(adapter: str, *words: str, run: dict[str, Any] = RUN, **more: Any) -> Any:
    settings = read_keywords(ProgramSettings, {"adapter": adapter, **more})
    return build_program(words, Path("/runs/mine"), settings, run=run)


def test_megatron_gets_arguments_that_are_read_back_to_the_same_run() -> None:
    program = build("megatron", "--exit-interval", "5", script="Megatron-LM/pretrain_gpt.py", steps=7)
    reading = read_megatron(f"torchrun {shlex.join(program.command[1:])}", "run.sh")
    run = resolve_run({**RUN_REQUEST, "framework": "megatron"})
    assert lost_fields(run, reading) == {}
    assert not reading.not_understood
    assert not reading.unmodelled
    assert program.command[-2:] == ("--exit-interval", "5")
    assert program.command[program.command.index("--train-iters") + 1] == "7"
    assert (program.log_kind, program.ranks, program.marks) == ("megatron", 8, False)
    assert program.environment == {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    assert "--mock-data" not in build("megatron", "--data-path", "x", script="pretrain_gpt.py").command


RUN_REQUEST: dict[str, Any] = {
    "model": "llama3-8b", "cluster": "h100x8", "parallelism": {"tp": 2}, "training": {"global_batch_size": 32},
}  # fmt: skip


def test_torchtitan_gets_a_file_that_is_read_back_to_the_same_run() -> None:
    program = build("torchtitan")
    ((path, text),) = program.files.items()
    assert path == Path("/runs/mine-program.toml")
    assert program.command[1:4] == ("-m", "torchtitan.train", f"--job.config_file={path}")
    request = {**RUN_REQUEST, "framework": "torchtitan", "parallelism": {"tp": 2, "overlap": ["dp", "pp"]}}
    assert lost_fields(resolve_run(request), read_torchtitan(text, "run.toml")) == {}


@pytest.mark.parametrize(("release", "refused"), [("0.2.2", False), ("0.3.0", True), ("1.0", True), (None, False)])
def test_a_torchtitan_without_job_configs_is_refused_with_its_own_command(
    release: str | None, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if release:
        (tmp_path / f"torchtitan-{release}.dist-info").mkdir()
        (tmp_path / f"torchtitan-{release}.dist-info" / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: torchtitan\nVersion: {release}\n"
        )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    if refused:
        with pytest.raises(SpecError, match=f"torchtitan {release}.*--adapter command -- torchrun"):
            build("torchtitan")
    else:
        assert build("torchtitan").log_kind == "torchtitan"


def test_nemo_gets_settings_over_its_own_file_and_the_reference_trainer_a_spec() -> None:
    program = build("nemo", script="megatron_gpt_pretraining.py")
    assert {"--config-dir=/runs/mine-program", "+charllm=run"} <= set(program.command)
    assert "tensor_model_parallel_size: 2" in program.files[Path("/runs/mine-program/charllm/run.yaml")]
    program = build("reference")
    ((path, text),) = program.files.items()
    assert program.command[2:5] == ("charllm", "train", str(path))
    assert program.marks
    assert resolve_run(tomllib.loads(text)).as_table() == program.spec


def test_several_ranks_on_this_machine_are_started_by_torchrun() -> None:
    command = as_ranks_here(build("megatron", script="pretrain_gpt.py"))
    assert command[1:5] == ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=8")
    assert command[5] == "pretrain_gpt.py"
    assert as_ranks_here(build("command", "sleep", "1")) == ("sleep", "1")


def test_placeholders_of_a_command_are_filled_from_the_run() -> None:
    words = (
        "train",
        "--tp={tp}",
        "{gbs}x{seq}",
        "{training.optimizer}",
        "{steps}",
        '{"json": 1}',
        "${HOME}",
        "{ranks}",
    )
    filled = build("command", *words, steps=9).command
    assert filled == ("train", "--tp=2", "32x8192", "adam", "9", '{"json": 1}', "${HOME}", "{ranks}")
    assert build_program(words, Path("x"), ProgramSettings()).command[1] == "--tp={tp}"
    with pytest.raises(SpecError, match=r"COMMAND: got '\{training.lr\}'"):
        build("command", "{training.lr}")


@pytest.mark.parametrize(
    ("adapter", "more", "field"),
    [
        ("megatron", {"run": {}}, "--adapter"),
        ("megatron", {}, "--script"),
        ("megatron", {"script": "x.py", "steps": 0}, "--steps"),
        ("megatron", {"script": "x.py", "run": {**RUN, "framework": "nemo"}}, "framework"),
        ("command", {}, "COMMAND"),
        ("megatorn", {}, "--adapter"),
        ("command", {"log_kind": "mega"}, "--log-kind"),
        ("command", {"log_pattern": "("}, "--log-pattern"),
    ],
)
def test_a_wrong_request_names_its_flag(adapter: str, more: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as caught:
        build(adapter, **more)
    assert caught.value.field == field


def test_a_run_of_megatron_is_measured_from_its_log(tmp_path: Path) -> None:
    script = tmp_path / "pretrain_gpt.py"
    # Steps long enough for a busy machine to lengthen them by a part only.
    script.write_text(FAKE.replace("0.02", "0.1").replace("20.0", "100.0"))
    asked: dict[str, Any] = {"model": "gpt2", "cluster": "h200x1", "gbs": 8, "steps": 12}
    result = charllm.measure_command(out=tmp_path / "run", adapter="megatron", script=str(script), **asked, **QUICK)
    assert result.provenance["measurement"]["exit_code"] == 0
    assert result.metrics.step_time_s == pytest.approx(0.1, rel=0.9)
    assert result.metrics["tokens_per_s"] == pytest.approx(8 * 1024 / result.metrics["step_time_s"])
    assert result.spec["model"]["name"] == "gpt2"
    assert result.metrics.mfu is not None
    assert charllm.load(tmp_path / "run") == result


def test_the_command_line_measures_a_command_with_a_pattern(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    talk = "import time\nfor n in range(4): print(f'tick {n} of {n * 50} ms'); time.sleep(0.05)"
    words = ["measure", "--telemetry", "none", "--idle", "0", "--cooldown", "0", "--out", str(tmp_path / "run")]
    words += ["--log-pattern", r"tick (?P<number>\d+)", "--", sys.executable, "-c", talk]
    assert main(words) == 0
    assert "s per step" in capsys.readouterr().err


def test_every_adapter_says_what_it_is() -> None:
    assert all(adapter.about for adapter in ADAPTERS.values())


def test_nothing_is_run_where_preflight_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    words = ["measure", "--preflight", "--telemetry", "none", "--idle", "0", "--cooldown", "0", "--out", str(out)]
    assert (
        main([*words, "--model", "llama3-70b", "--cluster", "charllm-ppt-h200", "--tp", "8", "--", "touch", "x"]) == 1
    )
    assert "preflight failed, nothing was run: nodes: 1, expected 4" in capsys.readouterr().err
    assert not out.exists()
    assert main([*words, "--", "true"]) == 0


def test_a_study_is_measured_with_a_program(tmp_path: Path) -> None:
    script = tmp_path / "pretrain_gpt.py"
    script.write_text(FAKE)
    found = charllm.sweep(
        axes={"gbs": [4, 8]},
        base={"model": "gpt2", "cluster": "h200x1"},
        measure=True,
        adapter="megatron",
        script=str(script),
        steps=6,
        telemetry="none",
        idle=0,
        cooldown=0,
        out=tmp_path / "study",
    )
    assert [outcome.exit_code for outcome in found.outcomes] == [0, 0]
    tokens = [load_run(place).metrics["tokens_per_s"] for place in sorted((tmp_path / "study" / "runs").glob("0*"))]
    assert tokens[1] > 1.2 * tokens[0]
