"""A measured command as a record and a result: folders, GPUs, repeats, lost drivers, models, tables."""

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from charllm.catalog.resolve import resolve_run
from charllm.errors import CharllmError, SpecError
from charllm.measure import finish
from charllm.measure.job import Job, measure_job, prepare_folder
from charllm.measure.parquet import write_signals
from charllm.measure.parts import read_sampled
from charllm.measure.quantities import BEATS
from charllm.measure.recording import read_recording
from charllm.measure.settings import MeasureSettings
from charllm.result.result import RunResult, all_finite
from charllm.result.store import load_run, read_parquet, write_text
from charllm.workload.model_flop import model_flop
from charllm.workload.parameters import count_parameters
from tests.measure.readings import ENOUGH, await_readings, await_true, until_read
from tests.measure.replays import REPLAY, await_file, find_sampler, make_replay, uuid

STEPS = """
import time, charllm.mark as mark
mark.step(tokens=0)
for number in range({steps}):
    time.sleep({step_s})
    mark.step(number, tokens=100)
"""
READ_STEPS = f"""
import os, sys, time
from pathlib import Path
import charllm.mark as mark
sys.path.append({str(Path(__file__).parent)!r})
from readings import count_readings

folder, number = Path(os.environ["CHARLLM_MARKS"]), 0
mark.step(tokens=0)
while number < 8 or count_readings(folder, half_ns) < {ENOUGH}:
    time.sleep(0.05)
    mark.step(number, tokens=100)
    number += 1
    if number == 4:
        half_ns = time.monotonic_ns()
"""
TINY = {
    "model": {"name": "tiny", "layers": 1, "hidden": 8, "ffn": 16, "heads": 2, "vocab": 10},
    "cluster": "h200x1",
    "training": {"seq_length": 8, "global_batch_size": 4},
}


def stepping(steps: int = 8, step_s: float = 0.05) -> tuple[str, ...]:
    return sys.executable, "-c", STEPS.format(steps=steps, step_s=step_s)


def stepping_until_read() -> tuple[str, ...]:
    """Steps that go on until some of them were read."""
    return sys.executable, "-c", READ_STEPS


def measure(folder: Path, *command: str, telemetry: str = REPLAY, **settings: Any) -> tuple[RunResult, int]:
    """Measure without waiting before and after, where nothing else is said."""
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    environment.update(settings.pop("environment", {}))
    repeats = settings.pop("repeats", 1)
    recorded = MeasureSettings(telemetry=telemetry, **{"idle_s": 0.0, "cooldown_s": 0.0, **settings})
    job = Job(command, folder, recorded, repeats=repeats)
    return measure_job(job, environment)


def warning_of(result: RunResult, metric: str) -> str:
    (found,) = [warning for warning in result.warnings if warning.startswith(f"{metric}:")]
    return found


@pytest.mark.parametrize("what", ["a file", "a full folder", "a place without folders", "below a file"])
def test_a_folder_that_cannot_take_a_record_is_refused(what: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    place = {
        "a file": tmp_path / "file",
        "a full folder": tmp_path,
        "a place without folders": Path("/proc/charllm-record"),
        "below a file": tmp_path / "file" / "record",
    }[what]
    with pytest.raises(SpecError, match="--out"):
        prepare_folder(place)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_full_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage(NamedTuple):
        free: int

    monkeypatch.setattr("shutil.disk_usage", lambda _folder: Usage(100_000))
    with pytest.raises(SpecError, match="less than 1 MiB is free"):
        prepare_folder(tmp_path / "record")


def test_a_folder_that_takes_no_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_settings: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(SpecError, match="Permission denied"):
        prepare_folder(tmp_path)


def test_an_empty_folder_and_missing_parents_are_taken(tmp_path: Path) -> None:
    prepare_folder(tmp_path)
    prepare_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_marks_become_step_time_and_tokens(tmp_path: Path) -> None:
    result, code = measure(tmp_path, *stepping_until_read())
    assert code == 0
    metrics = result.metrics
    assert 0.05 <= metrics["step_time_s"] < 1.0
    assert metrics["tokens_per_s"] == pytest.approx(100 / metrics["step_time_s"])
    assert metrics["tokens_per_s_per_gpu"] == metrics["tokens_per_s"]
    assert metrics["tokens_per_j"] == pytest.approx(100 / metrics["energy_per_step_j"])
    assert load_run(tmp_path) == result
    assert all_finite(result.as_table())


def test_idle_and_cool_down_are_recorded_beside_the_command(tmp_path: Path) -> None:
    result, _ = measure(tmp_path, "sleep", "1", idle_s=1.0, cooldown_s=0.4)
    measurement = result.provenance["measurement"]
    windows = measurement["windows_s"]
    for name, length_s in (("idle", 1.0), ("command", 1.0), ("cooldown", 0.4)):
        assert length_s <= windows[name][1] - windows[name][0] < length_s + 1.0
    times_s = read_recording(tmp_path).fast(0).times_s
    assert times_s[0] <= windows["idle"][0]
    assert times_s[-1] >= windows["cooldown"][1] - 0.1
    (identity,) = read_recording(tmp_path).facts.gpus
    assert 75 < measurement["idle"][identity.uuid]["power_mean_w"] < 100
    assert measurement["cooldown"][identity.uuid]["temperature_end_c"] == 38
    assert 75 < result.metrics["power_mean_w"] < 100


def test_without_idle_there_is_no_idle_power(tmp_path: Path) -> None:
    result, _ = measure(tmp_path, "true")
    assert (result.provenance["measurement"]["idle"], result.provenance["measurement"]["cooldown"]) == ({}, {})


def test_only_visible_gpus_are_in_the_result(tmp_path: Path) -> None:
    telemetry = make_replay(tmp_path / "two", gpus=2)
    run = tmp_path / "run"
    result, _ = measure(run, *stepping_until_read(), telemetry=telemetry, environment={"CUDA_VISIBLE_DEVICES": uuid(1)})
    assert [(row["uuid"], row["slot"]) for row in result.gpus] == [(uuid(1), 1)]
    assert result.metrics["tokens_per_s_per_gpu"] == result.metrics["tokens_per_s"]
    assert result.metrics["energy_per_step_j"] > 0
    assert list(read_sampled(run, [uuid(1)]).series) == [1]


def test_two_gpus_count_twice(tmp_path: Path) -> None:
    result, _ = measure(tmp_path / "run", *stepping_until_read(), telemetry=make_replay(tmp_path / "two", gpus=2))
    metrics = result.metrics
    assert len(result.gpus) == 2
    assert metrics["tokens_per_s_per_gpu"] == pytest.approx(metrics["tokens_per_s"] / 2)
    assert metrics["energy_per_step_j"] == pytest.approx(2 * metrics["power_mean_w"] * metrics["step_time_s"], rel=1e-6)


def test_repeats_give_intervals_and_the_largest_difference(tmp_path: Path) -> None:
    result, code = measure(tmp_path, *stepping(), repeats=3, telemetry="none")
    assert code == 0
    singles = [load_run(tmp_path / f"repeat-{number}").metrics["step_time_s"] for number in range(3)]
    measurement = result.provenance["measurement"]
    assert measurement["repeats"] == 3
    assert result.metrics["step_time_s"] == pytest.approx(np.mean(singles))
    low, high = measurement["intervals"]["step_time_s"]
    half = 4.302653 * np.std(singles, ddof=1) / 3**0.5
    assert (low, high) == pytest.approx((np.mean(singles) - half, np.mean(singles) + half), rel=1e-4)
    difference = (max(singles) - min(singles)) / np.mean(singles)
    assert measurement["repeat_difference_fraction"]["step_time_s"] == pytest.approx(difference)
    assert load_run(tmp_path).metrics == result.metrics


def test_a_repeat_that_fails_ends_them_and_is_left_out(tmp_path: Path) -> None:
    script = f"test -e {tmp_path}/again && exit 5; touch {tmp_path}/again; sleep 0.1"
    result, code = measure(tmp_path / "run", "sh", "-c", script, repeats=3, telemetry="none")
    assert code == 5
    assert "repeat 1 ended with exit code 5 and is left out" in result.warnings
    assert result.provenance["measurement"]["exit_code"] == 0
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["repeat-0", "repeat-1", "result.json"]


@pytest.mark.parametrize("when", ["while the command runs", "while it cools down"])
def test_an_interrupt_ends_the_repeats_though_the_command_takes_it_well(when: str, tmp_path: Path) -> None:
    running = when == "while the command runs"
    script = f"trap 'exit 0' TERM; touch {tmp_path}/up; while {str(running).lower()}; do sleep 0.05; done"
    waits_for_it = "_Passing.receive" if running else "cool_down"

    def interrupt() -> None:
        await_file(tmp_path / "up")
        await_true(lambda: waits_for_it in getattr(signal.getsignal(signal.SIGTERM), "__qualname__", ""))
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=interrupt)
    thread.start()
    cooldown_s = 0.0 if running else 60.0
    result, code = measure(tmp_path / "run", "sh", "-c", script, repeats=3, telemetry="none", cooldown_s=cooldown_s)
    thread.join()
    assert code == 0
    assert "repeats" not in result.provenance["measurement"]
    assert not (tmp_path / "run" / "repeat-1").exists()


def test_a_driver_that_is_lost_leaves_reasons_and_no_zeros(tmp_path: Path) -> None:
    telemetry = make_replay(tmp_path / "lost", lost_after_s=0.3)
    result, code = measure(tmp_path / "run", "sleep", "1.5", telemetry=telemetry)
    assert code == 0
    for metric in ("power_mean_w", "temperature_mean_c", "clock_mean_hz", "energy_per_step_j"):
        assert result.metrics[metric] is None, metric
        assert warning_of(result, metric)
    assert any("power_instant_w was not read" in warning and "lost" in warning for warning in result.warnings)
    assert not [name for name, value in result.metrics.items() if value == 0]


def test_a_driver_that_is_lost_late_leaves_what_was_read_before(tmp_path: Path) -> None:
    telemetry = make_replay(tmp_path / "lost", lost_after_s=2.5)
    result, _ = measure(tmp_path / "run", *until_read(1, "=lost"), telemetry=telemetry)
    assert result.metrics["temperature_peak_c"] > 40
    assert result.metrics["clock_mean_hz"] > 1e9
    assert any("was not read" in warning and "lost" in warning for warning in result.warnings)


def test_without_telemetry_metrics_are_null_with_a_reason(tmp_path: Path) -> None:
    result, code = measure(tmp_path, *stepping(), telemetry="none")
    assert code == 0
    assert result.gpus == []
    assert result.metrics["step_time_s"] > 0
    for metric, value in result.metrics.items():
        if value is None:
            assert warning_of(result, metric)


def test_a_sampler_that_is_killed_is_started_again_with_a_warning(tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def kill() -> None:
        await_file(tmp_path / "up")
        await_readings(folder)
        pid = find_sampler(folder)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await_readings(folder)
        (tmp_path / "killed").touch()

    thread = threading.Thread(target=kill)
    thread.start()
    script = f"touch {tmp_path}/up; until test -e {tmp_path}/killed; do sleep 0.05; done; exit 3"
    result, code = measure(folder, "sh", "-c", script, telemetry=make_replay(tmp_path / "loaded"))
    thread.join()
    assert code == 3
    (warning,) = [warning for warning in result.warnings if warning.startswith("the sampler ")]
    assert warning.startswith("the sampler was killed by SIGKILL and started again: no readings for ")
    assert result.metrics["power_mean_w"] > 200
    (restart,) = result.provenance["measurement"]["sampler_restarts"]
    assert restart["why"] == "the sampler was killed by SIGKILL and started again"
    assert not [warning for warning in result.warnings if warning.startswith("sampling stopped")]


def test_a_model_that_is_known_gives_mfu(tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    run = resolve_run(TINY)
    spec.write_text(json.dumps(run.as_table()))
    script = f"cp {spec} $CHARLLM_MARKS/spec.json; exec {sys.executable} -c '{STEPS.format(steps=4, step_s=0.02)}'"
    result, _ = measure(tmp_path / "run", "sh", "-c", script, telemetry="none")
    metrics = result.metrics
    peak = run.cluster.gpu.peak_bf16_flop_per_s
    assert metrics["mfu"] == pytest.approx(model_flop(run) / metrics["step_time_s"] / peak)
    assert (metrics["parameters"], metrics["microbatches"]) == (count_parameters(run.model), 4)
    assert result.spec == run.as_table()
    assert not [warning for warning in result.warnings if warning.startswith("mfu")]


def test_a_request_that_a_job_leaves_is_completed(tmp_path: Path) -> None:
    script = """printf '%s' '{"model": "gpt2", "cluster": "h200x8"}' > $CHARLLM_MARKS/spec.json"""
    measure(tmp_path, "sh", "-c", script, telemetry="none")
    stored = load_run(tmp_path)
    assert stored.spec == resolve_run({"model": "gpt2", "cluster": "h200x8"}).as_table()
    assert stored.metrics["parameters"] > 1e8


@pytest.mark.parametrize("left", ["[1, 2]", "{", '{"mine": NaN}', '{"model": "no such model"}', '{"mine": 3}'])
def test_a_spec_that_says_nothing_gives_no_mfu(left: str, tmp_path: Path) -> None:
    script = f"printf '%s' '{left}' > $CHARLLM_MARKS/spec.json"
    result, code = measure(tmp_path, "sh", "-c", script, telemetry="none")
    assert code == 0
    assert warning_of(result, "mfu") == "mfu: the model behind the command is not known"
    assert isinstance(load_run(tmp_path).spec, dict)


def test_a_known_model_without_marks_says_that_steps_are_missing(tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(resolve_run(TINY).as_table()))
    result, _ = measure(tmp_path / "run", "sh", "-c", f"cp {spec} $CHARLLM_MARKS/", telemetry="none")
    assert result.metrics["mfu"] is None
    assert warning_of(result, "mfu") == "mfu: no steps were marked"


def test_readings_are_parquet_tables_too(tmp_path: Path) -> None:
    measure(tmp_path / "run", *until_read(), telemetry=make_replay(tmp_path / "two", gpus=2))
    recording = read_recording(tmp_path / "run")
    for beat, name in (("fast", "signals"), ("slow", "signals_slow"), ("energy", "signals_energy")):
        table = read_parquet(tmp_path / "run" / f"{name}.parquet")
        assert list(table) == ["gpu", "monotonic_s", "wall_s", *BEATS[beat]]
        for gpu in (0, 1):
            series = recording.series[gpu][beat]
            rows = [row for row, place in enumerate(table["gpu"]) if place == gpu]
            assert [table["monotonic_s"][row] for row in rows] == series.times_s.tolist()
            for quantity in BEATS[beat]:
                values = [table[quantity][row] for row in rows]
                expected = [None if np.isnan(value) else value for value in series.columns[quantity]]
                assert values == expected


def test_without_duckdb_a_run_is_recorded_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    result, code = measure(tmp_path, *until_read())
    assert code == 0
    assert result.metrics["power_mean_w"] > 0
    assert load_run(tmp_path).metrics == result.metrics
    assert not list(tmp_path.glob("*.parquet"))


def test_without_readings_there_are_no_tables(tmp_path: Path) -> None:
    measure(tmp_path, "true", telemetry="none")
    assert not list(tmp_path.glob("*.parquet"))


def test_tables_that_cannot_be_written_are_told_and_do_no_harm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measure(tmp_path / "first", *until_read())
    with pytest.raises(CharllmError, match="parquet tables could not be written"):
        write_signals(read_recording(tmp_path / "first"), tmp_path / "nowhere")

    def refuse(*_: object) -> None:
        raise CharllmError("parquet tables could not be written (no room)")

    monkeypatch.setattr(finish, "write_signals", refuse)
    _, code = measure(tmp_path / "second", "sh", "-c", "exit 4")
    assert code == 4
    assert "charllm: parquet tables could not be written (no room)" in capsys.readouterr().err
    assert (tmp_path / "second" / "result.json").exists()


def test_a_result_that_cannot_be_written_does_not_hide_the_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(text: str, path: Path) -> None:
        if path.name == "result.json":
            raise OSError(28, "No space left on device")
        write_text(text, path)

    monkeypatch.setattr(finish, "write_text", refuse)
    _, code = measure(tmp_path, "sh", "-c", "exit 4", telemetry="none")
    assert code == 4
    assert "result.json could not be written (No space left on device)" in capsys.readouterr().err
