"""`charllm calibrate` from files to a file, and what it refuses."""

import json
from pathlib import Path

import pytest

from charllm.calibrate.write import write_file, written
from charllm.catalog.resolve import resolve_cluster
from charllm.cli import main
from charllm.errors import SpecError
from charllm.evaluate.h200.tables import READINGS
from charllm.evaluate.ops import bench_machine

ROOT = Path(__file__).parents[2]


@pytest.fixture
def some_ops(tmp_path: Path) -> Path:
    """Products and streams, no attention."""
    lines = (READINGS / "ops.csv").read_text().splitlines(keepends=True)
    kept = [line for line in lines[1:] if line.split(",")[1] in ("gemm", "copy", "add", "gelu")]
    path = tmp_path / "ops.csv"
    path.write_text(lines[0] + "".join(kept[:22]))
    return path


def test_the_file_written_is_a_gpu_for_every_command(
    some_ops: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mine.toml"
    assert main(["calibrate", str(some_ops), "-o", str(out), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ops"]["in_sample"]["seconds"]["median_abs_error_fraction"] < 0.02
    assert report["ops"]["held_out"]["watts"]["scored"] > 15
    vague = {row["parameter"]: row["run"] for row in report["not_identified"]}
    assert "--only attention" in vague["kernels.attention_fraction"]
    text = out.read_text()
    assert "measured: charllm calibrate ops.csv" in text
    assert "attention_fraction =" not in text

    gpu = bench_machine(str(out)).gpu
    assert gpu.kernels.matrix_fraction != bench_machine("h200").gpu.kernels.matrix_fraction
    assert gpu.kernels.attention_fraction == bench_machine("h200").gpu.kernels.attention_fraction
    assert resolve_cluster({"base": "h200x8", "node": {"base": "hgx-h200", "gpu": str(out)}}).gpu.power == gpu.power
    assert main(["validate", "ops", str(some_ops), "--gpu", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["overall"]["seconds"]["median_abs_error_fraction"] < 0.02


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("kind,name,dtype\n", "columns kind, name, dtype, window_s"),
        ("kind,name,a,b,c,dtype,temp_start_c,window_s\ngemm,one,512,512,512,bf16,40,1\n", "power.flop_j"),
        (
            "t_s,power_w,temperature_c\n" + "".join(f"{t},{100 + t % 2 * 500},40\n" for t in range(12)),
            "heat.sink_time_s",
        ),
    ],
    ids=["missing columns", "too few ops", "too short"],
)
def test_what_tells_too_little_ends_with_2_and_writes_nothing(
    content: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "run.csv", tmp_path / "out.toml"
    path.write_text(content)
    assert main(["calibrate", str(path), "-o", str(out)]) == 2
    assert message in capsys.readouterr().err
    assert sorted(each.name for each in tmp_path.iterdir()) == ["run.csv"]


def test_a_folder_without_a_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", str(tmp_path), "-o", str(tmp_path / "out.toml")]) == 2
    assert "ops.csv" in capsys.readouterr().err


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="a folder that exists"):
        write_file(str(tmp_path / "nowhere" / "gpu.toml"), "text")
    write_file(str(tmp_path / "gpu.toml"), "text")
    assert [each.name for each in tmp_path.iterdir()] == ["gpu.toml"]


def test_figures_are_written_in_units_people_read() -> None:
    assert written("flop_j", 0.7337e-12, 0.019) == ("flop_pj", "0.7337")
    assert written("voltage_slope_per_hz", 0.4427e-9, 0.03) == ("voltage_slope_per_ghz", "0.4427")
    assert written("gap_s", 4.137e-6, 0.04) == ("gap_us", "4.137")
    assert written("die_time_s", 0.1771, 0.15) == ("die_time_s", "0.177")


def test_a_traced_run_gives_the_speed_of_its_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "host.toml"
    assert main(["calibrate", str(ROOT / "examples" / "h200-moe"), "-o", str(out), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    (row,) = report["runs"]
    assert row["launches"] == pytest.approx(row["assumed_launches"], rel=0.01)
    assert row["launch_s"] > row["assumed_launch_s"]
    host = resolve_cluster(str(out)).node
    assert host.host_speed_fraction == pytest.approx(report["node.host_speed_fraction"], rel=1e-2)
    assert 0.6 < host.host_speed_fraction < 0.9
