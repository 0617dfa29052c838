"""The trial of a machine: every part runs, its log is kept, and the summary says what passed."""

import json
from pathlib import Path

import pytest

import charllm
from charllm.api.smoke import cluster_at_hand
from charllm.catalog.resolve import resolve_run
from charllm.cli import COMMANDS
from charllm.errors import SpecError
from charllm.measure.smoke import LOGS, Trial, judge_training, list_steps
from charllm.report.smoke import render_smoke
from charllm.result.store import load_run
from tests.measure.replays import make_replay

ALWAYS = {"preflight", "train", "measure", "simulate", "compare"}


def test_everything_is_tried_and_stored_on_a_cpu(tmp_path: Path) -> None:
    told: list[str] = []
    summary = charllm.smoke(device="cpu", telemetry="none", quick=True, out=tmp_path / "smoke", tell=told.append)
    states = {step["name"]: step["state"] for step in summary["steps"]}
    expected = ALWAYS | ({"doctor"} & set(COMMANDS))
    assert {name for name, state in states.items() if state == "pass"} >= expected, summary["steps"]
    assert json.loads((tmp_path / "smoke" / "smoke.json").read_text()) == summary
    assert {path.stem for path in (tmp_path / "smoke" / LOGS).iterdir()} == {name.replace(" ", "-") for name in states}
    assert "2 ranks over gloo" in (tmp_path / "smoke" / LOGS / "preflight.log").read_text()
    compared = {row["metric"]: row for row in summary["compared"]}
    assert compared["step_time_s"]["measured"] > 0 < compared["step_time_s"]["predicted"]
    assert load_run(tmp_path / "smoke" / "measured").spec["model"]["name"] == "tiny"
    assert told[0] == "preflight ..."
    shown = render_smoke(summary)
    assert "Predicted and measured" in shown


def test_on_several_nodes_the_parts_go_through_slurm() -> None:
    run = resolve_run({"model": "llama3-70b", "cluster": "charllm-ppt-h200", "parallelism": {"tp": 4, "pp": 4}})
    steps = {step.name: step.command for step in list_steps(Trial(run=run, folder=Path("/runs/smoke")))}
    assert steps["train"][:3] == ("srun", "--nodes=4", "--ntasks-per-node=1")
    assert "--nproc-per-node=8" in steps["bench nccl"]
    words = steps["measure"]
    assert words[words.index("--launcher") + 1] == "slurm"
    assert words[words.index("--ranks-per-node") + 1] == "8"


def test_a_training_without_a_loss_or_with_nan_fails() -> None:
    assert judge_training("hello\n") == "the trainer reported no loss"
    assert judge_training('{"number": 1, "loss": NaN}\n') == "the loss is nan"
    assert judge_training('{"number": 1, "loss": 3.5}\n') == ""


def test_the_cluster_is_that_of_the_gpus_found(tmp_path: Path) -> None:
    replay = make_replay(tmp_path / "loaded")
    assert cluster_at_hand(replay, 1) == "h200x1"
    with pytest.raises(SpecError, match="the catalog has no 3 nodes of 1 h200"):
        cluster_at_hand(replay, 3)
    with pytest.raises(SpecError, match="this machine has no GPU"):
        cluster_at_hand("none", 1)
    with pytest.raises(SpecError, match="device"):
        charllm.smoke(device="tpu")
