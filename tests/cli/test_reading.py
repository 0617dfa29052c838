"""What every command prints can be read: no line wider than the terminal, no colour in a pipe, tables as CSV."""

import csv
import gzip
import io
import json
import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

from charllm.catalog.resolve import resolve_run
from charllm.cli import COMMANDS, main
from charllm.cli.parser import build_parser
from charllm.cli.spec_flags import given_keywords
from charllm.evaluate.h200.tables import READINGS
from tests.measure.convert import texts

ROOT = Path(__file__).parent.parent.parent
OPS = READINGS / "ops.csv"
GPT3 = ["simulate", "--model", "gpt3-175b", "--cluster", "charllm-ppt-h200"]
COMMAND_LINES = {
    "help": ["--help"],
    "fits": [*GPT3, "--tp", "8", "--pp", "4", "--gbs", "64"],
    "explained": ["simulate", "--model", "llama3-8b", "--cluster", "charllm-ppt-h200", "--fsdp", "--gbs", "64"],
    "deep": [*GPT3, "--pp", "32", "--ignore-memory", "--gbs", "64", "--framework", "nemo"],
    "does not fit": [*GPT3, "--pp", "32"],
    "experts, mixed, braked": [
        "simulate", "--model", "mixtral-8x7b", "--cluster", "charllm-ppt-h200", "--ep", "8", "--inlet", "[20,25,30,35]",
        "--set", 'cluster.mixed=[{node="hgx-h100",nodes=[3]}]', "--set", "conditions.braked_nodes=[1]",
        "--set", "conditions.weak_gpus=[2,9]", "--set", "conditions.weak_power_fraction=[1.1,1.3]",
    ],
    "one GPU": ["simulate", "--model", "gpt2", "--cluster", "h200x1", "--gbs", "8", "--framework", "pytorch-eager"],
    "catalog": ["catalog"],
    **{f"catalog {kind}": ["catalog", kind] for kind in ("models", "gpus", "nodes", "fabrics", "clusters")},
    "catalog frameworks": ["catalog", "frameworks"],
    "catalog studies": ["catalog", "studies"],
    "one model": ["catalog", "models", "deepseek-v3"],
    "one GPU entry": ["catalog", "gpus", "h200"],
    "one node": ["catalog", "nodes", "hgx-h200"],
    "one study": ["catalog", "studies", "charllm-ppt-lora-h200"],
    "ops": ["validate", "ops", str(OPS), "--gpu", "h200"],
}  # fmt: skip


def printed(capsys: pytest.CaptureFixture[str], words: list[str]) -> str:
    main(words)
    return capsys.readouterr().out


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("name", COMMAND_LINES)
def test_no_line_is_wider_than_the_terminal(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, COMMAND_LINES[name])
    assert text
    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert "\x1b" not in text


@pytest.mark.usefixtures("narrow")
def test_comparisons_and_studies_fit_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ["simulate", "--model", "llama3-8b", "--cluster", "h200x8", "--tp", "2", "--gbs", "16"]
    assert main([*run, "--out", str(tmp_path / "a")]) == 0
    assert main([*run, "--mbs", "2", "--power-cap", "500", "--out", str(tmp_path / "b")]) == 0
    capsys.readouterr()
    compared = printed(capsys, ["compare", str(tmp_path / "a"), str(tmp_path / "b")])
    assert re.search(r"conditions.power_cap_w +not set +500.0", compared)
    assert re.search(r"memory_peak_bytes +[\d.]+ GiB +[\d.]+ GiB +1\.\d{3}", compared)
    assert "breakdown_s.pp_exposed" not in compared
    for words in (["compare", str(tmp_path / "a"), str(tmp_path / "b")], ["sweep", str(ROOT / "examples/study.toml")]):
        text = printed(capsys, words)
        assert [line for line in text.splitlines() if len(line) > 80] == []
        assert "\x1b" not in text
    rows = list(
        csv.DictReader(io.StringIO(printed(capsys, ["compare", *map(str, (tmp_path / "a", tmp_path / "b")), "--csv"])))
    )
    (step,) = [row for row in rows if row["metric"] == "step_time_s"]
    assert float(step["second"]) / float(step["first"]) == pytest.approx(float(step["ratio"]))


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_and_has_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert text.splitlines()[0].startswith(f"usage: charllm {command}")
    assert text.split("examples:\n")[1].lstrip().startswith("charllm ")


def test_a_row_for_each_gpu_has_what_json_has(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "--model", "llama3-8b", "--cluster", "h200x8", "--tp", "2", "--gbs", "16"]
    rows = list(csv.DictReader(io.StringIO(printed(capsys, [*words, "--csv"]))))
    gpus = json.loads(printed(capsys, [*words, "--json"]))["gpus"]
    assert [{name: str(value) for name, value in gpu.items()} for gpu in gpus] == rows


def test_the_catalog_and_scores_are_tables_too(capsys: pytest.CaptureFixture[str]) -> None:
    gpus = {row["name"]: row for row in csv.DictReader(io.StringIO(printed(capsys, ["catalog", "gpus", "--csv"])))}
    assert float(gpus["h200"]["power_cap_w"]) == 700
    figures = list(csv.DictReader(io.StringIO(printed(capsys, ["catalog", "gpus", "h200", "--csv"]))))
    assert {"figure", "value", "source"} == set(figures[0])
    ops = list(csv.DictReader(io.StringIO(printed(capsys, ["validate", "ops", str(OPS), "--gpu", "h200", "--csv"]))))
    assert len(ops) > 100


def on_a_terminal(*words: str, **environment: str) -> str:
    """Run a command whose output is a terminal, and return what it wrote."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "charllm", *words]
    base = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR")}
    with subprocess.Popen(command, stdout=slave, stderr=subprocess.DEVNULL, env={**base, **environment}):
        os.close(slave)
        text = b""
        try:
            while chunk := os.read(master, 65536):
                text += chunk
        except OSError:
            # The other end of a terminal closes with an error.
            pass
    os.close(master)
    return text.decode()


def test_colour_is_for_terminals_and_can_be_turned_off() -> None:
    words = ("catalog", "gpus")
    coloured = on_a_terminal(*words, COLUMNS="100")
    plain = on_a_terminal(*words, COLUMNS="100", NO_COLOR="1")
    assert "\x1b[1m" in coloured
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[\d+m", "", coloured) == plain


SLOW = (
    "charllm validate known", "charllm validate results", "charllm validate all", "charllm calibrate runs",
    "charllm completion", "charllm serve", "charllm reproduce charllm-ppt --out",
    "charllm reproduce charllm-ppt --full",
)  # fmt: skip
"""Run by tests of their own: hundreds of published rows, a long fit, files of a home."""


def needs_a_machine(line: str) -> bool:
    starts = (
        "charllm apply", "charllm bench", "charllm train", "charllm measure --out", "charllm measure --repeats",
        "charllm measure --adapter", "charllm measure --launcher", "charllm smoke",
    )  # fmt: skip
    played = line.startswith("charllm emulate") and not line.endswith(("--predict", "--print-timeline"))
    looks = line.startswith("charllm preflight") and "--telemetry none" not in line
    elsewhere = any(words in line for words in ("charllm train", "--runner slurm", "--apply"))
    return played or looks or elsewhere or line.startswith(starts)


def few_ops() -> str:
    """Return a table of ops that is soon fitted."""
    lines = OPS.read_text().splitlines(keepends=True)
    return lines[0] + "".join(
        [line for line in lines[1:] if line.split(",")[1] in ("gemm", "copy", "add", "gelu")][:28]
    )


def few_degrees() -> str:
    """Return a recording of power and temperature: load, then rest, three times."""
    watts = [600.0 if second // 120 % 2 else 80.0 for second in range(720)]
    degrees, sink = [], 30.0
    for each in watts:
        sink += (25.0 + 0.05 * each - sink) / 40
        degrees.append(sink + 0.03 * each)
    rows = zip(range(720), watts, degrees, strict=True)
    return "t_s,power_w,temperature_c\n" + "".join(f"{second},{each},{degree:.2f}\n" for second, each, degree in rows)


def few_collectives() -> str:
    """Return a table of collectives inside a node."""
    rows = [f"all_reduce,{1 << power},8,{1e-5 + (1 << power) / 2e11}" for power in range(10, 28, 2)]
    return "collective,message_bytes,ranks,seconds_s\n" + "".join(f"{row}\n" for row in rows)


def one_rank() -> str:
    """Return the spec of a run that sends nothing."""
    return json.dumps(resolve_run({"model": "gpt2", "cluster": "h200x1", "framework": "reference"}).as_table())


def recorded(path: Path) -> str:
    """Return a file of a recorded run as text; readers take a trace packed or not, whatever its name."""
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()


FILES: dict[str, Callable[[], str]] = {
    **{f"runs/profiled/{path.name}": partial(recorded, path) for path in (ROOT / "examples/h200-moe").iterdir()},
    "runs/traced/rank-0.json": lambda: '{"schema": "1.1.1-chakra.0.0.4", "nodes": []}',
    "runs/traced/spec.json": one_rank,
    "traces/rank-0.json": lambda: gzip.decompress((ROOT / "examples/traces/rank-0.json.gz").read_bytes()).decode(),
    "my_study.toml": (ROOT / "examples" / "study.toml").read_text,
    "runs/ops/ops.csv": few_ops,
    "my_gpu.toml": lambda: 'base = "h200"\n',
    "heat.csv": few_degrees,
    "trace.csv": few_degrees,
    "gpu.csv": texts.nvidia_smi,
    "train.log": texts.megatron_log,
    "power.json": lambda: json.dumps(texts.query_range("DCGM_FI_DEV_POWER_USAGE", texts.power_w)),
    "temperature.json": lambda: json.dumps(texts.query_range("DCGM_FI_DEV_GPU_TEMP", texts.temperature_c)),
    "runs/nccl/nccl.csv": few_collectives,
    "runs/mine/job.json": lambda: '{"ended": true}',
}
"""Files that the examples name."""


def examples() -> list[tuple[str, list[str]]]:
    """List the examples of each command that run without a GPU or cluster, in order."""
    found = []
    for command in COMMANDS:
        listed = import_module(f"charllm.cli.{command}").EXAMPLES
        chosen = [example for example in listed if not (needs_a_machine(example) or example.startswith(SLOW))]
        if chosen:
            found.append((command, chosen))
    return found


@pytest.mark.parametrize(("command", "lines"), examples(), ids=[name for name, _ in examples()])
def test_examples_run_as_they_are_written(
    command: str, lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, write in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(write())
    for line in lines:
        assert main(shlex.split(line)[1:]) == 0, line
    assert capfd.readouterr().out or command == "measure"


def test_every_example_can_be_parsed() -> None:
    for command in COMMANDS:
        for line in import_module(f"charllm.cli.{command}").EXAMPLES:
            words = shlex.split(line.split(" >> ")[0].split(" > ")[0])
            words = words[words.index("charllm") :] if words[0] == "torchrun" else words
            assert words[0] == "charllm"
            build_parser(words[1]).parse_args(words[2:])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sweep"], "charllm sweep: STUDY: got nothing; expected a value"),
        (["simulate", "--seconds", "soon"], "--seconds: got 'soon'; expected a number"),
        (["simulate", "--rank", "1.5"], "--rank: got '1.5'; expected a whole number"),
        (["catalog", "gpu"], "KIND: got 'gpu'; expected one of"),
        (["simulate", "--tp"], "--tp: got nothing; expected a value"),
        (["simulate", "--json", "--csv"], "--csv: got '--json'; expected --csv alone, not allowed with --json"),
        (["simulate", "a", "b"], "charllm simulate: got 'b'; expected one of"),
    ],
)
def test_wrong_words_are_named_with_what_is_expected(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("command", ["measure", "preflight", "smoke"])
def test_a_flag_that_says_no_or_zero_is_given_all_the_same(command: str) -> None:
    words = [] if command != "measure" else ["--", "true"]
    arguments = build_parser(command).parse_args(["--no-sp", "--zero", "0", *words])
    assert given_keywords(arguments) == {"sp": False, "zero": 0}
