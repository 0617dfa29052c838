"""Measurements as they are watched."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from charllm.explorer import live
from charllm.explorer.live import Lookout
from charllm.explorer.workers import busy
from tests.measure.live.runs import write_marks, write_node


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY_S", 0.05)


def test_all_who_watch_a_run_share_its_looks(tmp_path: Path) -> None:
    folder = write_node(tmp_path / "run", gpus=2)
    write_marks(folder, 4)

    async def watch(lookout: Lookout, looks: int) -> list[dict[str, Any]]:
        found = []
        events = lookout.follow(folder, "run")
        async for event, data in events:
            assert event == "snapshot"
            found.append(json.loads(data))
            if len(found) == looks:
                break
        await events.aclose()
        return found

    async def scenario() -> None:
        lookout = Lookout()
        first, second = await asyncio.gather(watch(lookout, 4), watch(lookout, 2))
        assert first[:2] == second
        assert [len(snapshot["history"]) for snapshot in first[1:]] == [1, 1, 1]
        newest = first[-1]
        assert (newest["folder"], newest["state"], newest["job"]["steps"]) == ("run", "running", 4)
        (moment,) = newest["history"]
        assert moment["power_w"] == newest["power_w"]
        readings = newest["nodes"][0]["gpus"][1]["readings"]["values"]
        assert moment["gpus"][1]["clock_hz"] == readings["clock_hz"]
        assert lookout._watches == {}
        # Who opens the view of a run that has begun sees what was recorded until then.
        past = first[0]["history"][:-1]
        assert len(past) >= 3
        assert all(len(moment["gpus"]) == 2 for moment in past)
        times_s = [moment["wall_s"] for moment in first[0]["history"]]
        assert times_s == sorted(times_s)

    asyncio.run(scenario())


def test_who_comes_later_gets_what_was_seen_before(tmp_path: Path) -> None:
    folder = write_node(tmp_path / "run")

    async def scenario() -> None:
        lookout = Lookout()
        early, late = lookout.follow(folder, "run"), lookout.follow(folder, "run")
        for _ in range(3):
            await anext(early)
        snapshot = json.loads((await anext(late)).data)
        assert len(snapshot["history"]) >= 3
        await early.aclose()
        await late.aclose()

    asyncio.run(scenario())


def test_a_run_that_has_ended_is_shown_once(tmp_path: Path) -> None:
    folder = write_node(tmp_path / "run", ended=True)

    async def scenario() -> None:
        states = [json.loads(reply.data)["state"] async for reply in Lookout().follow(folder, "run")]
        assert states == ["ended"]

    asyncio.run(scenario())


def test_old_readings_are_not_shown_as_new_ones(tmp_path: Path) -> None:
    folder = write_node(tmp_path / "run", age_s=60.0)

    async def scenario() -> None:
        lookout = Lookout()
        events = lookout.follow(folder, "run")
        first, second = [json.loads((await anext(events)).data) for _ in range(2)]
        assert (first["state"], second["state"]) == ("silent", "silent")
        assert first["history"][-1]["wall_s"] < first["wall_s"] - 50
        assert second["history"] == []
        await events.aclose()

    asyncio.run(scenario())


def test_only_so_many_runs_are_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_RUNS", 1)
    folders = [write_node(tmp_path / name) for name in ("one", "two")]

    async def scenario() -> None:
        lookout = Lookout()
        one = lookout.follow(folders[0], "one")
        await anext(one)
        assert [reply async for reply in lookout.follow(folders[1], "two")] == [busy(live.BUSY_S)]
        await one.aclose()
        assert (await anext(lookout.follow(folders[1], "two"))).event == "snapshot"
        lookout.close()

    asyncio.run(scenario())
