"""Memory snapshots: who held memory at the peak, beside what is predicted; a pickle runs nothing."""

import gzip
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest

import charllm
from charllm.cli import main
from charllm.errors import SpecError
from charllm.trace.memory import Snapshot, read_snapshots
from charllm.units import MIB

STEP = [{"filename": "/env/site-packages/torch/optim/adamw.py", "name": "step", "line": 7},
        {"filename": "/home/me/train.py", "name": "main", "line": 30}]  # fmt: skip
FORWARD = [{"filename": "??", "name": "torch::unwind::unwind()", "line": 0},
           {"filename": "/home/me/model.py", "name": "forward", "line": 12},
           {"filename": "/env/site-packages/torch/nn/modules/module.py", "name": "_call_impl", "line": 9}]  # fmt: skip
BACKWARD = [{"filename": "", "name": "at::_ops::mm::call(...)", "line": 0},
            {"filename": "??", "name": "torch::autograd::Engine::evaluate_function(...)", "line": 0}]  # fmt: skip


def event(action: str, address: int, mib: float, frames: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": int(mib * MIB), "stream": 0, "time_us": 1, "frames": frames}


def freed(address: int, mib: float) -> list[dict[str, Any]]:
    return [event("free_requested", address, mib), event("free_completed", address, mib)]


EVENTS = [
    event("segment_alloc", 1 << 30, 64),
    event("alloc", 10, 30, FORWARD),
    event("alloc", 11, 8, BACKWARD),  # the peak: 40 of weights, 30 and 8
    *freed(10, 30),
    event("alloc", 10, 20, STEP),  # the same address again
]
"""Weights of 40 MiB are older than the recording."""


def block(address: int, mib: float, state: str, frames: list[dict[str, Any]]) -> dict[str, Any]:
    size = int(mib * MIB)
    return {"address": address, "size": size + 512, "requested_size": size, "state": state, "frames": frames}


def snapshot(path: Path, events: list[dict[str, Any]] = EVENTS) -> Path:
    blocks = [block(5, 40, "active_allocated", []), block(10, 20, "active_allocated", STEP),
              block(11, 8, "active_allocated", BACKWARD), block(12, 30, "inactive", [])]  # fmt: skip
    segment = {"device": 0, "address": 5, "total_size": 128 * MIB, "stream": 0, "segment_type": "large",
               "blocks": blocks}  # fmt: skip
    table = {"segments": [segment], "device_traces": [events], "allocator_settings": {}, "external_annotations": []}
    path.write_bytes(pickle.dumps(table))
    return path


def read(path: Path) -> Snapshot:
    (found,) = read_snapshots(path)
    return found


def test_the_peak_follows_backwards_from_what_was_live_at_the_end(tmp_path: Path) -> None:
    found = read(snapshot(tmp_path / "rank3.pickle"))
    assert (found.rank, found.allocated_bytes, found.peak_bytes) == (3, 68 * MIB, 78 * MIB)
    assert (found.reserved_bytes, found.peak_reserved_bytes) == (128 * MIB, 128 * MIB)
    assert not found.warnings


def test_a_block_belongs_to_who_allocated_it(tmp_path: Path) -> None:
    found = read(snapshot(tmp_path / "s.pickle"))
    assert found.origins == {"before the recording": 40 * MIB, "forward": 30 * MIB, "backward": 8 * MIB}
    assert sum(found.origins.values()) == found.peak_bytes
    assert [row["site"] for row in found.sites] == [
        "before the recording",
        "model.py:12 forward",
        "at::_ops::mm::call(...)",
    ]
    later = read(snapshot(tmp_path / "s.pickle", EVENTS[-1:]))
    assert later.origins == {"before the recording": 40 * MIB, "optimizer": 20 * MIB, "backward": 8 * MIB}


def test_a_snapshot_without_events_has_no_peak_and_says_why(tmp_path: Path) -> None:
    found = read(snapshot(tmp_path / "s.pickle", []))
    assert (found.peak_bytes, found.allocated_bytes) == (None, 68 * MIB)
    assert any("_record_memory_history" in text for text in found.warnings)


def test_an_allocation_that_failed_is_told(tmp_path: Path) -> None:
    failed = {**event("oom", 0, 512), "device_free": 100 * MIB}
    found = read(snapshot(tmp_path / "s.pickle", [*EVENTS, failed]))
    assert any("512 MiB failed with 100 MiB free" in text for text in found.warnings)


def test_the_command_shows_the_prediction_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = snapshot(tmp_path / "s.pickle")
    assert main(["trace", "--memory", str(path), "--model", "gpt2", "--gpu", "h100", "--gpus", "1"]) == 0
    told = capsys.readouterr().out
    for words in ("at the peak", "predicted / snapshot", "weights", "before the recording"):
        assert words in told
    found = charllm.trace(memory=path, model="gpt2", gpu="h100", gpus=1)["memory"][0]
    kinds = found["predicted"]["kinds"]
    allocated = sum(kinds[kind] for kind in ("weights", "gradients", "optimizer", "activations", "scratch"))
    assert allocated == found["predicted"]["allocated_bytes"]


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("opened",)


HOSTILE = {
    "code": pickle.dumps({"segments": [Evil()], "device_traces": []}),
    "a list": pickle.dumps([1, 2]),
    "no pickle": b"{}",
    "cut": pickle.dumps({"segments": [{"device": 0}] * 99})[:-40],
    "fields": pickle.dumps({"segments": [{"device": 0, "total_size": "x"}]}),
    "a memo of 4 billion": b"\x80\x02}r" + struct.pack("<I", 2**32 - 1) + b".",
    "nothing": pickle.dumps({"segments": [], "device_traces": []}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_whatever_is_no_snapshot_is_refused_and_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.pickle").write_bytes(HOSTILE[name])
    with pytest.raises(SpecError, match="--memory"):
        read_snapshots(tmp_path / "s.pickle")
    assert not (tmp_path / "opened").exists()


def test_a_packed_snapshot_is_read_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = tmp_path / "s.pickle.gz"
    packed.write_bytes(gzip.compress(snapshot(tmp_path / "s.pickle").read_bytes()))
    assert read(packed).allocated_bytes == 68 * MIB
    monkeypatch.setattr("charllm.trace.memory.MOST_BYTES", 100)
    with pytest.raises(SpecError, match="at most"):
        read_snapshots(packed)
