"""Preflight: facts from small trees of files and a stand-in driver, and the checks over them."""

import json
from pathlib import Path
from typing import Any

import pytest

import charllm
from charllm.api.keywords import build_request
from charllm.catalog.resolve import resolve_run
from charllm.cli import main
from charllm.errors import SpecError
from charllm.measure.preflight.checks import FAILURE, NOT_READABLE, OK, WARNING, Check, check_all
from charllm.measure.preflight.facts import collect_facts
from charllm.measure.preflight.nvidia import describe_gpus
from charllm.measure.preflight.run import check_shared_folder
from charllm.report.preflight import render_preflight
from charllm.units import GIGA, MEGA
from tests.measure.nvml_stand_in import StandIn
from tests.measure.replays import make_replay

GPU: dict[str, Any] = {
    "uuid": "GPU-0", "name": "NVIDIA H200", "number": 0, "temperature_c": 35.0, "limits": 1.0, "power_limit_w": 700.0,
    "power_default_w": 700.0, "utilization_fraction": 0.0, "memory_used_bytes": 1e9, "ecc_errors": 0.0, "faults": 0.0,
    "processes": 0, "clock_capped": False, "clock_set_hz": 1980 * MEGA, "persistence": True, "rows_pending": False,
    "rows_failed": False, "links_up": 18, "links_down": 0, "pcie_width": 16, "pcie_width_max": 16, "missing": {},
}  # fmt: skip
PORT = {"name": "mlx5_0/1", "state": "ACTIVE", "rate_bit_per_s": 400 * GIGA}
NODE: dict[str, Any] = {
    "node": "n1", "source": "nvml", "gpus": [GPU], "driver": {"driver": "570.1"}, "ports": [PORT],
    "interfaces": [{"name": "eth0", "state": "up", "rate_bit_per_s": 1e11}], "memory_bytes": 2e12,
    "memory_available_bytes": 1.9e12, "huge_pages": 0, "governors": ["performance"], "load": 0.5, "processors": 96,
    "shared_memory_bytes": 1e12, "disk": {"folder": "/runs", "free_bytes": 1e13, "writable": True},
    "clock": {"synchronised": True, "error_s": 0.001}, "software": {"torch": "2.8.0", "python": "3.12.3"},
}  # fmt: skip


def node(gpu: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    return {**NODE, "gpus": [{**GPU, **(gpu or {})}], **changes}


def states(checks: list[Check]) -> dict[str, str]:
    return {check.name: check.state for check in checks}


def test_a_healthy_machine_has_no_complaint() -> None:
    run = resolve_run(build_request(None, {"model": "gpt2", "cluster": "h200x1"}))
    for asked in (None, run):
        checks = check_all([NODE], asked)
        assert {check.state for check in checks} == {OK}
        assert not any(check.advice for check in checks)


@pytest.mark.parametrize(
    ("name", "broken", "state"),
    [
        ("idle GPUs", node({"utilization_fraction": 0.6}), FAILURE),
        ("other processes", node({"processes": 2}), FAILURE),
        ("GPU memory", node({"memory_used_bytes": 7e10}), WARNING),
        ("temperature", node({"temperature_c": 81.0}), WARNING),
        ("slowdown", node({"limits": 4.0}), FAILURE),
        ("clocks", node({"clock_capped": True}), FAILURE),
        ("power limit", node({"power_limit_w": 500.0}), FAILURE),
        ("persistence", node({"persistence": False}), WARNING),
        ("ECC errors", node({"ecc_errors": 3.0}), FAILURE),
        ("row remapping", node({"rows_pending": True}), FAILURE),
        ("row remapping failures", node({"rows_failed": True}), FAILURE),
        ("faults", node({"faults": 1.0}), FAILURE),
        ("NVLink", node({"links_up": 17, "links_down": 1}), FAILURE),
        ("PCIe", node({"pcie_width": 8}), FAILURE),
        ("RDMA ports", node(ports=[PORT, {**PORT, "state": "DOWN"}]), WARNING),
        ("RDMA ports", node(ports=[]), NOT_READABLE),
        ("host memory", node(memory_available_bytes=1e11), WARNING),
        ("/dev/shm", node(shared_memory_bytes=6e7), WARNING),
        ("disk", node(disk={"folder": "/runs", "free_bytes": 1e8, "writable": True}), FAILURE),
        ("CPU governor", node(governors=["powersave"]), WARNING),
        ("CPU load", node(load=90.0), WARNING),
        ("clock", node(clock={"synchronised": False, "error_s": 0.0}), WARNING),
        ("clock", node(clock=None), NOT_READABLE),
        ("GPUs", node(gpus=[], why_no_gpu="no driver"), FAILURE),
    ],
)
def test_each_fault_is_found_and_says_what_to_do(name: str, broken: dict[str, Any], state: str) -> None:
    checks = check_all([broken])
    assert states(checks)[name] == state
    (found,) = (check for check in checks if check.name == name)
    assert found.found
    assert state == NOT_READABLE or (found.expected and found.advice)
    others = [check for check in checks if check.state in (FAILURE, WARNING) and check.name != name]
    assert not others


def test_the_run_says_which_gpus_nodes_and_limits_are_expected() -> None:
    words = {"model": "gpt2", "cluster": "h200x1"}
    capped = resolve_run(build_request(None, {**words, "power_cap": 500, "clock_cap": 1200}))
    found = states(check_all([NODE], capped))
    assert found["power limit"] == found["clocks"] == FAILURE
    right = node({"power_limit_w": 500.0, "clock_set_hz": 1200 * MEGA})
    assert states(check_all([right], capped))["clocks"] == OK
    other = resolve_run(build_request(None, {"model": "llama3-8b", "cluster": "h100x8"}))
    checks = {check.name: check for check in check_all([NODE], other)}
    assert checks["GPUs"].expected == "8 x h100, as h100x8 has"
    assert checks["GPUs"].state == FAILURE
    two = resolve_run(build_request(None, {"model": "llama3-70b", "cluster": "charllm-ppt-h200", "tp": 4, "pp": 4}))
    assert states(check_all([NODE], two))["nodes"] == FAILURE


def test_nodes_that_differ_are_named() -> None:
    other = {**NODE, "node": "n2", "driver": {"driver": "560.9"}, "software": {"torch": "2.7.0", "python": "3.12.3"}}
    checks = {check.name: check for check in check_all([NODE, other])}
    assert checks["equal: driver"].found == "570.1 on n1; 560.9 on n2"
    assert checks["equal: torch version"].state == FAILURE
    assert checks["equal: python version"].state == OK
    full = {**other, "disk": {"folder": "/runs", "free_bytes": 5e12, "writable": True}}
    assert check_shared_folder(Path("/runs"), [NODE, other]).state == OK
    assert check_shared_folder(Path("/runs"), [NODE, full]).state == FAILURE


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_facts_are_read_from_the_kernel_files(tmp_path: Path) -> None:
    files = {
        "sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
        "sys/class/infiniband/mlx5_0/ports/1/phys_state": "5: LinkUp\n",
        "sys/class/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
        "sys/class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand\n",
        "sys/class/net/eth0/operstate": "up\n",
        "sys/class/net/eth0/speed": "100000\n",
        "sys/class/net/lo/operstate": "unknown\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n",
        "proc/meminfo": "MemTotal:       1000 kB\nMemAvailable:    250 kB\nHugePages_Total:       8\n",
        "proc/loadavg": "1.50 1.00 0.50 1/100 1234\n",
        "proc/cpuinfo": "processor\t: 0\nmodel name\t: x\nprocessor\t: 1\n",
    }
    for name, text in files.items():
        write(tmp_path, **{name.replace("/", "__"): text})
    facts = collect_facts("none", tmp_path / "runs" / "new", tmp_path)
    assert facts["ports"][0] == {
        "name": "mlx5_0/1", "state": "ACTIVE", "physical": "LinkUp", "rate_bit_per_s": 400 * GIGA,
        "layer": "InfiniBand",
    }  # fmt: skip
    assert facts["interfaces"] == [{"name": "eth0", "state": "up", "rate_bit_per_s": 1e11}]
    assert (facts["memory_bytes"], facts["huge_pages"], facts["load"], facts["processors"]) == (1000 * 1024, 8, 1.5, 2)
    assert facts["governors"] == ["powersave"]
    assert facts["disk"]["folder"] == str(tmp_path)
    json.dumps(facts)


def test_a_machine_without_files_is_no_error(tmp_path: Path) -> None:
    checks = check_all([collect_facts("none", tmp_path, tmp_path / "empty")])
    assert states(checks)["GPUs"] == NOT_READABLE
    assert states(checks)["host memory"] == NOT_READABLE


def test_facts_of_gpus_come_from_any_telemetry_source(tmp_path: Path) -> None:
    facts = collect_facts(make_replay(tmp_path / "loaded"), tmp_path, tmp_path)
    assert facts["source"] == "replay"
    assert facts["gpus"][0]["name"]
    assert "temperature_c" in facts["gpus"][0]


def test_the_driver_tells_links_limits_and_repairs() -> None:
    driver = StandIn()
    more = {
        "nvmlDeviceGetPowerManagementDefaultLimit": 700_000,
        "nvmlDeviceGetRemappedRows": (0, 1, 1, 0),
        "nvmlDeviceGetNvLinkState": 1,
        "nvmlDeviceGetPersistenceMode": 1,
        "nvmlDeviceGetComputeRunningProcesses": [object()],
    }
    for name, answer in more.items():
        setattr(driver, name, lambda *_, answer=answer: answer)
    (facts,) = describe_gpus(driver).values()
    assert facts["power_default_w"] == 700.0
    assert (facts["rows_pending"], facts["rows_failed"], facts["processes"]) == (True, False, 1)
    assert (facts["links_up"], facts["links_down"], facts["persistence"]) == (18, 0, True)


def test_the_command_prints_a_table_or_json_and_fails_by_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preflight", "--telemetry", "none", "--no-reach", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert not answer["failed"]
    assert answer["nodes"][0]["source"] == "none"
    assert main(["preflight", "--no-reach", "--model", "gpt2", "--cluster", "h200x1"]) == 1
    shown = capsys.readouterr().out
    assert "no GPU" in shown
    assert "What to do:" in shown
    assert render_preflight(answer["checks"]).startswith("Preflight: 0 failure")


def test_nodes_without_an_allocation_are_a_wrong_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(SpecError, match="nodes: got 2; expected 1, or a Slurm allocation"):
        charllm.preflight(nodes=2, telemetry="none")
    with pytest.raises(SpecError, match="nodes"):
        charllm.preflight(nodes=0)
