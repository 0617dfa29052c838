"""Tests that need a real NVIDIA GPU: ``make device-test``. Needs Python, torch, numpy and pynvml only.

Each check is a function whose name is a fact; the program prints one line for each and ends with 1 when one fails.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import torch

from charllm.gpu.shape import KernelShape
from charllm.measure.bench.run import MODES, read_runs, run_suite
from charllm.measure.bench.suite import OpCase, full_suite
from charllm.measure.bench.table import tabulate
from charllm.measure.kernels.device_code import make_limited_copy, make_spin
from charllm.measure.kernels.torch_kernels import KERNELS, make_kernel
from charllm.measure.quantities import BEATS, QUANTITIES
from charllm.measure.recording import read_recording
from charllm.measure.sampling import sampling
from charllm.measure.settings import MeasureSettings
from charllm.measure.telemetry import open_source
from charllm.measure.window import look

SMALL = {"gemm": (1, 512, 512, 512), "grouped_gemm": (4, 256, 512, 512),
         "grouped_wgrad": (4, 512, 512, 250), "attention": (1, 8, 2, 512, 128),
         "attention_backward": (1, 8, 2, 512, 128)}  # fmt: skip


def folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="charllm-device-"))


def test_every_fast_quantity_is_read() -> None:
    source = open_source("nvml")
    (identity, *_) = source.facts.gpus
    found = source.facts.capabilities[identity.uuid]
    print(json.dumps({name: [one.supported, one.reason, round(one.call_s * 1e6)] for name, one in found.items()}))
    print(json.dumps(source.facts.details), identity)
    assert all(found[name].supported for name in BEATS["fast"])
    assert set(found) == set(QUANTITIES)


def test_every_kernel_runs() -> None:
    for kind in KERNELS:
        shape = KernelShape(kind, SMALL.get(kind, (256, 1024)), "fp32" if kind == "optimizer" else "bf16")
        make_kernel(shape, "cuda")()
    for kind in ("gemm", "grouped_gemm", "grouped_wgrad"):
        for precision, variant in (("fp8", "best"), ("mxfp8", "best"), ("bf16", "accumulated")):
            make_kernel(KernelShape(kind, (2, 512, 512, 250), precision, variant=variant), "cuda")()
    for kind in ("attention", "attention_backward"):
        make_kernel(KernelShape(kind, SMALL[kind], variant="flash2"), "cuda")()
    torch.cuda.synchronize()


def test_a_spin_and_a_limited_copy_last_as_long_as_asked() -> None:
    for launch in (make_spin(16, 0.02), make_limited_copy(16, 64 << 20, 0.02)):
        launch()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(10):
            launch()
        torch.cuda.synchronize()
        length_s = (time.perf_counter() - start) / 10
        print("length", length_s)
        assert 0.019 < length_s < 0.024


def test_the_sampler_reads_a_hundred_times_a_second_and_agrees_with_the_counter() -> None:
    place = folder()
    launch = make_kernel(KernelShape("gemm", (1, 4096, 12288, 12288)), "cuda")
    with sampling(place, MeasureSettings(telemetry="nvml")):
        start_s = time.monotonic()
        while time.monotonic() - start_s < 6.0:
            for _ in range(10):
                launch()
            torch.cuda.synchronize()
        end_s = time.monotonic()
        time.sleep(0.3)
    cost = json.loads((place / "sampler.json").read_text())
    print(json.dumps(cost))
    seen = look(read_recording(place), 0, start_s + 0.5, end_s)
    print(seen)
    assert cost["rate_hz"] > 95
    assert cost["cpu_fraction"] < 0.05
    assert seen.energy_j is not None
    assert seen.instant_energy_j is not None
    assert abs(seen.instant_energy_j / seen.energy_j.value - 1) < 0.03


def test_every_mode_of_the_bench_runs() -> None:
    place = folder()
    chosen: dict[tuple[str, str, bool], OpCase] = {}
    for case in full_suite():
        chosen.setdefault((case.mode, case.beside, case.shape is None), case._replace(seconds_s=0.5))
    cases: list[OpCase] = list(chosen.values())
    with sampling(place, MeasureSettings(telemetry="nvml")):
        for case, outcome in run_suite(cases, place, "cuda", seed=0):
            print(case.name, outcome.calls, round(outcome.end_s - outcome.start_s, 3), outcome.error)
        time.sleep(0.3)
    assert {case.mode for case in cases} == set(MODES)
    rows = tabulate(cases, read_runs(place), read_recording(place))
    assert all(not row["error"] for row in rows)
    assert all(row["mean_w"] != "" for row in rows)


def command(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    return subprocess.run(
        [sys.executable, "-m", "charllm", *words], capture_output=True, text=True, env=environment, check=False
    )


TINY = ["--set", "model.layers=4", "--seq", "1024", "--mbs", "2", "--gbs", "4"]


def test_a_measured_training_run_has_watts_and_tokens() -> None:
    place = folder() / "run"
    train = [sys.executable, "-m", "charllm", "train", "--model", "llama3-8b", *TINY, "--seconds", "4"]
    done = command("measure", "--out", str(place), "--", *train)
    print(done.stdout[-300:], done.stderr[-600:])
    assert done.returncode == 0
    result = json.loads((place / "result.json").read_text())
    print({name: value for name, value in result["metrics"].items() if value is not None})
    assert result["metrics"]["power_mean_w"] > 200
    assert result["metrics"]["tokens_per_s"] > 1000
    assert result["spec"]["model"]["layers"] == 4


PLAIN_LOOP = """
import torch
layers = torch.nn.Sequential(*(torch.nn.Linear(8192, 8192, bias=False) for _ in range(8))).to("cuda", torch.bfloat16)
optimizer = torch.optim.AdamW(layers.parameters(), lr=1e-4, fused=True)
x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
for _ in range(250):
    layers(x).float().square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
"""


def traced(place: Path, *job: str) -> dict[str, Any]:
    done = command("measure", "--profile", "3@30", "--out", str(place), "--", *job)
    print(done.stderr[-600:])
    assert done.returncode == 0
    told = command("trace", str(place), "--json")
    assert told.returncode == 0, told.stderr
    energy: dict[str, Any]
    (energy,) = json.loads(told.stdout)["energy"]
    print({name: value for name, value in energy.items() if name not in ("classes", "kernels", "phases")})
    print([(row["name"], round(row["power_w"]), round(row["energy_j"], 2)) for row in energy["classes"]])
    return energy


def test_a_profiled_run_tells_where_its_joules_went() -> None:
    train = [sys.executable, "-m", "charllm", "train", "--model", "llama3-8b", *TINY, "--seconds", "15"]
    energy = traced(folder() / "run", *train)
    assert energy["traced_steps"] == 3
    assert energy["unknown_fraction"] < 0.01
    assert energy["held_out_fraction"] < 0.1
    assert energy["clock_error_s"] < 1e-3


def test_a_script_that_marks_nothing_is_profiled_by_its_optimizers_steps() -> None:
    place = folder()
    (place / "loop.py").write_text(PLAIN_LOOP)
    energy = traced(place / "run", sys.executable, str(place / "loop.py"))
    assert energy["traced_steps"] >= 2
    assert energy["unknown_fraction"] < 0.01


def test_a_rank_can_be_played() -> None:
    place = folder() / "rank"
    spec = [
        "--model",
        "gpt3-175b",
        "--cluster",
        "charllm-ppt-h200",
        "--tp",
        "8",
        "--pp",
        "4",
        "--gbs",
        "8",
        "--rank",
        "8",
    ]
    done = command("emulate", *spec, "--set", "model.layers=8", "--seconds", "3", "--out", str(place))
    print(done.stdout[-200:], done.stderr[-600:])
    assert done.returncode == 0
    result = json.loads((place / "result.json").read_text())
    assert result["origin"] == "emulated"
    print({name: value for name, value in result["metrics"].items() if value is not None})


def main() -> int:
    failed = 0
    for name, check in list(globals().items()):
        if not name.startswith("test_"):
            continue
        start = time.perf_counter()
        try:
            check()
            word = "passed"
        except Exception:
            traceback.print_exc()
            failed += 1
            word = "FAILED"
        print(f"{word} {name} ({time.perf_counter() - start:.1f} s)", flush=True)
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
