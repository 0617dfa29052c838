"""Runs charllm as a process of its own, forked from one that has already imported it: a second less for each.

What starting the interpreter, its streams or signals are about is tested with `python -m charllm` itself.
"""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.program_imports"])


def charllm(
    *words: str, timeout_s: float = 120, folder: Path | None = None, variables: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end: its exit code and what it printed, as `subprocess.run` would return them."""
    with tempfile.TemporaryDirectory() as place:
        out, err = (Path(place) / name for name in ("out", "err"))
        where = str(folder or Path.cwd())
        environment = {**os.environ} if variables is None else variables
        process = FORKS.Process(target=_run, args=(words, str(out), str(err), where, environment))
        process.start()
        process.join(timeout_s)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(["charllm", *words], timeout_s)
        code = process.exitcode
        process.close()
        texts = [path.read_text(encoding="utf-8") for path in (out, err)]
        return subprocess.CompletedProcess(["charllm", *words], code, *texts)


def _run(words: tuple[str, ...], out: str, err: str, folder: str, environment: dict[str, str]) -> None:
    """Become the program: its own streams, folder and environment."""
    for number, path in ((1, out), (2, err)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    from charllm.cli import main

    sys.exit(main(words))
