"""A store with runs, a study and a measurement, and `charllm serve` on a free port to browse it."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import charllm
from charllm.result.store import RESULT_FILE
from tests.measure.replays import make_replay, quiet_environment

HOSTILE = "<img src=x onerror=alert(1)>"
SMALL: dict[str, Any] = {"model": "llama3-8b", "cluster": "h200x8", "gbs": 32}
TRAINING = """
import pathlib, sys, time, charllm.mark as mark
end = pathlib.Path(sys.argv[1])
mark.step(tokens=0)
while not end.exists():
    time.sleep(0.2)
    mark.point("loss", 2.5)
    mark.step(tokens=4096)
"""


def make_store(folder: Path) -> Path:
    """Store two runs, one of them under a name that is markup, a study, and a run that was cut short."""
    charllm.simulate(**SMALL, tp=2, out=folder / "tp2")
    charllm.simulate(**SMALL, tp=4, out=folder / "tp4")
    shutil.copytree(folder / "tp2", folder / HOSTILE)
    file = folder / HOSTILE / RESULT_FILE
    result = json.loads(file.read_text())
    result["spec"]["model"]["name"] = HOSTILE
    file.write_text(json.dumps(result))
    charllm.sweep(axes={"tp": [2, 4]}, base=SMALL, out=folder / "study")
    (folder / "broken").mkdir()
    (folder / "broken" / RESULT_FILE).write_text('{"origin": "simul')
    return folder


@contextmanager
def serving(store: Path, *flags: str) -> Iterator[str]:
    """Serve a store; gives the address."""
    command = [sys.executable, "-m", "charllm", "serve", str(store), *(flags or ("--port", "0"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=quiet_environment()) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            found = re.search(r"http://\S+", line)
            assert found, line
            yield found[0]
        finally:
            server.terminate()
            server.wait(120)


@contextmanager
def measuring(store: Path, work: Path, gpus: int = 2) -> Iterator[Path]:
    """Measure a job that marks steps, with recorded readings for GPUs; gives the file whose creation ends it."""
    end, replay = work / "end", make_replay(work / "replay", gpus=gpus)
    arguments = [
        "measure",
        "--telemetry",
        replay,
        "--out",
        str(store / "mine"),
        "--",
        sys.executable,
        "-c",
        TRAINING,
        str(end),
    ]
    environment = quiet_environment(PYTHONPATH=os.pathsep.join(path for path in sys.path if path))
    with subprocess.Popen(
        [sys.executable, "-m", "charllm", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    ) as job:
        try:
            yield end
        finally:
            end.touch()
            job.wait(120)
