"""Exports: read back to the same run, scripts that start ranks where they belong, and what is left out."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import charllm
from charllm.api.keywords import build_request
from charllm.catalog.export import lost_fields
from charllm.catalog.resolve import resolve_run
from charllm.cli import main
from charllm.errors import SpecError
from charllm.spec.readers import read_foreign
from charllm.spec.run import RunSpec

RUN: dict[str, Any] = {"model": "llama3-8b", "cluster": "charllm-ppt-h200", "tp": 2, "pp": 2, "gbs": 32}
NO_SWITCHES = {"framework.in_switch_reduction": False}
SUFFIXES = {"megatron": ".sh", "nemo": ".yaml", "torchtitan": ".toml", "sbatch": ".sbatch"}
STUB = """
import os, pathlib, sys, time
rank = os.environ["RANK"]
if "--fail" in sys.argv:
    sys.exit(7) if rank == "3" else time.sleep(600)
line = " ".join([rank, os.environ["LOCAL_RANK"], os.environ["WORLD_SIZE"], os.environ["CUDA_DEVICE_MAX_CONNECTIONS"]])
pathlib.Path(sys.argv[0]).with_name(rank).write_text(line)
"""
"""Megatron-LM as far as its environment goes."""


def shuffled(path: Path, gpus: int) -> Path:
    order = list(range(gpus))
    random.Random(1).shuffle(order)
    path.write_text(json.dumps(order))
    return path


def resolved(**words: Any) -> RunSpec:
    return resolve_run(build_request(None, words))


@pytest.mark.parametrize(
    ("to", "framework", "scripted"),
    [
        ("megatron", "megatron", True),
        ("nemo", "nemo", False),
        ("torchtitan", "torchtitan", False),
        ("sbatch", "megatron", True),
        ("sbatch", "nemo", True),
        ("sbatch", "torchtitan", True),
    ],
)
def test_an_export_is_read_back_with_the_placement_where_a_script_starts_the_ranks(
    to: str, framework: str, scripted: bool, tmp_path: Path
) -> None:
    placed = shuffled(tmp_path / "gpus.json", 32)
    words = {**RUN, "framework": framework, "overlap": "dp,pp", "placement": placed, **NO_SWITCHES}
    file = tmp_path / f"run{SUFFIXES[to]}"
    found = charllm.export(to=to, out=file, **words)
    assert file.read_text() == found.text == str(found)
    assert bool(found.warnings) is not scripted
    asked = resolved(**words)
    assert set(lost_fields(asked, read_foreign(str(file)))) == (
        set() if scripted else {"framework.in_switch_reduction"}
    )
    back = resolved(from_=file, cluster=RUN["cluster"])
    assert back.conditions.gpu_of_rank == (asked.conditions.gpu_of_rank if scripted else ())


def test_a_stored_run_and_its_export_are_simulated_alike(tmp_path: Path) -> None:
    words = {**RUN, "layers_per_stage": "15,17", "power_cap": 500}
    stored = charllm.simulate(**words)
    found = charllm.export(stored.save(tmp_path / "run"), to="sbatch", out=tmp_path / "job.sbatch")
    assert found.warnings == (
        "not in the export: conditions.power_cap_w 500.0: `nvidia-smi --power-limit=500` (or rocm-smi) on every node",
    )
    again = charllm.simulate(from_=tmp_path / "job.sbatch", cluster="charllm-ppt-h200", power_cap=500)
    assert again.metrics == stored.metrics


def test_files_of_a_job_go_to_one_folder_whatever_the_model_is_called() -> None:
    named = {"base": "llama3-8b", "name": "a/b; c"}
    text = charllm.export(to="sbatch", **{**RUN, "model": named}).text
    assert "#SBATCH --job-name=charllm-a-b-c\n" in text
    assert "mkdir -p charllm-a-b-c\n" in text


def start(folder: Path, *more: str) -> int:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run(["bash", str(folder / "run.sh"), *more], env=environment, check=False, timeout=300).returncode


def test_a_rank_map_starts_each_rank_on_its_gpu_and_one_that_fails_ends_the_others(tmp_path: Path) -> None:
    placed = shuffled(tmp_path / "gpus.json", 8)
    (tmp_path / "ranks").mkdir()
    stub = tmp_path / "ranks" / "stub.py"
    stub.write_text(STUB)
    words: dict[str, Any] = {"model": "llama3-8b", "cluster": "h100x8", "tp": 2, "placement": placed}
    charllm.export(to="megatron", out=tmp_path / "run.sh", script=str(stub), **words)
    assert start(tmp_path) == 0
    found = [(stub.parent / str(rank)).read_text() for rank in range(8)]
    assert found == [f"{rank} {gpu} 8 1" for rank, gpu in enumerate(json.loads(placed.read_text()))]
    assert start(tmp_path, "--fail") == 7


def test_a_measured_job_is_recorded_and_any_job_is_valid_shell(tmp_path: Path) -> None:
    found = charllm.export(to="sbatch", measure=True, script="Megatron-LM/pretrain_gpt.py", steps=50, **RUN)
    assert "#SBATCH --nodes=4\n" in found.text
    assert "charllm measure --launcher slurm --ranks-per-node 8 --out charllm-llama3-8b/run-$SLURM_JOB_ID" in found.text
    assert "--train-iters 50" in found.text
    job = tmp_path / "job.sbatch"
    job.write_text(found.text)
    assert subprocess.run(["bash", "-n", str(job)], check=False).returncode == 0
    assert charllm.export(to="sbatch", **{**RUN, "framework": "torchtitan", "overlap": "dp"}).program == "torchtitan"


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ({"to": "megatorn"}, "to"),
        ({"to": "nemo", "measure": True}, "measure"),
        ({"to": "sbatch", "framework": "deepspeed"}, "framework"),
        ({"to": "nemo", "framework": "megatron"}, "framework"),
        ({"to": "megatron", "lora": 8}, "training.lora_rank"),
        ({"to": "megatron", "out": "/nowhere/run.sh"}, "out"),
        ({"to": "megatron", "steps": 0}, "steps"),
    ],
)
def test_what_cannot_be_exported_names_its_field(words: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as caught:
        charllm.export(**RUN, **words)
    assert caught.value.field == field


def test_the_command_prints_the_text_and_says_what_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--model", "llama3-8b", "--cluster", "h100x8", "--tp", "2", "--power-cap", "500"]
    assert main(["export", "--to", "torchtitan", *flags]) == 0
    said = capsys.readouterr()
    assert "tensor_parallel_degree = 2" in said.out
    assert "#   conditions.power_cap_w 500.0" in said.out
    assert "charllm: not in the export: conditions.power_cap_w 500.0" in said.err
    assert main(["export", "--to", "megatron", *flags, "--lora", "8"]) == 2
