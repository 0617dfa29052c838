"""The program as a user meets it: exit codes, stdout and stderr."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from charllm import __version__
from charllm.cli import COMMANDS, main
from charllm.evaluate.memory import PUBLISHED
from tests.program import charllm

SIMULATE = [
    "simulate",
    "--model",
    "gpt3-175b",
    "--cluster",
    "charllm-ppt-h200",
    "--tp",
    "8",
    "--pp",
    "4",
    "--gbs",
    "128",
]


def test_the_issue_example_prints_the_whole_schema() -> None:
    done = charllm(*SIMULATE, "--mbs", "1", "--seq", "2048", "--json")
    assert done.returncode == 0
    result = json.loads(done.stdout)
    keys = ["origin", "schema_version", "spec", "metrics", "gpus", "nodes", "provenance", "warnings"]
    assert list(result) == keys
    assert result["metrics"]["fits"] is True


def test_data_goes_to_stdout_and_talk_to_stderr() -> None:
    done = charllm(*SIMULATE, "--overlap", "dp")
    assert "Step time" in done.stdout
    assert "charllm: parallelism.overlap: dp has no effect" in done.stderr
    assert "has no effect" not in done.stdout


def test_a_run_that_does_not_fit_ends_in_3_with_its_result() -> None:
    words = ["simulate", "--model", "gpt3-175b", "--cluster", "charllm-ppt-h200", "--pp", "32", "--json"]
    done = charllm(*words)
    assert done.returncode == 3
    metrics = json.loads(done.stdout)["metrics"]
    assert (metrics["fits"], metrics["step_time_s"]) == (False, None)
    assert metrics["memory_peak_bytes"] > 0
    assert "it fits (probability" in done.stderr
    told = charllm(*words[:-1])
    assert "only memory is predicted, because the run does not fit (see --ignore-memory)" in " ".join(
        told.stdout.split()
    )
    assert "step_time_s" not in told.stdout + told.stderr
    assert charllm(*words, "--ignore-memory").returncode == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["simulat"], "did you mean simulate"),
        ([*SIMULATE, "--tpp", "3"], "did you mean --"),
        ([*SIMULATE, "--dp", "2"], "32 ranks, one for each GPU"),
        ([*SIMULATE, "--precision", "int3"], "training.precision"),
        ([*SIMULATE, "--zero", "1", "--fsdp"], "fsdp alone"),
        ([*SIMULATE, "--set", "cluster.nodse=3"], "did you mean node or nodes"),
        ([*SIMULATE, "--steps", "3", "--seconds", "2"], "steps or seconds, not both"),
        ([*SIMULATE, "--recompute", "none:4"], "training.recompute"),
        (["simulate", "nowhere.toml"], "No such file"),
        (["simulate"], "model: got nothing"),
        (["compare", "a", "b"], "RUN"),
        (["sweep", "nothing"], "STUDY"),
        (["catalog", "gpus", "h2000"], "did you mean h200"),
        (["validate", "results", "none.csv"], "No such file"),
    ],
)
def test_wrong_requests_end_in_2_with_one_message(words: list[str], message: str) -> None:
    done = charllm(*words)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_flags_toml_and_set_give_the_same_spec(tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(
        'model = "gpt3-175b"\ncluster = "charllm-ppt-h200"\n[parallelism]\ntp = 8\npp = 4\n'
        "layers_per_stage = [23, 25, 25, 23]\n"
        '[training]\nglobal_batch_size = 128\nrecompute = "full"\nrecompute_layers = 2\n'
        "[conditions]\nclock_cap_ghz = 1.5\n"
    )
    flags = ["--recompute", "full:2", "--clock-cap", "1500", "--layers-per-stage", "23,25x2,23"]
    settings = [
        "model=gpt3-175b", "cluster=charllm-ppt-h200", "parallelism.tp=8", "parallelism.pp=4",
        "training.global_batch_size=128", "training.recompute=full", "training.recompute_layers=2",
        "conditions.clock_cap_mhz=1500", "parallelism.layers_per_stage=[23,25,25,23]",
    ]  # fmt: skip
    by_set = [word for setting in settings for word in ("--set", setting)]
    outputs = [
        json.loads(charllm(*words, "--json").stdout)["spec"]
        for words in (["simulate", str(spec)], [*SIMULATE, *flags], ["simulate", *by_set])
    ]
    assert outputs[0] == outputs[1] == outputs[2]


def test_flags_lie_over_the_file(tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text('model = "llama3-8b"\ncluster = "h200x8"\n[training]\nrecompute = "full"\nrecompute_layers = 2\n')
    done = charllm("simulate", str(spec), "--recompute", "none", "--set", "model.layers=16", "--json")
    result = json.loads(done.stdout)["spec"]
    assert (result["training"]["recompute"], result["model"]["layers"]) == ("none", 16)


def test_a_foreign_script_is_a_run(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(
        "#!/bin/bash\nTP=4\nARGS=(--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048\n"
        "  --max-position-embeddings 2048 --tensor-model-parallel-size ${TP} --micro-batch-size 1\n"
        "  --global-batch-size 64\n"
        "  --vocab-size 50257 --bf16 --sequence-parallel --use-distributed-optimizer)\n"
        "torchrun pretrain_gpt.py ${ARGS[@]}\n"
    )
    done = charllm("simulate", "--from", str(script), "--cluster", "h200x8", "--json")
    assert done.returncode == 0
    spec = json.loads(done.stdout)["spec"]
    assert (spec["parallelism"]["tp"], spec["parallelism"]["dp"], spec["model"]["layers"]) == (4, 2, 32)


def test_a_stored_run_can_be_compared_and_run_again(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    assert charllm(*SIMULATE, "--out", str(first)).returncode == 0
    assert charllm("simulate", str(first), "--tp", "4", "--pp", "8", "--out", str(second)).returncode == 0
    table = json.loads(charllm("compare", str(first), str(second), "--json").stdout)
    assert table["settings"]["parallelism.tp"] == [8, 4]
    assert "second/first" in charllm("compare", str(first), str(second)).stdout
    assert charllm(*SIMULATE, "--out", str(first)).returncode == 2


def test_a_sweep_prints_its_cases(tmp_path: Path) -> None:
    done = charllm("sweep", "charllm-ppt-parallelism", "--workers", "2", "--out", str(tmp_path / "study"))
    assert done.returncode == 0
    assert sum(line.startswith("gpt3-175b") for line in done.stdout.splitlines()) == 5
    assert "15 cases, 0 rejected" in done.stderr
    lines = charllm("sweep", "charllm-ppt-parallelism", "--json").stdout.splitlines()
    assert [json.loads(line)["exit_code"] for line in lines] == [0] * 15


def test_the_catalog_lists_kinds_entries_and_sources() -> None:
    assert "models" in charllm("catalog").stdout
    assert "gpt3-175b" in charllm("catalog", "models").stdout
    assert "datasheet:" in charllm("catalog", "gpus", "h200").stdout
    entry = json.loads(charllm("catalog", "gpus", "h200", "--json").stdout)
    assert entry["sources"]["power_cap_w"].startswith("datasheet")
    study = json.loads(charllm("catalog", "studies", "charllm-ppt-lora-h200", "--json").stdout)
    assert len(study["cases"]) == 84
    assert study["corrections"]


def test_tables_inside_an_entry_are_listed_with_their_sources() -> None:
    lines = charllm("catalog", "gpus", "h200").stdout.splitlines()
    assert any(line.startswith("heat.die_resistance_k_per_w") and "measured" in line for line in lines)


def test_memory_is_validated_against_a_table(tmp_path: Path) -> None:
    table = tmp_path / "memory.csv"
    lines = Path(PUBLISHED).read_text(encoding="utf-8").splitlines(keepends=True)
    table.write_text("".join([lines[0], *(line for line in lines if line.startswith(("AT-", "TT-", "FP-00")))]))
    memory = json.loads(charllm("validate", "results", str(table), "--open", "--json").stdout)["memory"]
    assert set(memory["by_meaning"]) == {"allocated", "reserved", "device"}
    assert memory["median_abs_error_fraction"] < 0.03
    text = charllm("validate", "results", str(table), "--open").stdout
    assert "Peak memory" in text
    assert "allocated" in text


def test_the_shipped_table_is_validated_without_a_file_and_doubtful_rows_apart() -> None:
    scores = json.loads(charllm("validate", "results", "--doubtful", "--open", "--json").stdout)
    assert scores["scored"] >= 0.95 * 948 - scores["doubtful"]["scored"]
    assert all(row["reason"] for row in scores["doubtful"]["rows"])
    assert not {row["id"] for row in scores["doubtful"]["rows"]} & {row["id"] for row in scores["predictions"]}
    assert set(scores["by_host"]) == {"tuned", "untuned"}
    assert "full attention" in scores["corrections"]["MPF"]


def test_only_results_ship_a_table() -> None:
    done = charllm("validate", "ops", "--gpu", "h200")
    assert (done.returncode, "FILE" in done.stderr) == (2, True)


def test_help_and_version_are_quick_to_find(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    overview = capsys.readouterr().out
    assert all(name in overview for name in COMMANDS)
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == __version__


def test_help_imports_nothing_heavy() -> None:
    heavy = "[name for name in ('numpy', 'rich', 'duckdb') if name in sys.modules]"
    code = f"import sys, charllm.cli; charllm.cli.main(['--help']); print({heavy})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_explains_itself(command: str) -> None:
    done = charllm(command, "--help")
    assert done.returncode == 0
    assert "usage: charllm" in done.stdout


def test_a_reader_that_leaves_early_is_no_error() -> None:
    command = f"{sys.executable} -m charllm catalog models | head -1"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
