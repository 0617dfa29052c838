import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import charllm
from charllm.errors import SpecError
from charllm.measure.marks import find_steps, read_marks
from charllm.measure.recording import Recording, read_recording
from charllm.result.result import RunResult
from tests.measure.convert import texts

WORK_MEAN_W = texts.WORK_W + 5


def converted(tmp_path: Path, form: str, text: str, name: str = "log.csv", **words: Any) -> tuple[RunResult, Recording]:
    path = tmp_path / name
    path.write_text(text)
    result = charllm.convert(form, path, tmp_path / "run", **words)
    return result, read_recording(tmp_path / "run")


FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "nvidia-smi": (texts.nvidia_smi(), {}),
    "nvidia-smi, no units": (texts.nvidia_smi(units=False), {}),
    "nvidia-smi dmon": (texts.smi_dmon(), {}),
    "dcgm dmon": (texts.dcgm_dmon(), {"period": 1.0}),
    "dcgm scrapes": (texts.scrapes(), {}),
    "prometheus tsdb": (texts.tsdb_dump(), {}),
    "amd-smi": (texts.amd_smi(), {}),
    "csv": (texts.wide(), {}),
    "nvidia-smi -q": (texts.smi_query(), {}),
    "nvidia-smi boxes": (texts.smi_boxes(), {}),
    "nvidia-smi boxes without a time": (texts.smi_boxes(timed=False), {"period": 1.0}),
    "csv, a metric a row": (texts.long_table(), {}),
}


@pytest.mark.parametrize("case", FORMS)
@pytest.mark.parametrize("auto", [False, True])
def test_every_format_gives_the_same_power_on_the_same_seconds(case: str, auto: bool, tmp_path: Path) -> None:
    text, words = FORMS[case]
    result, recording = converted(tmp_path, "auto" if auto else case.split()[0].rstrip(","), text, **words)
    assert len(recording.sampled) == texts.GPUS
    for gpu in recording.sampled:
        times, watts = recording.power(gpu)
        expected = [texts.power_w(second, gpu) for second in range(texts.SECONDS)]
        assert times - times[0] == pytest.approx(np.arange(texts.SECONDS), abs=1e-6)
        assert watts == pytest.approx(expected, abs=0.51)
    assert result.metrics["power_mean_w"] == pytest.approx(WORK_MEAN_W, rel=0.02)


@pytest.mark.parametrize("case", [case for case in FORMS if case != "prometheus tsdb"])
def test_every_format_gives_the_same_temperature(case: str, tmp_path: Path) -> None:
    text, words = FORMS[case]
    _, recording = converted(tmp_path, "auto", text, **words)
    for gpu in recording.sampled:
        _, degrees = recording.known(gpu, "temperature_c")
        assert list(degrees) == [texts.temperature_c(second, gpu) for second in range(texts.SECONDS)]


def test_columns_of_nvidia_smi_become_si_quantities(tmp_path: Path) -> None:
    _, recording = converted(tmp_path, "nvidia-smi", texts.nvidia_smi())
    assert set(recording.known(0, "clock_hz")[1]) == {1.98e9}
    assert set(recording.known(0, "memory_used_bytes")[1]) == {4096 * 2**20}
    assert set(recording.known(0, "utilization_fraction")[1]) == {0.0, 0.99}
    assert [gpu.uuid for gpu in recording.facts.gpus] == list(texts.UUIDS)
    assert set(recording.known(1, "limits")[1]) == {0.0, 2.0}


def test_entries_and_boxes_of_nvidia_smi_become_si_quantities(tmp_path: Path) -> None:
    _, entries = converted(tmp_path, "auto", texts.smi_query())
    assert [gpu.uuid for gpu in entries.facts.gpus] == list(texts.UUIDS)
    assert set(entries.known(0, "clock_hz")[1]) == {1.98e9}
    assert set(entries.known(1, "limits")[1]) == {0.0, 2.0}
    (tmp_path / "boxes").mkdir()
    _, boxes = converted(tmp_path / "boxes", "auto", texts.smi_boxes())
    assert set(boxes.known(1, "power_limit_w")[1]) == {700.0}
    assert set(boxes.known(0, "utilization_fraction")[1]) == {0.99}
    for recording in (entries, boxes):
        assert set(recording.known(0, "memory_used_bytes")[1]) == {4096 * 2**20}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<nvidia_smi_log><gpu></nvidia_smi_log>\n", "XML of nvidia-smi"),
        ("==============NVSMI LOG==============\nTimestamp : now\n", "power, temperature or clocks of a GPU"),
    ],
)
def test_a_dump_without_readings_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(charllm.SpecError, match=message):
        converted(tmp_path, "auto", text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("timestamp,gpu,power.draw [W]\n", "readings below the header"),
        ("timestamp,gpu,power.draw [W]\nyesterday,0,300\nearlier,0,310\nnow,0,320\n", "a time such as"),
        ("timestamp,gpu,power.draw [W]\n" + "2024-05-01 12:00:00,0\n" * 5, "lines with another number of cells"),
        ("timestamp,gpu,metric,value\n2024-05-01 12:00:00,0,mood,1\n", "another known quantity"),
        ("timestamp,gpu,power.draw\n2024-05-01 12:00:00,0,300 MHz\n", "a unit of power"),
    ],
)
def test_a_table_that_cannot_be_read_says_why(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(charllm.SpecError, match=message):
        converted(tmp_path, "csv", text)


def test_a_header_that_comes_again_holds_from_there_on(tmp_path: Path) -> None:
    first = [f"2024-05-01 12:00:{second:02d},0,300," for second in range(20)]
    rest = [f"2024-05-01 12:00:{second:02d},0,50,400" for second in range(20, 40)]
    lines = ["timestamp,gpu,power.draw [W]", *first, "timestamp,gpu,temperature.gpu,power.draw [W]", *rest]
    _, recording = converted(tmp_path, "csv", "\n".join(lines) + "\n")
    assert list(recording.power(0)[1]) == [300.0] * 20 + [400.0] * 20
    assert set(recording.known(0, "temperature_c")[1]) == {50.0}


def test_the_record_names_its_files_and_their_fingerprints(tmp_path: Path) -> None:
    result, _ = converted(tmp_path, "nvidia-smi", texts.nvidia_smi(), "key=hunter22secret.csv")
    kept = result.provenance["measurement"]["converted"]
    assert [set(file) for file in kept["files"]] == [{"name", "layout", "sha256", "bytes"}]
    assert len(kept["files"][0]["sha256"]) == 64
    assert "hunter22" not in (tmp_path / "run" / "job.json").read_text()
    assert kept["period_s"] == pytest.approx(1.0)


def test_a_mean_over_a_second_shows_no_peak_and_says_so(tmp_path: Path) -> None:
    result, _ = converted(tmp_path, "nvidia-smi", texts.nvidia_smi())
    assert result.metrics["power_peak_sensor_w"] is None
    assert any("mean over the last second" in warning for warning in result.warnings)
    assert result.signals is not None
    assert max(result.signals["power_w"]) == pytest.approx(texts.WORK_W + 12, abs=1)


def test_power_of_an_a100_is_instant(tmp_path: Path) -> None:
    result, recording = converted(tmp_path, "nvidia-smi", texts.nvidia_smi(name="NVIDIA A100-SXM4-80GB"))
    assert recording.power_quantity(0) == "power_instant_w"
    assert result.metrics["power_peak_sensor_w"] == pytest.approx(texts.WORK_W + 12, abs=1)


def test_the_job_is_the_time_above_idle(tmp_path: Path) -> None:
    result, _ = converted(tmp_path, "nvidia-smi", texts.nvidia_smi())
    windows = result.provenance["measurement"]["windows_s"]
    start_s = texts.START_S
    assert windows["command"] == pytest.approx([start_s + texts.FROM_S, start_s + texts.TO_S - 1])
    assert windows["idle"] == pytest.approx([start_s, start_s + texts.FROM_S])
    assert result.provenance["measurement"]["idle"]


def test_power_of_nothing_throughout_is_taken_as_one_job(tmp_path: Path) -> None:
    silent = re.sub(r"\d+\.\d+ W,", "0.00 W,", texts.nvidia_smi())
    result, _ = converted(tmp_path, "nvidia-smi", silent)
    assert list(result.provenance["measurement"]["windows_s"]) == ["command"]


def test_blanks_of_dcgm_are_missing_with_their_reason(tmp_path: Path) -> None:
    _, recording = converted(tmp_path, "dcgm", texts.scrapes())
    series = recording.series_of(0, "memory_temperature_c")
    assert not np.isfinite(series.columns["memory_temperature_c"]).any()
    assert series.missing["memory_temperature_c"] == {"not_supported": texts.SECONDS}


def test_one_scrape_is_one_reading(tmp_path: Path) -> None:
    result, _ = converted(tmp_path, "dcgm", texts.scrapes(range(50, 51), timed=False))
    assert result.metrics["power_mean_w"] == pytest.approx(texts.power_w(50, 0) / 2 + texts.power_w(50, 1) / 2)


def test_metrics_of_prometheus_come_in_several_files_and_from_several_nodes(tmp_path: Path) -> None:
    nodes = ("node-a", "node-b")
    paths = []
    for metric, value in (("DCGM_FI_DEV_POWER_USAGE", texts.power_w), ("DCGM_FI_DEV_GPU_TEMP", texts.temperature_c)):
        paths.append(tmp_path / f"{metric}.json")
        paths[-1].write_text(json.dumps(texts.query_range(metric, value, nodes)))
    result = charllm.convert("prometheus", paths, tmp_path / "run")
    assert sorted(place.name for place in (tmp_path / "run" / "nodes").iterdir()) == list(nodes)
    assert [(gpu["node"], gpu["slot"]) for gpu in result.gpus] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert result.metrics["power_mean_w"] == pytest.approx(WORK_MEAN_W, rel=0.02)
    assert charllm.load(tmp_path / "run") == result


def test_files_that_read_the_same_gpus_at_once_are_of_different_nodes(tmp_path: Path) -> None:
    for node in range(2):
        (tmp_path / f"run_node{node}_gpu.csv").write_text(texts.wide())
    charllm.convert("csv", sorted(tmp_path.glob("*.csv")), tmp_path / "run")
    assert sorted(place.name for place in (tmp_path / "run" / "nodes").iterdir()) == ["node0", "node1"]


def test_the_papers_layout_is_read_with_its_traps(tmp_path: Path) -> None:
    folder = tmp_path / "telemetry"
    folder.mkdir()
    wrapping = [2**32 - 500, 500, 1500]
    for rank in (0, 9):
        rows = {
            "gpu_power": [f"{texts.power_w(second, 0)}" if second != 5 else "-1" for second in range(30)],
            "pcie_tx_bytes": [str(wrapping[min(second, 2)]) for second in range(30)],
            "nvlink_tx_throughput": ["7"] * 30,
        }
        for metric, values in rows.items():
            text = "".join(f"{texts.START_S + 0.05 * place},{value}\n" for place, value in enumerate(values))
            (folder / f"{metric}_{rank}.csv").write_text(text)
    (folder / "system_cpu_usage_rank_0_id_cpu0.csv").write_text(f"{texts.START_S},12.5\n")
    result = charllm.convert("charllm-ppt", folder, tmp_path / "run")
    assert any("system_*" in warning for warning in result.warnings)
    recording = read_recording(tmp_path / "run" / "nodes" / "node1")
    assert [gpu.number for gpu in recording.facts.gpus] == [1]
    power = recording.series_of(0, "power_instant_w")
    assert power.missing["power_instant_w"] == {"error": 1}
    sent = recording.known(0, "pcie_sent_bytes")[1]
    assert sent[2] - sent[0] == 2000
    assert not len(recording.known(0, "link_sent_bytes")[0])
    assert any("link 0" in warning for warning in result.warnings)


def test_a_log_adds_steps(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(texts.megatron_log())
    result, _ = converted(tmp_path, "nvidia-smi", texts.nvidia_smi(), log=[log])
    assert result.metrics["step_time_s"] == pytest.approx(2.0, rel=0.02)
    steps = max((find_steps(marks) for marks in read_marks(tmp_path / "run").values()), key=len)
    assert len(steps) == 40


def test_a_log_alone_is_a_run_of_steps(tmp_path: Path) -> None:
    result, recording = converted(tmp_path, "megatron-log", texts.megatron_log(), "train.log")
    assert result.metrics["step_time_s"] == pytest.approx(2.0, rel=0.02)
    assert not recording.facts.gpus
    assert result.metrics["power_mean_w"] is None


def test_columns_can_be_named(tmp_path: Path) -> None:
    rows = "".join(f"{second};{texts.power_w(second, 0) * 1000:.0f};{40}\n" for second in range(30))
    _, recording = converted(
        tmp_path, "csv", f"when;P;Tj\n{rows}", column={"when": "time", "P": "power_mw", "Tj": "temperature_c"}
    )
    assert recording.power(0)[1][:3] == pytest.approx([texts.power_w(second, 0) for second in range(3)], abs=0.01)
    assert set(recording.known(0, "temperature_c")[1]) == {40.0}


def test_a_table_without_a_header_needs_names(tmp_path: Path) -> None:
    body = texts.nvidia_smi().partition("\n")[2]
    with pytest.raises(SpecError, match="--header"):
        converted(tmp_path, "nvidia-smi", body)
    names = texts.nvidia_smi().partition("\n")[0]
    _, recording = converted(tmp_path, "nvidia-smi", body, header=names)
    assert len(recording.sampled) == 2


def test_a_part_can_be_cut_out(tmp_path: Path) -> None:
    _, recording = converted(tmp_path, "csv", texts.wide(), from_=30.0, to=60.0, gpus=["1"])
    times, _ = recording.power(0)
    assert (times[0], times[-1]) == pytest.approx((30.0, 59.0))
    assert [gpu.number for gpu in recording.facts.gpus] == [1]


def test_a_half_written_last_line_is_left_out(tmp_path: Path) -> None:
    _, recording = converted(tmp_path, "nvidia-smi", texts.nvidia_smi()[:-40])
    assert len(recording.power(0)[0]) == texts.SECONDS
    assert len(recording.power(1)[0]) == texts.SECONDS - 1


def test_gaps_are_kept(tmp_path: Path) -> None:
    lines = texts.wide().splitlines(keepends=True)
    _, recording = converted(tmp_path, "csv", "".join(lines[:40] + lines[60:]))
    assert np.diff(recording.power(0)[0]).max() == pytest.approx(21.0)


BAD = {
    "runs back": ("csv", "t_s,power_w\n" + "".join(f"{t},100\n" for t in (0, 1, 2, 3, 1, 2)), "times that grow"),
    "unit": ("csv", "t_s,power_w\n0,100 furlongs\n1,100 furlongs\n", "unit"),
    "milliwatts": ("csv", "t_s,power\n" + "".join(f"{t},{300000 + t}\n" for t in range(9)), "power_mw"),
    "no quantity": ("csv", "t_s,colour\n0,1\n1,2\n", "header"),
    "types": (
        "nvidia-smi",
        texts.nvidia_smi() + texts.nvidia_smi(name="Tesla T4").replace("GPU-", "GPU-x"),
        "one type|grow",
    ),
    "driver": ("nvidia-smi", "Failed to initialize NVML: Driver/library version mismatch\n", "message of the driver"),
    "empty": ("csv", "\n", "readings"),
    "header alone": ("csv", "t_s,power_w\n", "readings"),
    "no steps": ("megatron-log", "hello\nworld\n", "steps"),
    "not json": ("prometheus", '{"status":"success","data":{"result":[{"metric":{},"values":[[1,', "PATH|format"),
    "nested without end": ("auto", '{"time": ' + "[" * 100_000 + "\n", "a file of one of"),
    "no time": ("csv", "gpu,power_w\n0,100\n0,101\n", "--period"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_read_is_refused_and_leaves_nothing(case: str, tmp_path: Path) -> None:
    form, text, told = BAD[case]
    with pytest.raises(SpecError, match=told):
        converted(tmp_path, form, text)
    assert [place.name for place in tmp_path.iterdir()] == ["log.csv"]


def test_mixed_types_are_named_and_can_be_chosen_from(tmp_path: Path) -> None:
    other = texts.nvidia_smi(name="Tesla T4").replace(", 0, GPU-", ", 4, GPU-x").replace(", 1, GPU-", ", 5, GPU-x")
    mixed = texts.nvidia_smi() + other.partition("\n")[2]
    with pytest.raises(SpecError, match="Tesla T4: GPU 4, 5"):
        converted(tmp_path, "nvidia-smi", mixed)
    _, recording = converted(tmp_path, "nvidia-smi", mixed, gpus=["T4"])
    assert [gpu.number for gpu in recording.facts.gpus] == [4, 5]


def test_an_existing_folder_is_not_written_into(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("kept")
    with pytest.raises(SpecError, match="does not exist yet"):
        converted(tmp_path, "csv", texts.wide())
    assert [place.name for place in (tmp_path / "run").iterdir()] == ["mine.txt"]


def test_a_counter_that_disagrees_with_power_is_left_out(tmp_path: Path) -> None:
    rows = "".join(f"{t},300,{t * 300_000}\n" for t in range(60))
    result, recording = converted(tmp_path, "csv", f"t_s,power_w,energy_j\n{rows}")
    assert not len(recording.known(0, "energy_j")[0])
    assert any(warning.startswith("energy_j: counts") for warning in result.warnings)


def test_a_table_of_rocm_smi_is_one_reading(tmp_path: Path) -> None:
    text = (
        "device,Temperature (Sensor edge) (C),Temperature (Sensor junction) (C),Average Graphics Package Power (W),"
        "sclk clock speed:,GPU use (%)\ncard0,35.0,41.0,93.0,(1700Mhz),12\ncard1,36.0,42.0,95.0,(1700Mhz),0\n"
    )
    result, recording = converted(tmp_path, "amd-smi", text)
    assert [gpu["temperature_mean_c"] for gpu in result.gpus] == [35.0, 36.0]
    assert recording.known(1, "hotspot_c")[1] == pytest.approx([42.0])
    assert result.metrics["power_mean_w"] == 94.0
    assert recording.known(1, "clock_hz")[1] == pytest.approx([1.7e9])


def test_whole_dumps_of_nvidia_smi_are_read(tmp_path: Path) -> None:
    xml = "".join(
        f"<?xml version='1.0' ?>\n<nvidia_smi_log><timestamp>Wed May  1 {texts.clock(s)} 2024</timestamp>"
        "<gpu id='0000:01:00.0'><product_name>NVIDIA L40S</product_name><uuid>GPU-1</uuid>"
        "<temperature><gpu_temp>41 C</gpu_temp></temperature>"
        f"<gpu_power_readings><power_draw>{200 + s}.00 W</power_draw></gpu_power_readings>"
        "<clocks><sm_clock>2520 MHz</sm_clock></clocks>"
        "<clocks_event_reasons><clocks_event_reason_sw_power_cap>Active</clocks_event_reason_sw_power_cap>"
        "</clocks_event_reasons></gpu></nvidia_smi_log>\n"
        for s in range(12)
    )
    _, recording = converted(tmp_path, "nvidia-smi", xml, "log.xml")
    assert list(recording.power(0)[1]) == [200.0 + s for s in range(12)]
    assert set(recording.known(0, "clock_hz")[1]) == {2.52e9}
    assert set(recording.known(0, "limits")[1]) == {2.0}


@pytest.mark.parametrize(("form", "whole", "damage"), [
    ("dcgm", texts.dcgm_dmon, "GPU .  100  40  1980  0.5\n"),
    ("nvidia-smi", texts.smi_query, "GPU \n"),
])  # fmt: skip
def test_a_line_without_the_number_of_its_gpu_is_left_out(
    form: str, whole: Callable[[], str], damage: str, tmp_path: Path
) -> None:
    _, recording = converted(tmp_path, form, whole())
    (tmp_path / "damaged").mkdir()
    _, damaged = converted(tmp_path / "damaged", form, whole() + damage)
    assert list(damaged.power(0)[1]) == list(recording.power(0)[1])


def test_lines_of_dmon_without_a_time_are_counted(tmp_path: Path) -> None:
    result, recording = converted(tmp_path, "nvidia-smi", texts.smi_dmon(dated=False))
    assert np.diff(recording.power(1)[0]) == pytest.approx(1.0)
    assert any("--period" in warning for warning in result.warnings)


def test_objects_of_json_are_rows(tmp_path: Path) -> None:
    lines = [
        json.dumps(
            {"timestamp": f"2024-05-01T{texts.clock(s)}", "gpus": [{"index": g, "power_w": 100 + g} for g in range(2)]}
        )
        for s in range(20)
    ]
    _, recording = converted(tmp_path, "auto", "\n".join(lines) + '\n{"timestamp": "2024-05', "log.jsonl")
    assert [set(recording.power(gpu)[1]) for gpu in recording.sampled] == [{100.0}, {101.0}]


AMD_PARTS = range(8)
AMD_METRIC = (
    "timestamp,gpu,gfx_activity,umc_activity,mm_activity,vcn_activity,socket_power,gfx_voltage,"
    + ",".join(f"gfx_{n}_clk,gfx_{n}_min_clk,gfx_{n}_max_clk,gfx_{n}_clk_locked,gfx_{n}_deep_sleep" for n in AMD_PARTS)
    + ",mem_0_clk,mem_0_min_clk,mem_0_max_clk,vclk_0_clk,vclk_0_min_clk,vclk_0_max_clk,dclk_0_clk,dclk_0_max_clk,"
    "socclk_0_clk,fclk_0_clk,edge,hotspot,mem,total_energy_consumption\n"
)


def test_clocks_of_the_dies_of_an_amd_gpu_are_its_clock_and_those_of_its_video_are_not(tmp_path: Path) -> None:
    rows = "".join(
        f"{texts.START_S + t},{gpu},97,30,N/A,\"['0', 'N/A']\",1200,N/A,"
        + ",".join(f"{2300 + 10 * n},132,2400,DISABLED,DISABLED" for n in AMD_PARTS)
        + f",1900,900,2000,59,59,2000,48,1800,59,1800,N/A,70,60,{1000 + t * 1200}\n"
        for t in range(60)
        for gpu in range(2)
    )
    result, recording = converted(tmp_path, "amd-smi", AMD_METRIC + rows)
    assert set(recording.known(1, "clock_hz")[1]) == {2.335e9}
    assert set(recording.known(1, "memory_clock_hz")[1]) == {1.9e9}
    assert result.metrics["clock_mean_hz"] == pytest.approx(2.335e9)
    assert result.metrics["power_mean_w"] == pytest.approx(1200)


def test_of_two_columns_of_one_quantity_the_first_counts(tmp_path: Path) -> None:
    rows = "".join(f"{t},300,310,1980,1200\n" for t in range(60))
    result, recording = converted(tmp_path, "csv", f"t_s,power_w,gpu_power_w,sm_clock,gpu_clock\n{rows}")
    assert set(recording.power(0)[1]) == {300.0}
    assert set(recording.known(0, "clock_hz")[1]) == {1.98e9}
    assert any("gpu_power_w" in warning for warning in result.warnings)


def steps_log(seconds: list[float], first: int = 1, arguments: str = "", rate: str = "") -> str:
    lines = [f" iteration {first + place}/ 1000 | elapsed time per iteration (ms): {each * 1000:.1f} | "
             f"global batch size: 4 | lm loss: 7.0 |{rate}\n" for place, each in enumerate(seconds)]  # fmt: skip
    return arguments + "".join(lines)


SEQUENCE = "  seq_length ...... 1000\n"


@pytest.mark.parametrize(("world", "each"), [("  world_size ...... 8\n", 250.0), ("", None)])
def test_tokens_per_gpu_count_the_gpus_of_the_log_or_are_missing(
    world: str, each: float | None, tmp_path: Path
) -> None:
    result, _ = converted(tmp_path, "log", steps_log([2.0] * 8, arguments=SEQUENCE + world), "train.log")
    assert result.metrics["tokens_per_s"] == pytest.approx(2000)
    assert result.metrics["tokens_per_s_per_gpu"] == (None if each is None else pytest.approx(each))
    assert any(warning.startswith("tokens_per_s_per_gpu: how many") for warning in result.warnings) == (not world)


def test_warm_up_is_left_out_of_the_mean_and_said(tmp_path: Path) -> None:
    result, _ = converted(tmp_path, "log", steps_log([40.0, 5.0] + [2.0] * 8), "train.log")
    assert result.metrics["step_time_s"] == pytest.approx(2.0)
    assert any("the first 2 steps" in warning for warning in result.warnings)


def test_runs_of_one_log_are_told_apart(tmp_path: Path) -> None:
    other = "".join(f"setting {index}\n" for index in range(20))
    text = steps_log([1.0] * 6) + other + steps_log([3.0] * 9) + other + steps_log([2.0] * 7)
    result, _ = converted(tmp_path, "log", text, "train.log")
    assert result.metrics["step_time_s"] == pytest.approx(3.0)
    assert any("3 runs of the program" in warning for warning in result.warnings)


def test_system_metrics_of_weights_and_biases_are_readings(tmp_path: Path) -> None:
    rows = "".join(
        json.dumps({f"system.gpu.{gpu}.{name}": value + gpu for gpu in range(2) for name, value in (
            ("powerWatts", 300.0), ("temp", 55.0), ("gpu", 90.0), ("smClock", 1900.0))}
            | {"system.gpu.process.0.powerWatts": 1.0, "system.cpu": 3.0, "_timestamp": texts.START_S + 15 * t,
               "_runtime": 15 * t, "_wandb": True}) + "\n"
        for t in range(40)
    )  # fmt: skip
    _, recording = converted(tmp_path, "auto", rows, "wandb-events.jsonl")
    assert recording.sampled == [0, 1]
    assert set(recording.power(1)[1]) == {301.0}
    assert set(recording.known(0, "clock_hz")[1]) == {1.9e9}
    assert set(recording.known(1, "utilization_fraction")[1]) == {0.91}


REFUSED = {
    "emissions.csv": (
        "timestamp,project_name,duration,emissions,emissions_rate,cpu_power,gpu_power,cpu_energy,gpu_energy\n"
        "2026-05-01T12:00:00,a,3600.5,0.12,3.3e-05,42.5,310.2,0.04,0.31\n", "CodeCarbon.*totals"),
    "sacct.txt": ("JobID|JobName|Elapsed|ConsumedEnergyRaw\n123|train|01:00:00|7200000\n", "sacct.*totals"),
    "zeus.json": ('{"window": {"time": 10.1, "gpu_energy": {"0": 3100.5}}}\n', "Zeus.*windows"),
    "dcmi.txt": ("    Instantaneous power reading:                   512 Watts\n", "ipmitool.*whole node"),
    "sensors.txt": ("PSU1 Power       | 450.000    | Watts      | ok\n", "ipmitool.*whole node"),
    "intel.csv": (
        "System Time,Elapsed Time (sec),Processor Power_0(Watt),Package Temperature_0(C)\n"
        + "".join(f"14:55:{n},{n},15.2,68\n" for n in range(20)), "Intel Power Gadget.*processors"),
    "turbostat.txt": ("Core\tBusy%\tPkgWatt\tCorWatt\n-\t10.0\t120.3\t90.0\n", "turbostat.*processors"),
    "perf.txt": ("     1.000232 234.50 Joules power/energy-pkg/\n", "perf stat.*processors"),
    "rocm.txt": ("========= ROCm System Management Interface =========\n"
                 "GPU  Temp (DieEdge)  AvgPwr  SCLK\n0    46.0c  300.0W  1700Mhz\n", "rocm-smi.*amd-smi monitor --csv"),
    "redfish.json": ('{"@odata.id": "/x", "PowerControl": [{"PowerConsumedWatts": 4500}]}\n', "Redfish.*whole node"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_files_without_readings_of_gpus_are_refused_by_the_name_of_their_tool(name: str, tmp_path: Path) -> None:
    text, told = REFUSED[name]
    with pytest.raises(SpecError, match=told):
        converted(tmp_path, "auto", text, name)


def amd_smi_json(second: int, gpu: int) -> dict[str, object]:
    def reading(value: float, unit: str) -> dict[str, object]:
        return {"value": value, "unit": unit}

    clocks = {"gfx_0": {"clk": reading(2000, "MHz")}, "gfx_1": {"clk": reading(2100, "MHz")},
              "vclk_0": {"clk": reading(59, "MHz")}}  # fmt: skip
    return {"timestamp": texts.START_S + second, "gpu": gpu, "usage": {"gfx_activity": reading(99, "%")},
            "power": {"socket_power": reading(700 + gpu, "W"), "gfx_voltage": "N/A"}, "clock": clocks,
            "temperature": {"edge": "N/A", "hotspot": reading(71, "C")}}  # fmt: skip


AMD_SMI = {
    "metric.json": json.dumps([amd_smi_json(t, gpu) for t in range(20) for gpu in range(2)]),
    "monitor.txt": "".join(
        "TIMESTAMP   GPU  POWER  GPU_T  HOTSPOT_TEMPERATURE  GFX_UTIL  GFX_CLOCK\n" * (t % 10 == 0)
        + "".join(
            f"{texts.START_S + t:.0f}    {gpu}  {700 + gpu} W  50 °C  71 °C  99 %  2050 MHz\n" for gpu in range(2)
        )
        + "PROCESS_INFO:\n"
        for t in range(20)
    ),
}


@pytest.mark.parametrize("name", AMD_SMI)
@pytest.mark.parametrize("format", ["auto", "amd-smi"])
def test_nested_objects_and_aligned_text_of_amd_smi_are_read(name: str, format: str, tmp_path: Path) -> None:
    _, recording = converted(tmp_path, format, AMD_SMI[name], name)
    assert recording.sampled == [0, 1]
    assert set(recording.power(1)[1]) == {701.0}
    assert set(recording.known(0, "clock_hz")[1]) == {2.05e9}
    assert set(recording.known(0, "hotspot_c")[1]) == {71.0}


def test_charts_of_weights_and_biases_have_relative_times_and_no_extremes(tmp_path: Path) -> None:
    chart = "run - system/gpu.0.powerWatts"
    rows = [f'"Relative Time (Process)","{chart}","{chart}__MIN","{chart}__MAX"']
    rows += [f'"{10 * t}","300","200","400"' for t in range(20)]
    _, recording = converted(tmp_path, "auto", "\n".join(rows) + "\n", "chart.csv")
    assert recording.sampled == [0]
    assert set(recording.power(0)[1]) == {300.0}


def test_columns_that_name_no_quantity_are_asked_for_and_can_be_named(tmp_path: Path) -> None:
    text = "timestamp,GPU0,GPU1\n" + "".join(f"{texts.START_S + t},200.5,256.5\n" for t in range(20))
    with pytest.raises(SpecError, match="--column NAME=QUANTITY, such as 'GPU0=gpu0_power_w'"):
        converted(tmp_path, "auto", text, "log.csv")
    run = charllm.convert("auto", tmp_path / "log.csv", tmp_path / "named",
                          column={"GPU0": "gpu0_power_w", "GPU1": "gpu1_power_w"})  # fmt: skip
    assert run.metrics["power_mean_w"] == pytest.approx(228.5)


def test_a_counter_that_runs_backwards_is_left_out_and_said(tmp_path: Path) -> None:
    rows = "".join(f"{n},300,{(n if n < 20 else n - 20) * 300}\n" for n in range(40))
    result, recording = converted(tmp_path, "csv", f"t_s,power_w,energy_j\n{rows}")
    assert not len(recording.known(0, "energy_j")[0])
    assert any("energy_j: the counter runs backwards 1 time; left out" in text for text in result.warnings)
    assert result.metrics.power_mean_w == pytest.approx(300)
